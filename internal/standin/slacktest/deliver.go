package slacktest

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Attempt is one attempt at a delivery to the app.
type Attempt struct {
	Kind    string // "event", "command", "interaction"
	EventID string
	URL     string // or "socket"
	Retry   int
	Reason  string // X-Slack-Retry-Reason
	Body    []byte
	Status  int // 0 without a response; 200 for an acknowledgement over a socket
	Answer  []byte
	Err     error
	Took    time.Duration
}

// Say is Write with a delivery in the background as by Slack. It delivers a message event, and also an app_mention if
// the message mentions the app.
func (s *Server) Say(user, channel, threadTS, text string, files ...File) (ts string) {
	ts = s.Write(user, channel, threadTS, text, files...)
	for _, body := range s.Envelopes(channel, ts) {
		s.background(func(ctx context.Context) { s.Deliver(ctx, body) })
	}
	return ts
}

// Envelopes returns the bodies that Slack delivers for a message. They are the app_mention, if it is one, and the
// message event. Each call uses new event_ids, like a second installation of the app.
func (s *Server) Envelopes(channel, ts string) [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.state.channels[channel]
	if c == nil || c.byTS[ts] == nil {
		panic(fmt.Sprintf("slacktest: there is no message %s in channel %q", ts, channel))
	}
	return s.envelopes(c, c.byTS[ts])
}

// envelopes is Envelopes with s.mu held.
func (s *Server) envelopes(c *channel, m *Message) (all [][]byte) {
	if !c.member {
		return nil
	}
	event := s.object(c, m, false)
	delete(event, "reply_count")
	delete(event, "latest_reply")
	if m.ThreadTS == "" {
		delete(event, "thread_ts")
	}
	event["channel"] = c.id
	event["event_ts"] = m.TS
	if m.BotID == "" && mentions(m.Text, s.BotUser) && c.kind != "im" {
		mention := map[string]any{}
		for name, v := range event {
			mention[name] = v
		}
		mention["type"] = "app_mention"
		delete(mention, "parent_user_id")
		all = append(all, s.envelope(mention))
	}
	event["channel_type"] = c.kind
	if len(m.Files) > 0 {
		event["subtype"] = "file_share"
	}
	return append(all, s.envelope(event))
}

func mentions(text, user string) bool {
	return strings.Contains(text, "<@"+user+">") || strings.Contains(text, "<@"+user+"|")
}

// envelope wraps an event. s.mu is held.
func (s *Server) envelope(event map[string]any) []byte {
	s.state.events++
	return jsonAnswer(map[string]any{
		"token": "deprecated", "team_id": s.Team, "context_team_id": s.Team, "context_enterprise_id": nil,
		"api_app_id": s.App,
		"event":      event, "type": "event_callback", "event_id": fmt.Sprintf("Ev%08d", s.state.events),
		"event_time": s.Now().Unix(),
		"authorizations": []any{map[string]any{"enterprise_id": nil, "team_id": s.Team, "user_id": s.BotUser,
			"is_bot": true, "is_enterprise_install": false}},
		"is_ext_shared_channel": false, "event_context": "4-stand-in",
	}).body
}

// echo delivers the app's own posts and edits, as Slack does for an app that listens to its channels. s.mu is held.
func (s *Server) echo(c *channel, m *Message, subtype string) {
	var body []byte
	if subtype == "" {
		all := s.envelopes(c, m)
		body = all[len(all)-1]
	} else {
		body = s.envelope(map[string]any{"type": "message", "subtype": subtype, "hidden": true, "channel": c.id,
			"channel_type": c.kind,
			"ts":           s.stamp(), "event_ts": m.TS, "message": s.object(c, m, false),
			"previous_message": map[string]any{"type": "message", "ts": m.TS, "user": m.User, "bot_id": m.BotID}})
	}
	s.background(func(ctx context.Context) { s.Deliver(ctx, body) })
}

