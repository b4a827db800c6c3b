package slacktest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Message is a message of a channel.
type Message struct {
	Channel   string
	TS        string
	ThreadTS  string // "" outside of threads, and on a thread's parent
	User      string
	BotID     string // of the app's own messages
	Text      string
	Blocks    json.RawMessage
	Metadata  *Metadata
	Files     []File
	Reactions map[string][]string // name → users
	Edits     []Edit              // former contents, the oldest first
}

// Edit is the content of a message before an edit.
type Edit struct {
	At     time.Time
	Text   string
	Blocks json.RawMessage
}

// Metadata is an app's metadata of a message.
type Metadata struct {
	Type    string          `json:"event_type"`
	Payload json.RawMessage `json:"event_payload"`
}

// File is a shared file of a person or of the app.
type File struct {
	ID, Name, MIME string
	Title, Alt     string // of the app's own
	Data           []byte
	shares         map[string]share // by channel
}

// share is the message that shows a file.
type share struct{ ts, thread string }

// Response is a message to a response_url.
type Response struct {
	URL     string
	Channel string
	User    string
	Body    json.RawMessage
	Text    string
	Type    string // response_type: "ephemeral", the default, or "in_channel"
}

type user struct{ ID, Name, Email string }

type channel struct {
	id, name string
	kind     string // channel, group, im
	member   bool   // the app is a member
	peer     string // the person of a direct channel
	messages []*Message
	byTS     map[string]*Message
	threads  map[string][]*Message // replies by the parent's ts
}

type state struct {
	users      map[string]user
	channels   map[string]*channel
	files      map[string]File
	uploads    map[string]*upload         // by file id
	homes      map[string]json.RawMessage // blocks of Home tabs by user
	dropShares int                        // number of completed uploads that no message will show
	lastTS     int64                      // microseconds of the last ts, so that each ts is unique
	events     int
	requests   []Request
	complaints []string
	attempts   []Attempt
	responses  []Response
	urls       map[string]*responseURL
	faults     []*Fault
	limits     map[string]int
	counted    map[string][]time.Time
	onePerSec  bool
	lastPost   map[string]time.Time
	sockets    map[*socket]bool
	tickets    map[string]bool
	waiting    map[string]chan json.RawMessage // acknowledgements by envelope_id
}

func newState() state {
	return state{
		users:    map[string]user{},
		channels: map[string]*channel{},
		files:    map[string]File{},
		uploads:  map[string]*upload{},
		homes:    map[string]json.RawMessage{},
		urls:     map[string]*responseURL{},
		limits:   map[string]int{},
		counted:  map[string][]time.Time{},
		lastPost: map[string]time.Time{},
		sockets:  map[*socket]bool{},
		tickets:  map[string]bool{},
		waiting:  map[string]chan json.RawMessage{},
	}
}

// AddUser adds a person.
func (s *Server) AddUser(id, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.users[id] = user{ID: id, Name: name}
}

// SetEmail sets the address in the profile of a user. Tokens with the scope users:read.email see it.
func (s *Server) SetEmail(id, email string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.state.users[id]
	u.Email = email
	s.state.users[id] = u
}

// AddChannel adds a channel. member is true if the app is a member.
func (s *Server) AddChannel(id, name string, member bool) {
	s.addChannel(&channel{id: id, name: name, kind: "channel", member: member})
}

// AddDirect adds a person's direct channel with the app.
func (s *Server) AddDirect(id, user string) {
	s.addChannel(&channel{id: id, kind: "im", member: true, peer: user})
}

func (s *Server) addChannel(c *channel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.byTS = map[string]*Message{}
	c.threads = map[string][]*Message{}
	s.state.channels[c.id] = c
}

// stamp returns a unique ts for the current time. s.mu is held.
func (s *Server) stamp() string {
	micro := max(s.Now().UnixMicro(), s.state.lastTS+1)
	s.state.lastTS = micro
	return fmt.Sprintf("%d.%06d", micro/1e6, micro%1e6)
}

// add adds a message to its channel. s.mu is held.
func (c *channel) add(m *Message) {
	m.Channel = c.id
	c.messages = append(c.messages, m)
	c.byTS[m.TS] = m
	if m.ThreadTS != "" {
		c.threads[m.ThreadTS] = append(c.threads[m.ThreadTS], m)
	}
}

func (m *Message) clone() Message {
	c := *m
	c.Reactions = map[string][]string{}
	for name, users := range m.Reactions {
		c.Reactions[name] = slices.Clone(users)
	}
	c.Edits = slices.Clone(m.Edits)
	c.Files = slices.Clone(m.Files)
	return c
}

// Messages returns the messages of a channel including replies, the oldest first.
func (s *Server) Messages(channel string) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Message
	if c := s.state.channels[channel]; c != nil {
		for _, m := range c.messages {
			all = append(all, m.clone())
		}
	}
	return all
}

// Thread returns a thread's parent and its replies.
func (s *Server) Thread(channel, ts string) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Message
	if c := s.state.channels[channel]; c != nil && c.byTS[ts] != nil {
		all = append(all, c.byTS[ts].clone())
		for _, m := range c.threads[ts] {
			all = append(all, m.clone())
		}
	}
	return all
}

// Own returns the app's own messages in a thread.
func (s *Server) Own(channel, ts string) []Message {
	return slices.DeleteFunc(s.Thread(channel, ts), func(m Message) bool { return m.BotID != s.Bot })
}

// Responses returns the messages to response_urls so far.
func (s *Server) Responses() []Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.state.responses)
}

