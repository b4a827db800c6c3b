package slacktest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"unicode/utf8"
)

// The limits of a view.
const (
	maxViewBlocks = 100
	maxViewBytes  = 250_000
)

// publish serves views.publish. s.mu is held.
func (s *Server) publish(form url.Values) answer {
	user := form.Get("user_id")
	if _, ok := s.state.users[user]; !ok {
		return refuse("user_not_found")
	}
	raw := form.Get("view")
	var view struct {
		Type   string            `json:"type"`
		Blocks []json.RawMessage `json:"blocks"`
	}
	switch err := json.Unmarshal([]byte(raw), &view); {
	case err != nil:
		return refuse("invalid_arguments", "failed to parse the view: "+err.Error())
	case view.Type != "home":
		return refuse("invalid_arguments", "unsupported type: "+view.Type+" [json-pointer:/view/type]")
	case len(raw) > maxViewBytes:
		return refuse("view_too_large")
	}
	blocks, err := json.Marshal(view.Blocks)
	if err != nil {
		return refuse("invalid_arguments", err.Error())
	}
	if wrong := checkBlocks(blocks, maxViewBlocks); len(wrong) > 0 {
		return refuse("invalid_arguments", wrong...)
	}
	s.state.homes[user] = blocks
	s.change(Change{Kind: "home", User: user, Message: Message{User: s.BotUser, BotID: s.Bot, Blocks: blocks}})
	return jsonAnswer(map[string]any{"ok": true, "view": map[string]any{"id": "V" + user, "team_id": s.Team,
		"type": "home", "blocks": view.Blocks, "hash": "1." + s.stamp(),
		"app_id": s.App, "bot_id": s.Bot, "state": map[string]any{"values": map[string]any{}}}})
}

// Home returns the blocks of a person's Home tab. It is nil if the app has published none.
func (s *Server) Home(user string) json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.homes[user]
}

// OpenHome has a person open the Home tab of the app.
func (s *Server) OpenHome(ctx context.Context, user string) []Attempt {
	s.mu.Lock()
	body := s.envelope(map[string]any{"type": "app_home_opened", "user": user, "channel": "D0" + user,
		"event_ts": s.stamp(), "tab": "home"})
	s.mu.Unlock()
	return s.Deliver(ctx, body)
}

// Choose has a person choose an option with this value in the Home tab, or type it into a field and press Enter. It
// returns an error if the tab has no such element or option, or if the field does not take the text.
func (s *Server) Choose(ctx context.Context, user, actionID, value string) (Attempt, error) {
	s.mu.Lock()
	blocks, ok := s.state.homes[user]
	action := findAction(blocks, actionID, value)
	field := findField(blocks, actionID)
	switch {
	case !ok:
		s.mu.Unlock()
		return Attempt{}, fmt.Errorf("%s has no Home tab", user)
	case field != nil:
		if most, _ := field["max_length"].(float64); float64(utf8.RuneCountInString(value)) > most {
			s.mu.Unlock()
			return Attempt{}, fmt.Errorf("the field %s takes %v characters", actionID, most)
		}
		action = map[string]any{"type": "plain_text_input", "action_id": actionID, "block_id": actionID, "value": value}
		if value == "" {
			action["value"] = nil
		}
	case action == nil:
		s.mu.Unlock()
		return Attempt{}, fmt.Errorf("the Home tab has no element %q with %q", actionID, value)
	}
	action["action_ts"] = s.stamp()
	payload := map[string]any{
		"type": "block_actions", "user": map[string]any{"id": user, "username": s.state.users[user].Name,
			"name": s.state.users[user].Name, "team_id": s.Team},
		"api_app_id": s.App, "token": "deprecated", "container": map[string]any{"type": "view", "view_id": "V" + user},
		"trigger_id": "1." + s.stamp(),
		"team":       map[string]any{"id": s.Team, "domain": "stand-in"}, "enterprise": nil, "is_enterprise_install": false,
		"view": map[string]any{"id": "V" + user, "team_id": s.Team, "type": "home",
			"blocks": json.RawMessage(blocks), "state": map[string]any{"values": map[string]any{}}},
		"actions": []any{action},
	}
	target, socket := s.InteractionsURL, s.SocketMode
	s.mu.Unlock()
	body := jsonAnswer(payload).body
	a := Attempt{Kind: "interaction", URL: target, Body: []byte(url.Values{"payload": {string(body)}}.Encode())}
	if socket {
		a = s.overSocket(ctx, a, "interactive", json.RawMessage(body))
	} else {
		a, _ = s.send(ctx, a, "application/x-www-form-urlencoded")
	}
	s.keep(a)
	return a, nil
}

// findField returns the text field with this action_id.
func findField(blocks json.RawMessage, id string) map[string]any {
	var list []struct {
		Element map[string]any `json:"element"`
	}
	if json.Unmarshal(blocks, &list) != nil {
		return nil
	}
	for _, b := range list {
		if b.Element["action_id"] == id && b.Element["type"] == "plain_text_input" {
			return b.Element
		}
	}
	return nil
}