// Deliver delivers an event's body, signed. It retries up to three times until a 2xx comes in time. The attempts are
// recorded.
func (s *Server) Deliver(ctx context.Context, body []byte) (attempts []Attempt) {
	var head struct {
		EventID string `json:"event_id"`
	}
	_ = json.Unmarshal(body, &head)
	reason := ""
	for retry := 0; retry <= len(s.Retries); retry++ {
		if retry > 0 && s.Sleep(ctx, s.Retries[retry-1]) != nil {
			return attempts
		}
		s.mu.Lock()
		target, socket := s.EventsURL, s.SocketMode
		s.mu.Unlock()
		a := Attempt{Kind: "event", EventID: head.EventID, Retry: retry, Reason: reason, Body: body, URL: target}
		again := true
		switch {
		case socket:
			a = s.overSocket(ctx, a, "events_api", json.RawMessage(body))
		case target == "":
			return attempts
		default:
			a, again = s.send(ctx, a, "application/json")
		}
		attempts = append(attempts, a)
		s.keep(a)
		if a.Status/100 == 2 || !again {
			return attempts
		}
		reason = why(a)
	}
	return attempts
}

// why returns Slack's X-Slack-Retry-Reason for a failed attempt.
func why(a Attempt) string {
	var timeout interface{ Timeout() bool }
	switch {
	case a.Err == nil:
		return "http_error"
	case errors.As(a.Err, &timeout) && timeout.Timeout():
		return "http_timeout"
	}
	return "connection_failed"
}

func (s *Server) keep(a Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.state.attempts) >= maxRequests {
		s.state.attempts = append([]Attempt(nil), s.state.attempts[maxRequests/2:]...)
	}
	s.state.attempts = append(s.state.attempts, a)
	s.move()
}

// Attempts returns all deliveries so far, in the order of their ends.
func (s *Server) Attempts() []Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.state.attempts)
}

// Sign returns a body's signature headers for the current time.
func (s *Server) Sign(body []byte) http.Header {
	stamp := strconv.FormatInt(s.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte(s.SigningSecret))
	fmt.Fprintf(mac, "v0:%s:", stamp)
	mac.Write(body)
	return http.Header{
		"X-Slack-Request-Timestamp": {stamp},
		"X-Slack-Signature":         {"v0=" + hex.EncodeToString(mac.Sum(nil))},
	}
}

// patience bounds the wait for the response to a delivery.
func (s *Server) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.GiveUp == nil {
		return context.WithTimeout(ctx, s.AckTime)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-s.GiveUp:
			cancel(context.DeadlineExceeded)
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		cancel(context.Canceled)
		waiting.Wait() // a value for the next delivery must stay in the channel
	}
}

// send posts a delivery once. again is false if the app wants no retry.
func (s *Server) send(ctx context.Context, a Attempt, kind string) (_ Attempt, again bool) {
	ctx, cancel := s.patience(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.URL, bytes.NewReader(a.Body))
	if err != nil {
		a.Err = err
		return a, false
	}
	req.Header = s.Sign(a.Body)
	req.Header.Set("Content-Type", kind)
	req.Header.Set("User-Agent", "Slackbot 1.0 (+https://api.slack.com/robots)")
	if a.Retry > 0 {
		req.Header.Set("X-Slack-Retry-Num", strconv.Itoa(a.Retry))
		req.Header.Set("X-Slack-Retry-Reason", a.Reason)
	}
	began := time.Now()
	resp, err := s.deliveries.Do(req)
	if err == nil {
		defer resp.Body.Close()
		a.Status = resp.StatusCode
		a.Answer, err = io.ReadAll(io.LimitReader(resp.Body, maxBody))
		again = resp.Header.Get("X-Slack-No-Retry") != "1"
	} else {
		again = true
	}
	a.Took, a.Err = time.Since(began), err
	if err != nil {
		a.Status = 0
	}
	return a, again
}

// Verify sends the url_verification of a new request URL. It returns an error if the app does not answer it.
func (s *Server) Verify(ctx context.Context) error {
	s.mu.Lock()
	target := s.EventsURL
	s.mu.Unlock()
	challenge := "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"
	body := jsonAnswer(map[string]any{"token": "deprecated", "challenge": challenge, "type": "url_verification"}).body
	a, _ := s.send(ctx, Attempt{Kind: "event", URL: target, Body: body}, "application/json")
	s.keep(a)
	var object struct {
		Challenge string `json:"challenge"`
	}
	answer := strings.TrimSpace(string(a.Answer))
	if json.Unmarshal(a.Answer, &object) == nil {
		answer = object.Challenge
	} else if form, err := url.ParseQuery(answer); err == nil && form.Has("challenge") {
		answer = form.Get("challenge")
	}
	if a.Err != nil || a.Status != http.StatusOK || answer != challenge {
		return fmt.Errorf("the request URL did not answer the challenge: status %d, %v, %q", a.Status, a.Err, a.Answer)
	}
	return nil
}

