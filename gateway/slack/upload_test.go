package slack_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/standin/slacktest"
)

// twoPictures is a share of two files in a thread.
func twoPictures(thread string) slack.Share {
	return slack.Share{Channel: "C01", ThreadTS: thread, Text: "*Browser*", Files: []slack.Upload{
		{Name: "a-1__run.png", Title: "a at desktop", Alt: "the page a",
			Content: bytes.Repeat([]byte("\x89PNG\r\n\x1a\n"), 1000)},
		{Name: "a-2__run.png", Title: "a at mobile", Content: []byte("\x89PNG\r\n\x1a\nsmall")},
	}}
}

// shared are the messages of a thread that have files of the app's.
func shared(s *slacktest.Server, thread string) (all []slacktest.Message) {
	for _, m := range s.Own("C01", thread) {
		if len(m.Files) > 0 {
			all = append(all, m)
		}
	}
	return all
}

// TestShare shows files once, also after a failure between their announcement and the message.
func TestShare(t *testing.T) {
	const get, send, complete, info = "files.getUploadURLExternal", "/upload/", "files.completeUploadExternal", "files.info"
	for name, test := range map[string]struct {
		faults []slacktest.Fault
		refuse string // the code that is expected
		shown  int
	}{
		"well":                         {shown: 1},
		"announcing is rate-limited":   {faults: []slacktest.Fault{{Method: get, RetryAfter: 30e9}}, shown: 1},
		"announcing is lost":           {faults: []slacktest.Fault{{Method: get, Lose: true}}, shown: 1},
		"bytes are cut off":            {faults: []slacktest.Fault{{Method: send, Cut: true}}, shown: 1},
		"bytes arrive, the answer not": {faults: []slacktest.Fault{{Method: send, Lose: true, Times: 2}}, shown: 1},
		"the store is down":            {faults: []slacktest.Fault{{Method: send, Status: 503, Times: 3}}, shown: 1},
		"completing is lost":           {faults: []slacktest.Fault{{Method: complete, Lose: true}}, shown: 1},
		"completing is cut off":        {faults: []slacktest.Fault{{Method: complete, Cut: true}}, shown: 1},
		"completing fails for a while": {faults: []slacktest.Fault{{Method: complete, Error: "file_update_failed",
			Times: 2}}, shown: 1},
		"completing and looking is lost": {faults: []slacktest.Fault{{Method: complete, Lose: true},
			{Method: info, Cut: true}}, shown: 1},
		"there is no room": {faults: []slacktest.Fault{{Method: complete,
			Error: "storage_limit_reached"}}, refuse: "storage_limit_reached"},
	} {
		t.Run(name, func(t *testing.T) {
			s, c, _ := start(t)
			thread := s.Write("U01", "C01", "", "look")
			s.Fail(test.faults...)
			err := c.Share(deadline(t), twoPictures(thread), false)
			var refused *slack.RefusedError
			if errors.As(err, &refused) != (test.refuse != "") || refused != nil && refused.Code != test.refuse ||
				refused == nil && err != nil {
				t.Fatal(err)
			}
			if all := shared(s, thread); len(all) != test.shown {
				t.Fatalf("%d messages with files", len(all))
			}
			if test.shown == 0 {
				return
			}
			m := shared(s, thread)[0]
			want := twoPictures(thread)
			if m.Text != want.Text || len(m.Files) != 2 {
				t.Fatalf("%+v", m)
			}
			for i, f := range m.Files {
				if f.Name != want.Files[i].Name || f.Title != want.Files[i].Title || f.Alt != want.Files[i].Alt ||
					!bytes.Equal(f.Data, want.Files[i].Content) || f.MIME != "image/png" {
					t.Errorf("file %d: %q %q %q %s, %d bytes", i, f.Name, f.Title, f.Alt, f.MIME, len(f.Data))
				}
			}
		})
	}
}

// TestShareLooks finds what an earlier process has shared, and takes nobody else's files for it.
func TestShareLooks(t *testing.T) {
	s, c, _ := start(t)
	ctx := deadline(t)
	thread := s.Write("U01", "C01", "", "look")
	want := twoPictures(thread)
	s.Write("U02", "C01", thread, "mine", slacktest.File{Name: want.Files[0].Name, MIME: "image/png", Data: []byte("x")})
	for range 2 {
		if err := c.Share(ctx, want, true); err != nil {
			t.Fatal(err)
		}
	}
	other := want
	other.Files = []slack.Upload{{Name: "b__run2.png", Content: []byte("b")}}
	if err := c.Share(ctx, other, true); err != nil {
		t.Fatal(err)
	}
	if all := shared(s, thread); len(all) != 2 || all[1].Files[0].Name != "b__run2.png" {
		t.Errorf("%+v", all)
	}
}

// TestShareIsRefused tells what cannot be shared from what can be later.
func TestShareIsRefused(t *testing.T) {
	s, c, _ := start(t)
	ctx := deadline(t)
	thread := s.Write("U01", "C01", "", "look")
	refused := func(code, needed string) {
		t.Helper()
		var r *slack.RefusedError
		if err := c.Share(ctx, twoPictures(thread), true); !errors.As(err, &r) || r.Code != code || r.Needed != needed {
			t.Errorf("%v", err)
		}
	}
	s.Lack("files:write")
	refused("missing_scope", "files:write")
	if n := s.Count("/upload/"); n != 0 {
		t.Errorf("%d uploads without the scope", n)
	}
	s.Lack()
	s.DropShares(1)
	refused("not_shared", "")
	if all := shared(s, thread); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	s.Lack("files:read") // then Slack's word is all there is
	if err := c.Share(ctx, twoPictures(thread), true); err != nil || len(shared(s, thread)) != 1 {
		t.Error(err)
	}
}

// TestShareHasNoSecrets takes secrets out of all that people read.
func TestShareHasNoSecrets(t *testing.T) {
	s, c, _ := start(t)
	c.Secrets, _ = redact.New(map[string]string{"KEY": "hunter2hunter2"})
	thread := s.Write("U01", "C01", "", "look")
	share := twoPictures(thread)
	share.Text, share.Files[0].Title, share.Files[0].Alt = "is hunter2hunter2", "was hunter2hunter2", "hunter2hunter2"
	if err := c.Share(deadline(t), share, false); err != nil {
		t.Fatal(err)
	}
	for _, q := range s.Requests() {
		if bytes.Contains(q.Body, []byte("hunter2")) {
			t.Errorf("%s has a secret", q.Method)
		}
		if q.Method == "/upload/" && q.Header.Get("Authorization") != "" {
			t.Error("the token went to where files are sent")
		}
	}
}
