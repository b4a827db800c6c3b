package slacktest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Scopes has the scopes of the bot token that Slack requires for the methods and events of this stand-in.
var Scopes = map[string][]string{
	"auth.test":             nil,
	"users.info":            {"users:read"},
	"users.info: email":     {"users:read.email"}, // the field profile.email
	"conversations.replies": {"channels:history", "groups:history", "im:history", "mpim:history"},
	"conversations.history": {"channels:history", "groups:history", "im:history", "mpim:history"},
	"chat.postMessage":      {"chat:write"},
	"chat.postEphemeral":    {"chat:write"},
	"chat.update":           {"chat:write"},
	"reactions.add":         {"reactions:write"},
	"reactions.remove":      {"reactions:write"},
	"files":                 {"files:read"},
	"views.publish":         nil,
	"files.info":            {"files:read"},

	"files.getUploadURLExternal":   {"files:write"},
	"files.completeUploadExternal": {"files:write"},

	"app_mention":    {"app_mentions:read"},
	"slash commands": {"commands"},
}

// method serves a method of the Web API.
func (s *Server) method(r *http.Request, method, token string, form url.Values) answer {
	if method == "apps.connections.open" {
		switch {
		case token == "":
			return refuse("not_authed")
		case token != s.AppToken:
			return refuse("invalid_auth")
		}
		return s.openSocket()
	}
	switch {
	case token == "":
		return refuse("not_authed")
	case token != s.Token:
		return refuse("invalid_auth")
	case r.Method != http.MethodPost && r.Method != http.MethodGet:
		return refuse("invalid_post_type")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if needed := Scopes[method]; len(needed) > 0 && !slices.ContainsFunc(needed, s.has) {
		return s.missing(needed[0])
	}
	switch method {
	case "auth.test":
		return jsonAnswer(map[string]any{"ok": true, "url": "https://stand-in.slack.com/", "team": "stand-in",
			"user":    s.BotName,
			"team_id": s.Team, "user_id": s.BotUser, "bot_id": s.Bot, "is_enterprise_install": false})
	case "users.info":
		return s.usersInfo(form)
	case "conversations.replies":
		return s.replies(form)
	case "conversations.history":
		return s.history(form)
	case "chat.postMessage":
		return s.postMessage(form)
	case "chat.postEphemeral":
		return s.postEphemeral(form)
	case "chat.update":
		return s.update(form)
	case "reactions.add":
		return s.react(form, true)
	case "reactions.remove":
		return s.react(form, false)
	case "views.publish":
		return s.publish(form)
	case "files.info":
		return s.filesInfo(form)
	case "files.getUploadURLExternal":
		return s.getUploadURL(form)
	case "files.completeUploadExternal":
		return s.completeUpload(form)
	}
	return refuse("unknown_method", method)
}

// has reports whether the token has a scope. s.mu is held.
func (s *Server) has(scope string) bool { return !slices.Contains(s.Lacks, scope) }

// missing refuses a token without a scope.
func (s *Server) missing(scope string) answer {
	return jsonAnswer(map[string]any{"ok": false, "error": "missing_scope", "needed": scope, "provided": "identify"})
}

// Lack removes scopes from the token. Without arguments it restores all of them.
func (s *Server) Lack(scopes ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Lacks = scopes
}

func (s *Server) usersInfo(form url.Values) answer {
	u, ok := s.state.users[form.Get("user")]
	if !ok {
		return refuse("user_not_found")
	}
	profile := map[string]any{"real_name": u.Name, "display_name": u.Name, "team": s.Team}
	if u.Email != "" && s.has("users:read.email") {
		profile["email"] = u.Email
	}
	return jsonAnswer(map[string]any{"ok": true, "user": map[string]any{
		"id": u.ID, "team_id": s.Team, "name": u.Name, "deleted": false, "real_name": u.Name, "tz": "Etc/UTC",
		"is_bot":  u.ID == s.BotUser,
		"profile": profile,
	}})
}

// in returns the channel of a request. The app must be a member.
func (s *Server) in(form url.Values) (*channel, *answer) {
	c := s.state.channels[form.Get("channel")]
	var a answer
	switch {
	case c == nil:
		a = refuse("channel_not_found")
	case !c.member:
		a = refuse("not_in_channel")
	default:
		return c, nil
	}
	return nil, &a
}

func (s *Server) replies(form url.Values) answer {
	c, refused := s.in(form)
	if refused != nil {
		return *refused
	}
	ts := form.Get("ts")
	m := c.byTS[ts]
	if m == nil {
		a := refuse("thread_not_found")
		a.complaint = ""
		return a
	}
	all := []*Message{m}
	if m.ThreadTS != "" {
		// Slack returns a reply alone if the request has its own ts.
		return s.page(c, all, form, false)
	}
	return s.page(c, append(all, c.threads[ts]...), form, true)
}

func (s *Server) history(form url.Values) answer {
	c, refused := s.in(form)
	if refused != nil {
		return *refused
	}
	var all []*Message
	for _, m := range slices.Backward(c.messages) {
		if m.ThreadTS == "" {
			all = append(all, m)
		}
	}
	return s.page(c, all, form, false)
}

// page cuts a list at the limit and returns a cursor for the rest. Slack repeats the parent of a thread on each page.
func (s *Server) page(c *channel, all []*Message, form url.Values, repeat bool) answer {
	limit, start := 1000, 0
	if text := form.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 1000 {
			return refuse("invalid_limit", text)
		}
		limit = n
	}
	if cursor := form.Get("cursor"); cursor != "" {
		_, err := fmt.Sscanf(cursor, "bmV4dA-%d", &start)
		if err != nil || start < 0 || start > len(all) {
			return refuse("invalid_cursor", cursor)
		}
	}
	end := min(start+limit, len(all))
	metadata := form.Get("include_all_metadata") == "true" || form.Get("include_all_metadata") == "1"
	messages := []any{}
	if repeat && start > 0 {
		messages = append(messages, s.object(c, all[0], metadata))
	}
	for _, m := range all[start:end] {
		messages = append(messages, s.object(c, m, metadata))
	}
	o := map[string]any{"ok": true, "messages": messages, "has_more": end < len(all),
		"response_metadata": map[string]any{"next_cursor": ""}}
	if end < len(all) {
		o["response_metadata"] = map[string]any{"next_cursor": fmt.Sprintf("bmV4dA-%d", end)}
	}
	return jsonAnswer(o)
}