// Write adds a person's message to a channel without a delivery.
func (s *Server) Write(user, channel, threadTS, text string, files ...File) (ts string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.state.channels[channel]
	if c == nil || s.state.users[user].ID == "" || threadTS != "" && c.byTS[threadTS] == nil {
		panic(fmt.Sprintf("slacktest: there is no user %q, channel %q or thread %q", user, channel, threadTS))
	}
	m := &Message{TS: s.stamp(), ThreadTS: threadTS, User: user, Text: text}
	if parent := c.byTS[threadTS]; parent != nil && parent.ThreadTS != "" {
		m.ThreadTS = parent.ThreadTS
	}
	for _, f := range files {
		if f.ID == "" {
			f.ID = s.newFileID()
		}
		s.state.files[f.ID] = f
		m.Files = append(m.Files, f)
	}
	c.add(m)
	s.change(Change{Kind: "post", Message: m.clone()})
	return m.TS
}

// WriteAs adds a message of another app's bot to a channel.
func (s *Server) WriteAs(bot, channel, threadTS, text string, metadata *Metadata) (ts string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.state.channels[channel]
	if c == nil || threadTS != "" && c.byTS[threadTS] == nil {
		panic(fmt.Sprintf("slacktest: there is no channel %q or thread %q", channel, threadTS))
	}
	m := &Message{TS: s.stamp(), ThreadTS: threadTS, User: "U" + bot, BotID: bot, Text: text, Metadata: metadata}
	c.add(m)
	s.change(Change{Kind: "post", Message: m.clone()})
	return m.TS
}

// Delete deletes a person's message, as its author can.
func (s *Server) Delete(channel, ts string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.state.channels[channel]
	if c == nil || c.byTS[ts] == nil {
		panic(fmt.Sprintf("slacktest: there is no message %s in channel %q", ts, channel))
	}
	gone := func(m *Message) bool { return m.TS == ts }
	thread := c.byTS[ts].ThreadTS
	delete(c.byTS, ts)
	c.messages = slices.DeleteFunc(c.messages, gone)
	c.threads[thread] = slices.DeleteFunc(c.threads[thread], gone)
	s.move()
}

// object returns a message in Slack's format. It has only the type of its metadata unless the request asks for all.
// s.mu is held.
func (s *Server) object(c *channel, m *Message, metadata bool) map[string]any {
	o := map[string]any{"type": "message", "user": m.User, "ts": m.TS, "team": s.Team, "text": m.Text}
	if m.BotID != "" {
		o["bot_id"] = m.BotID
		o["app_id"] = s.App
		o["bot_profile"] = map[string]any{"id": m.BotID, "app_id": s.App, "name": s.BotName, "team_id": s.Team,
			"deleted": false, "updated": 1, "icons": map[string]any{}}
		if m.BotID != s.Bot {
			o["app_id"] = "AOTHER"
			o["bot_profile"] = map[string]any{"id": m.BotID, "app_id": "AOTHER", "name": "other", "team_id": s.Team,
				"deleted": false, "updated": 1, "icons": map[string]any{}}
		}
	}
	if len(m.Blocks) > 0 {
		o["blocks"] = m.Blocks
	}
	if m.Metadata != nil {
		o["metadata"] = Metadata{Type: m.Metadata.Type, Payload: json.RawMessage("{}")}
		if metadata {
			o["metadata"] = m.Metadata
		}
	}
	if len(m.Edits) > 0 {
		o["edited"] = map[string]any{"user": m.User, "ts": fmt.Sprintf("%d.000000", m.Edits[len(m.Edits)-1].At.Unix())}
	}
	if len(m.Files) > 0 {
		var files []any
		for _, f := range m.Files {
			files = append(files, s.fileObject(f))
		}
		o["files"] = files
		o["upload"] = false
	}
	if len(m.Reactions) > 0 {
		var reactions []any
		for _, name := range slices.Sorted(maps.Keys(m.Reactions)) {
			reactions = append(reactions,
				map[string]any{"name": name, "users": m.Reactions[name], "count": len(m.Reactions[name])})
		}
		o["reactions"] = reactions
	}
	if m.ThreadTS != "" {
		o["thread_ts"] = m.ThreadTS
		if parent := c.byTS[m.ThreadTS]; parent != nil {
			o["parent_user_id"] = parent.User
		}
	} else if replies := c.threads[m.TS]; len(replies) > 0 {
		o["thread_ts"] = m.TS
		o["reply_count"] = len(replies)
		o["latest_reply"] = replies[len(replies)-1].TS
	}
	return o
}

func (s *Server) fileObject(f File) map[string]any {
	base := s.URL() + "/files/" + f.ID
	shares := map[string]any{}
	for channel, at := range f.shares {
		kind := "public"
		if s.state.channels[channel].kind != "channel" {
			kind = "private"
		}
		of, _ := shares[kind].(map[string]any)
		if of == nil {
			of = map[string]any{}
			shares[kind] = of
		}
		of[channel] = []any{map[string]any{"ts": at.ts, "thread_ts": at.thread}}
	}
	return map[string]any{
		"shares": shares,
		"id":     f.ID, "name": f.Name, "title": cmp.Or(f.Title, f.Name), "alt_txt": f.Alt, "mimetype": f.MIME,
		"size": len(f.Data), "mode": "hosted", "is_external": false,
		"url_private": base, "url_private_download": base + "/download/" + strings.ReplaceAll(f.Name, " ", "_"),
	}
}
