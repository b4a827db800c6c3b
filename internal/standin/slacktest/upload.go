package slacktest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// upload is an announced file.
type upload struct {
	file   File
	length int
	sent   bool // the URL was used, successfully or not
	whole  bool // all bytes were received
	done   bool
}

// uploadPath is the prefix of upload addresses, and the method of uploads in a [Fault].
const uploadPath = "/upload/"

// Slack's bounds on uploads.
const (
	maxTitle       = 255
	maxAlt         = 1000
	maxTogether    = 10 // files of one message that the clients show
	maxCommentText = 4000
)

// newFileID returns an unused id, because both maps only grow. s.mu is held.
func (s *Server) newFileID() string {
	return "F" + strconv.Itoa(len(s.state.files)+len(s.state.uploads)+1)
}

// DropShares makes the next n completed uploads return ok without a message that shows them, which happens at Slack.
func (s *Server) DropShares(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.dropShares = n
}

// getUploadURL announces a file. s.mu is held.
func (s *Server) getUploadURL(form url.Values) answer {
	name := form.Get("filename")
	length, err := strconv.Atoi(form.Get("length"))
	switch {
	case name == "" || err != nil || length <= 0:
		return refuse("invalid_arguments", fmt.Sprintf("filename %q, length %q", name, form.Get("length")))
	case utf8.RuneCountInString(form.Get("alt_txt")) > maxAlt:
		return refuse("invalid_arguments", "alt_txt is too long")
	case length > maxUpload:
		return refuse("file_upload_size_restricted")
	}
	u := &upload{file: File{ID: s.newFileID(), Name: name, Alt: form.Get("alt_txt")}, length: length}
	s.state.uploads[u.file.ID] = u
	return jsonAnswer(map[string]any{"ok": true, "upload_url": s.URL() + uploadPath + "v1/" + u.file.ID,
		"file_id": u.file.ID})
}

// takeUpload receives a file's bytes. The address needs no token and is valid for one request.
func (s *Server) takeUpload(r *http.Request, body []byte) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	fail := func(status int, text string) answer {
		return answer{status: status, kind: "text/plain", body: []byte(text), complaint: text}
	}
	u := s.state.uploads[strings.TrimPrefix(r.URL.Path, uploadPath+"v1/")]
	switch {
	case u == nil:
		return fail(http.StatusNotFound, "there is no such upload")
	case r.Method != http.MethodPost:
		return fail(http.StatusMethodNotAllowed, "uploads are posted")
	case r.Header.Get("Authorization") != "":
		return fail(http.StatusBadRequest, "the token is not for uploads")
	case u.sent:
		return fail(http.StatusGone, "the address was used before")
	}
	u.sent = true
	if len(body) != u.length {
		return fail(http.StatusBadRequest, fmt.Sprintf("%d bytes were announced, %d sent", u.length, len(body)))
	}
	u.file.Data, u.whole = bytes.Clone(body), true
	u.file.MIME = http.DetectContentType(body)
	return answer{kind: "text/plain", body: fmt.Appendf(nil, "OK - %d", len(body))}
}

// completeUpload shows files in one message. s.mu is held.
func (s *Server) completeUpload(form url.Values) answer {
	var list []struct{ ID, Title string }
	if err := json.Unmarshal([]byte(form.Get("files")), &list); err != nil || len(list) == 0 || len(list) > maxTogether {
		return refuse("invalid_arguments", "files: "+form.Get("files"))
	}
	comment := form.Get("initial_comment")
	if utf8.RuneCountInString(comment) > maxCommentText {
		return refuse("msg_too_long", "initial_comment")
	}
	var files []*upload
	for _, f := range list {
		u := s.state.uploads[f.ID]
		if u == nil || !u.whole || u.done || slices.Contains(files, u) {
			return refuse("file_not_found")
		}
		if utf8.RuneCountInString(f.Title) > maxTitle {
			return refuse("invalid_arguments", "title")
		}
		files = append(files, u)
	}
	c := s.state.channels[form.Get("channel_id")]
	thread := form.Get("thread_ts")
	switch {
	case c == nil:
		return refuse("channel_not_found")
	case !c.member:
		return refuse("not_in_channel")
	case thread != "" && (c.byTS[thread] == nil || c.byTS[thread].ThreadTS != ""):
		return refuse("thread_not_found", thread) // Slack requires the parent's
	}
	m := &Message{TS: s.stamp(), ThreadTS: thread, User: s.BotUser, BotID: s.Bot, Text: comment}
	drop := s.state.dropShares > 0
	if drop {
		s.state.dropShares--
	}
	told := []any{}
	for i, u := range files {
		u.done, u.file.Title = true, list[i].Title
		if !drop {
			u.file.shares = map[string]share{c.id: {m.TS, thread}}
		}
		s.state.files[u.file.ID] = u.file
		m.Files = append(m.Files, u.file)
		told = append(told, map[string]any{"id": u.file.ID, "title": u.file.Title})
	}
	if !drop {
		c.add(m)
		s.change(Change{Kind: "post", Message: m.clone()})
		s.echo(c, m, "")
	}
	return jsonAnswer(map[string]any{"ok": true, "files": told})
}

// filesInfo returns a file. s.mu is held.
func (s *Server) filesInfo(form url.Values) answer {
	f, ok := s.state.files[form.Get("file")]
	if !ok {
		if u := s.state.uploads[form.Get("file")]; u != nil {
			f, ok = u.file, true // announced, but not shown
		}
	}
	if !ok {
		return refuse("file_not_found")
	}
	return jsonAnswer(map[string]any{"ok": true, "file": s.fileObject(f)})
}
