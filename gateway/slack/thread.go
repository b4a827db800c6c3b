package slack

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/internal/text"
)

// Thread is a normalised conversation with all its messages, oldest first.
type Thread struct {
	Team    string `json:"team"`
	Channel string `json:"channel"`
	TS      string `json:"ts"`
	// Parent is the first message. Its User is the thread's starter.
	Parent  Post   `json:"parent"`
	Replies []Post `json:"replies"`
	// Omitted is the number of messages between Parent and Replies that are left out. Only the newest 999 are kept.
	Omitted int `json:"omitted,omitempty"`
}

// Post is one message of a thread.
type Post struct {
	TS    string `json:"ts"`
	User  string `json:"user,omitempty"`
	Name  string `json:"name,omitempty"` // display name, or the id if it cannot be resolved
	Bot   bool   `json:"bot,omitempty"`
	Own   bool   `json:"own,omitempty"`  // posted by ramus
	Mark  *Mark  `json:"mark,omitempty"` // of a post of ramus
	Text  string `json:"text"`           // entities decoded, and users' names in place of ids
	Files []File `json:"files,omitempty"`
}

// File is a shared file or image.
type File struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	MIME     string `json:"mime,omitempty"`
	Size     int64  `json:"size,omitempty"`
	Download string `json:"-"` // url_private_download; it needs the token, so it is never passed on
}

const (
	pageSize   = 200 // the maximum that Slack recommends
	maxPages   = 100 // of a thread
	maxReplies = 999
	maxFiles   = 20 // of a message; Slack's clients share at most 10
	maxShared  = 20 // attachments of a message that are read
)

// Thread reads all pages of a thread (conversations.replies) and resolves the names of its authors.
func (c *Client) Thread(ctx context.Context, team, channel, ts string) (Thread, error) {
	me, err := c.Me(ctx)
	if err != nil {
		return Thread{}, fmt.Errorf("cannot read a thread in Slack: %w", err)
	}
	t := Thread{Team: team, Channel: channel, TS: ts}
	var parent *threadMessage
	var replies []*threadMessage
	err = c.pages(ctx, channel, ts, func(m *threadMessage) bool {
		m.gather()
		// Slack repeats the parent on pages after the first.
		if m.TS == ts {
			parent = m
			return true
		}
		if replies = append(replies, m); len(replies) >= 2*maxReplies {
			replies = newest(replies, &t.Omitted)
		}
		return true
	})
	if err != nil {
		return Thread{}, fmt.Errorf("cannot read thread %s of channel %s in Slack: %w", ts, channel, err)
	}
	if parent == nil {
		return Thread{}, fmt.Errorf("cannot read thread %s of channel %s in Slack: %w", ts, channel,
			&RefusedError{Method: "conversations.replies", Code: "thread_not_found", Detail: "the answer lacks the parent"})
	}
	replies = newest(replies, &t.Omitted)
	names, err := c.resolve(ctx, parent, replies)
	if err != nil {
		return Thread{}, fmt.Errorf("cannot read thread %s of channel %s in Slack: %w", ts, channel, err)
	}
	t.Parent = parent.post(me, names)
	t.Replies = make([]Post, 0, len(replies))
	for _, m := range replies {
		t.Replies = append(t.Replies, m.post(me, names))
	}
	return t, nil
}

// newest sorts messages, removes duplicates, and keeps the latest. It counts the others.
func newest(all []*threadMessage, omitted *int) []*threadMessage {
	slices.SortStableFunc(all, func(a, b *threadMessage) int { return strings.Compare(a.TS, b.TS) })
	all = slices.CompactFunc(all, func(a, b *threadMessage) bool { return a.TS == b.TS })
	if n := len(all) - maxReplies; n > 0 {
		*omitted += n
		all = slices.Clone(all[n:])
	}
	return all
}

// threadMessage has the fields of Slack's message that are read. Its other fields, which grow with every feature of Slack,
// cannot make it unreadable.
type threadMessage struct {
	TS         string `json:"ts"`
	User       string `json:"user"`
	Username   string `json:"username"`
	BotID      string `json:"bot_id"`
	BotProfile struct {
		Name string `json:"name"`
	} `json:"bot_profile"`
	Text        string          `json:"text"`
	Blocks      json.RawMessage `json:"blocks"`
	Attachments []struct {
		Pretext  string `json:"pretext"`
		Title    string `json:"title"`
		Text     string `json:"text"`
		Fallback string `json:"fallback"`

		Blocks json.RawMessage `json:"blocks"`
	} `json:"attachments"`
	Files []struct {
		ID       string `json:"id"`
		Name     string `json:"name"`
		Title    string `json:"title"`
		MIME     string `json:"mimetype"`
		Size     int64  `json:"size"`
		Mode     string `json:"mode"`
		Download string `json:"url_private_download"`
		Private  string `json:"url_private"`
	} `json:"files"`
	Metadata struct {
		Type    string          `json:"event_type"`
		Payload json.RawMessage `json:"event_payload"`
	} `json:"metadata"`
}