// Command types a slash command, such as "/ramus" with "status". Slack does not retry a command.
func (s *Server) Command(ctx context.Context, user, channel, name, text string) Attempt {
	s.mu.Lock()
	c := s.state.channels[channel]
	fields := map[string]string{
		"token": "deprecated", "team_id": s.Team, "team_domain": "stand-in", "channel_id": channel, "channel_name": c.name,
		"user_id": user, "user_name": s.state.users[user].Name, "command": name, "text": text, "api_app_id": s.App,
		"is_enterprise_install": "false", "response_url": s.newResponseURL(channel, user, ""),
		"trigger_id": "1." + s.stamp(),
	}
	target, socket := s.CommandsURL, s.SocketMode
	s.mu.Unlock()
	form := url.Values{}
	for key, v := range fields {
		form.Set(key, v)
	}
	a := Attempt{Kind: "command", URL: target, Body: []byte(form.Encode())}
	if socket {
		a = s.overSocket(ctx, a, "slash_commands", fields)
	} else {
		a, _ = s.send(ctx, a, "application/x-www-form-urlencoded")
	}
	s.immediate(a, channel, user)
	s.keep(a)
	return a
}

// immediate shows the direct response to a command.
func (s *Server) immediate(a Attempt, channel, user string) {
	var said struct {
		Text string `json:"text"`
		Type string `json:"response_type"`
	}
	if a.Status != http.StatusOK || len(bytes.TrimSpace(a.Answer)) == 0 {
		return
	}
	if json.Unmarshal(a.Answer, &said) != nil {
		said.Text = string(a.Answer)
	}
	if said.Text == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change(Change{Kind: "response", User: user,
		Message: Message{Channel: channel, TS: s.stamp(), User: s.BotUser, BotID: s.Bot, Text: said.Text}})
}

// Press presses the button with this action_id on a message of the app, or chooses the option with this value. The
// value "" means the first one with the action_id. It returns an error if there is no such button.
func (s *Server) Press(ctx context.Context, user, channel, messageTS, actionID, value string) (Attempt, error) {
	s.mu.Lock()
	c := s.state.channels[channel]
	if c == nil || c.byTS[messageTS] == nil {
		s.mu.Unlock()
		return Attempt{}, fmt.Errorf("there is no message %s in channel %q", messageTS, channel)
	}
	m := c.byTS[messageTS]
	action := findAction(m.Blocks, actionID, value)
	if action == nil {
		s.mu.Unlock()
		return Attempt{}, fmt.Errorf("message %s has no button %q with value %q", messageTS, actionID, value)
	}
	action["action_ts"] = s.stamp()
	container := map[string]any{"type": "message", "message_ts": m.TS, "channel_id": channel, "is_ephemeral": false}
	if m.ThreadTS != "" {
		container["thread_ts"] = m.ThreadTS
	}
	payload := map[string]any{
		"type": "block_actions", "user": map[string]any{"id": user, "username": s.state.users[user].Name,
			"name": s.state.users[user].Name, "team_id": s.Team},
		"api_app_id": s.App, "token": "deprecated", "container": container, "trigger_id": "1." + s.stamp(),
		"team":       map[string]any{"id": s.Team, "domain": "stand-in"},
		"enterprise": nil, "is_enterprise_install": false, "channel": map[string]any{"id": channel, "name": c.name},
		"message":      s.object(c, m, false),
		"response_url": s.newResponseURL(channel, user, messageTS), "actions": []any{action},
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

// findAction returns the element with this action_id. A select must also have the option.
func findAction(blocks json.RawMessage, id, value string) map[string]any {
	var tree []any
	if json.Unmarshal(blocks, &tree) != nil {
		return nil
	}
	var find func(v any) map[string]any
	find = func(v any) map[string]any {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				if found := find(e); found != nil {
					return found
				}
			}
		case map[string]any:
			if v["action_id"] == id {
				if options, ok := v["options"].([]any); ok {
					for _, o := range options {
						if o, _ := o.(map[string]any); value == "" || o["value"] == value {
							return map[string]any{"type": v["type"], "action_id": id, "block_id": "b", "selected_option": o}
						}
					}
				} else if own, _ := v["value"].(string); value == "" || own == value {
					return map[string]any{"type": v["type"], "action_id": id, "block_id": "b", "text": v["text"],
						"value": own}
				}
			}
			for _, e := range v {
				if found := find(e); found != nil {
					return found
				}
			}
		}
		return nil
	}
	return find(tree)
}