// written is the content in a request of chat.postMessage or a similar method.
type written struct {
	text     string
	blocks   json.RawMessage
	metadata *Metadata
}

const (
	maxText       = 40_000
	maxUpdateText = 4_000
	maxMetadata   = 8 << 10
)

// written checks text, blocks and metadata.
func (s *Server) written(form url.Values, mostText int) (w written, refused *answer) {
	fail := func(code string, details ...string) (written, *answer) {
		a := refuse(code, details...)
		return written{}, &a
	}
	w.text = form.Get("text")
	if n := utf8.RuneCountInString(w.text); n > mostText {
		return fail("msg_too_long", fmt.Sprintf("text has %d characters, more than %d", n, mostText))
	}
	if raw := form.Get("blocks"); raw != "" {
		var list []any
		if err := json.Unmarshal([]byte(raw), &list); err != nil {
			return fail("invalid_blocks_format", err.Error())
		}
		if wrong := CheckBlocks([]byte(raw)); len(wrong) > 0 {
			return fail("invalid_blocks", wrong...)
		}
		if n := blockText(list); n > maxBlockText {
			return fail("msg_blocks_too_long", fmt.Sprintf("blocks have %d characters, more than %d", n, maxBlockText))
		}
		if len(list) > 0 {
			w.blocks = json.RawMessage(raw)
		}
	}
	if strings.TrimSpace(w.text) == "" && w.blocks == nil {
		return fail("no_text")
	}
	if raw := form.Get("metadata"); raw != "" {
		d := json.NewDecoder(strings.NewReader(raw))
		d.DisallowUnknownFields()
		var m Metadata
		if err := d.Decode(&m); err != nil {
			return fail("invalid_metadata_format", err.Error())
		}
		if m.Type == "" && len(m.Payload) == 0 {
			return w, nil
		}
		var payload map[string]any
		switch {
		case !metadataType.MatchString(m.Type):
			return fail("invalid_metadata_schema", "event_type is "+strconv.Quote(m.Type))
		case json.Unmarshal(m.Payload, &payload) != nil || payload == nil:
			return fail("invalid_metadata_schema", "event_payload is no object")
		case len(raw) > maxMetadata:
			return fail("metadata_too_large")
		}
		w.metadata = &m
	}
	return w, nil
}