// isOwn reports whether ramus posted the message.
func (m *threadMessage) isOwn(me Identity) bool {
	return m.BotID != "" && m.BotID == me.Bot || m.User != "" && m.User == me.User
}

// mark returns the mark of a message of ramus. The same metadata of others is ignored.
func (m *threadMessage) mark(me Identity) *Mark {
	if m.Metadata.Type != markType || !m.isOwn(me) {
		return nil
	}
	var mark Mark
	if err := json.Unmarshal(m.Metadata.Payload, &mark); err != nil {
		return nil
	}
	return &mark
}

// gather collects all texts of the message into Text, in Slack's markup. Forwarded messages, and most messages of bots,
// have their text in attachments or blocks.
func (m *threadMessage) gather() {
	m.Text = cmp.Or(m.Text, blocksText(m.Blocks))
	for _, a := range m.Attachments[:min(len(m.Attachments), maxShared)] {
		parts := []string{a.Pretext, a.Title, a.Text}
		if a.Pretext+a.Title+a.Text == "" {
			parts = []string{cmp.Or(blocksText(a.Blocks), a.Fallback)}
		}
		for _, part := range parts {
			if part != "" && !strings.Contains(m.Text, part) {
				m.Text = strings.TrimSpace(m.Text + "\n" + part)
			}
		}
	}
	m.Blocks, m.Attachments = nil, nil
}

func (m *threadMessage) post(me Identity, names map[string]string) Post {
	p := Post{
		TS:   m.TS,
		User: m.User,
		Name: cmp.Or(names[m.User], m.Username, m.BotProfile.Name, m.User, m.BotID),
		Bot:  m.BotID != "",
		Own:  m.isOwn(me),
		Mark: m.mark(me),
	}
	p.Text = strings.TrimSpace(plain(m.Text, func(user, label string) (string, bool) {
		return "@" + cmp.Or(names[user], label, user), false
	}))
	for _, f := range m.Files {
		// The file was deleted, or is too old to be shown in a free workspace.
		if f.Mode == "tombstone" || f.Mode == "hidden_by_limit" || len(p.Files) == maxFiles {
			continue
		}
		p.Files = append(p.Files, File{ID: f.ID, Name: cmp.Or(f.Name, f.Title, f.ID), MIME: f.MIME, Size: f.Size,
			Download: cmp.Or(f.Download, f.Private)})
	}
	return p
}

// pages reads the messages of a thread, oldest first, until each returns false. If threadTS is "", it reads those of a
// channel, newest first.
func (c *Client) pages(ctx context.Context, channel, threadTS string, each func(*threadMessage) bool) error {
	c.setup()
	form := url.Values{"channel": {channel}, "limit": {strconv.Itoa(pageSize)}, "include_all_metadata": {"true"}}
	method, most := "conversations.replies", maxPages
	if threadTS != "" {
		form.Set("ts", threadTS)
	} else {
		method, most = "conversations.history", 5
	}
	for range most {
		var page struct {
			Messages []json.RawMessage `json:"messages"`
			Metadata struct {
				Cursor string `json:"next_cursor"`
			} `json:"response_metadata"`
		}
		err := c.call(ctx, method, func(ctx context.Context) error {
			return c.form(ctx, method, form, &page)
		}, nil)
		if err != nil {
			return err
		}
		for _, raw := range page.Messages {
			m := new(threadMessage)
			if err := json.Unmarshal(raw, m); err != nil || !isStamp(m.TS) {
				// One message in an unknown form must not hide the rest of the thread.
				c.Log.LogAttrs(ctx, slog.LevelWarn, "a message of Slack's cannot be read",
					slog.String("channel", channel), slog.String("ts", text.Clip(m.TS, clipped)), slog.Any("err", err))
				if !isStamp(m.TS) {
					continue
				}
			}
			if !each(m) {
				return nil
			}
		}
		if page.Metadata.Cursor == "" {
			return nil
		}
		form.Set("cursor", page.Metadata.Cursor)
	}
	if threadTS != "" {
		c.Log.LogAttrs(ctx, slog.LevelWarn, "a thread in Slack is too long to be read to its end",
			slog.String("channel", channel), slog.String("thread", threadTS))
	}
	return nil
}

// form calls a method without slack-go, which reads all fields of a message, so that one unreadable message makes a
// page unreadable.
func (c *Client) form(ctx context.Context, method string, form url.Values, answer any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+method, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "Bearer "+c.Token)
	resp, err := (*wire)(c).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		return fmt.Errorf("%s: cannot read the answer: %w", method, err)
	}
	return nil
}