var metadataType = regexp.MustCompile(`^[a-zA-Z0-9_]{1,255}$`)

func (s *Server) postMessage(form url.Values) answer {
	c, refused := s.in(form)
	if refused != nil {
		return *refused
	}
	w, refused := s.written(form, maxText)
	if refused != nil {
		return *refused
	}
	thread := form.Get("thread_ts")
	if thread != "" {
		parent := c.byTS[thread]
		if parent == nil {
			return refuse("thread_not_found", thread)
		}
		if parent.ThreadTS != "" {
			thread = parent.ThreadTS
		}
	}
	m := &Message{TS: s.stamp(), ThreadTS: thread, User: s.BotUser, BotID: s.Bot, Text: w.text, Blocks: w.blocks,
		Metadata: w.metadata}
	c.add(m)
	s.change(Change{Kind: "post", Message: m.clone()})
	s.echo(c, m, "")
	return jsonAnswer(map[string]any{"ok": true, "channel": c.id, "ts": m.TS, "message": s.object(c, m, true)})
}

func (s *Server) postEphemeral(form url.Values) answer {
	c, refused := s.in(form)
	if refused != nil {
		return *refused
	}
	w, refused := s.written(form, maxText)
	if refused != nil {
		return *refused
	}
	if _, ok := s.state.users[form.Get("user")]; !ok {
		return refuse("user_not_in_channel")
	}
	m := Message{Channel: c.id, TS: s.stamp(), ThreadTS: form.Get("thread_ts"), User: s.BotUser, BotID: s.Bot,
		Text: w.text, Blocks: w.blocks}
	s.change(Change{Kind: "ephemeral", Message: m, User: form.Get("user")})
	return jsonAnswer(map[string]any{"ok": true, "message_ts": m.TS})
}

func (s *Server) update(form url.Values) answer {
	c, refused := s.in(form)
	if refused != nil {
		return *refused
	}
	m := c.byTS[form.Get("ts")]
	switch {
	case m == nil:
		return refuse("message_not_found")
	case m.BotID != s.Bot:
		return refuse("cant_update_message")
	}
	w, refused := s.written(form, maxUpdateText)
	if refused != nil {
		return *refused
	}
	m.Edits = append(m.Edits, Edit{At: s.Now(), Text: m.Text, Blocks: m.Blocks})
	m.Text = w.text
	if form.Has("blocks") {
		m.Blocks = w.blocks
	}
	if w.metadata != nil {
		m.Metadata = w.metadata
	}
	s.change(Change{Kind: "edit", Message: m.clone()})
	s.echo(c, m, "message_changed")
	return jsonAnswer(map[string]any{"ok": true, "channel": c.id, "ts": m.TS, "text": m.Text,
		"message": s.object(c, m, true)})
}

var reactionName = regexp.MustCompile(`^[a-z0-9_+'-]{1,100}(::skin-tone-[2-6])?$`)

func (s *Server) react(form url.Values, add bool) answer {
	c, refused := s.in(form)
	if refused != nil {
		return *refused
	}
	name := form.Get("name")
	m := c.byTS[form.Get("timestamp")]
	switch {
	case !reactionName.MatchString(name):
		return refuse("invalid_name", strconv.Quote(name))
	case m == nil:
		return refuse("message_not_found")
	case add == slices.Contains(m.Reactions[name], s.BotUser):
		if add {
			return refuse("already_reacted")
		}
		return refuse("no_reaction")
	}
	kind := "reaction"
	if add {
		if m.Reactions == nil {
			m.Reactions = map[string][]string{}
		}
		m.Reactions[name] = append(m.Reactions[name], s.BotUser)
	} else {
		kind = "unreaction"
		m.Reactions[name] = slices.DeleteFunc(m.Reactions[name], func(u string) bool { return u == s.BotUser })
		if len(m.Reactions[name]) == 0 {
			delete(m.Reactions, name)
		}
	}
	s.change(Change{Kind: kind, Message: m.clone(), User: s.BotUser, Name: name})
	return jsonAnswer(map[string]any{"ok": true})
}

// file sends a shared file if the request has the token. Otherwise it redirects to the sign-in page, as Slack does.
func (s *Server) file(r *http.Request, token string) answer {
	id, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/files/"), "/")
	s.mu.Lock()
	f, ok := s.state.files[id]
	s.mu.Unlock()
	switch {
	case !ok:
		return answer{status: http.StatusNotFound, kind: "text/html", body: []byte("<html>not found</html>")}
	case token != s.Token || r.URL.Query().Has("token"):
		return answer{kind: "text/html; charset=utf-8",
			body: []byte("<!DOCTYPE html><html><title>Sign in | Slack</title></html>")}
	}
	return answer{kind: f.MIME, body: f.Data}
}

// responseURL is the address at which an app may answer a command or an interaction, five times within half an hour.
type responseURL struct {
	channel, user, message string
	made                   time.Time
	used                   int
}

// ResponseURL creates an address for a person in a channel, as for a button or a command.
func (s *Server) ResponseURL(channel, user string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newResponseURL(channel, user, "")
}

// newResponseURL creates an address. s.mu is held.
func (s *Server) newResponseURL(channel, user, message string) string {
	path := fmt.Sprintf("/response/%s/%d", s.Team, len(s.state.urls)+1)
	s.state.urls[path] = &responseURL{channel: channel, user: user, message: message, made: s.Now()}
	return s.URL() + path
}

func (s *Server) response(r *http.Request, body []byte) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.state.urls[r.URL.Path]
	fail := func(status int, text string) answer {
		return answer{status: status, kind: "text/plain", body: []byte(text)}
	}
	switch {
	case u == nil:
		return fail(http.StatusNotFound, "no_such_url")
	case u.used >= 5:
		return fail(http.StatusNotFound, "used_url")
	case s.Now().Sub(u.made) > 30*time.Minute:
		return fail(http.StatusNotFound, "expired_url")
	case r.Method != http.MethodPost:
		return fail(http.StatusMethodNotAllowed, "method_not_allowed")
	}
	var said struct {
		Text     string          `json:"text"`
		Type     string          `json:"response_type"`
		Blocks   json.RawMessage `json:"blocks"`
		ThreadTS string          `json:"thread_ts"`
	}
	if json.Unmarshal(body, &said) != nil {
		a := fail(http.StatusBadRequest, "invalid_payload")
		a.complaint = "invalid_payload"
		return a
	}
	if strings.TrimSpace(said.Text) == "" && len(said.Blocks) == 0 {
		a := fail(http.StatusBadRequest, "no_text")
		a.complaint = "no_text"
		return a
	}
	u.used++
	if said.Type != "in_channel" {
		said.Type = "ephemeral"
	}
	s.state.responses = append(s.state.responses, Response{URL: s.URL() + r.URL.Path, Channel: u.channel, User: u.user,
		Body: bytes.Clone(body), Text: said.Text, Type: said.Type})
	m := Message{Channel: u.channel, TS: s.stamp(), ThreadTS: said.ThreadTS, User: s.BotUser, BotID: s.Bot,
		Text: said.Text, Blocks: said.Blocks}
	s.change(Change{Kind: "response", Message: m, User: u.user})
	return answer{kind: "text/plain", body: []byte("ok")}
}
