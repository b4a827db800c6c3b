package slack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// Share has files that are shown in one message of a thread. A message with files has no metadata, so it is found again
// by the files' names. These must belong to this message only.
type Share struct {
	Channel  string
	ThreadTS string
	Text     string // mrkdwn above the files
	Files    []Upload
}

// Upload is one file of a Share.
type Upload struct {
	Name    string // for saving; letters, digits, points, dashes and underscores
	Title   string
	Alt     string // description of a picture, for people who cannot see it
	Content []byte
}

// The methods of files, version 2. They provide a URL, take the bytes there, and make the file visible at the end.
const (
	getUploadURL   = "files.getUploadURLExternal"
	sendUpload     = "upload"
	completeUpload = "files.completeUploadExternal"
	filesInfo      = "files.info"
)

// maxAlt bounds the description of a picture. Slack accepts 1,000 characters.
const maxAlt = 1000

// Share uploads files and shows them in a thread, all in one message, once. Nothing is visible until the last call. If
// the outcome of that call is unknown, Share asks Slack where the files are before the next attempt. With look it also
// searches the thread for them before the first attempt.
//
// [ErrRefused] means that the files are not there and never will be. The app lacks the scope files:write, the workspace
// has no space, or Slack accepted them and showed them nowhere.
func (c *Client) Share(ctx context.Context, s Share, look bool) error {
	c.setup()
	err := c.share(ctx, s, look)
	if err != nil {
		return fmt.Errorf("cannot share files in Slack: %w", err)
	}
	return nil
}

func (c *Client) share(ctx context.Context, s Share, look bool) error {
	if len(s.Files) == 0 {
		return errors.New("there are none")
	}
	if look {
		if found, err := c.hasFiles(ctx, s); found || err != nil {
			return err
		}
	}
	// Messages of ramus for one channel are posted one after another, including these.
	leave, err := c.lanes.Enter(ctx, postMessage+" "+s.Channel, 1)
	if err != nil {
		return err
	}
	defer leave(0)

	type title struct {
		ID    string `json:"id"`
		Title string `json:"title"`
	}
	var titles []title
	for _, f := range s.Files {
		id, err := c.upload(ctx, f)
		if err != nil {
			return err
		}
		titles = append(titles, title{id, c.Secrets.String(f.Title)})
	}
	list, err := json.Marshal(titles)
	if err != nil {
		return err
	}
	form := url.Values{"files": {string(list)}, "channel_id": {s.Channel}, "initial_comment": {c.Secrets.String(s.Text)}}
	if s.ThreadTS != "" {
		form.Set("thread_ts", s.ThreadTS)
	}
	shown := func() (bool, error) { return c.isShared(ctx, titles[0].ID, s.Channel) }
	err = c.call(ctx, completeUpload, func(ctx context.Context) error {
		var answer struct{}
		return c.form(ctx, completeUpload, form, &answer)
	}, shown)
	var refused *RefusedError
	if errors.As(err, &refused) {
		// An earlier attempt may have succeeded, because Slack refuses files that are complete.
		if was, lookErr := shown(); was && lookErr == nil {
			return nil
		}
	}
	if err != nil {
		return err
	}
	return c.awaitShared(ctx, titles[0].ID, s.Channel)
}

// upload sends a file's bytes to Slack, which keeps them until they are completed. A URL serves one attempt. After a
// failure another URL is requested, and Slack drops the bytes at the first one.
func (c *Client) upload(ctx context.Context, f Upload) (id string, err error) {
	form := url.Values{"filename": {f.Name}, "length": {strconv.Itoa(len(f.Content))}}
	if alt := []rune(c.Secrets.String(f.Alt)); len(alt) > 0 {
		form.Set("alt_txt", string(alt[:min(len(alt), maxAlt)]))
	}
	for attempts := 1; ; attempts++ {
		var at struct {
			URL string `json:"upload_url"`
			ID  string `json:"file_id"`
		}
		err = c.call(ctx, getUploadURL, func(ctx context.Context) error { return c.form(ctx, getUploadURL, form, &at) }, nil)
		if err != nil {
			return "", err
		}
		u, err := url.Parse(at.URL)
		if err != nil || !c.trusted(u) {
			return "", &RefusedError{Method: getUploadURL, Code: "foreign_url",
				Detail: "the address for the bytes is not Slack's"}
		}
		if err := check(idOf("file_id", at.ID)); err != nil {
			return "", &RefusedError{Method: getUploadURL, Code: "invalid_id", Detail: err.Error()}
		}
		err = c.attempt(ctx, sendUpload, func(ctx context.Context) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, at.URL, bytes.NewReader(f.Content))
			if err != nil {
				return err
			}
			req.Header.Set("Content-Type", "application/octet-stream")
			_, err = c.fetch(req, sendUpload, 1<<16, func(http.Header) error { return nil })
			return err
		})
		var pass *temporary
		if err == nil || !errors.As(err, &pass) {
			return at.ID, err
		}
		if ctx.Err() != nil {
			return "", fmt.Errorf("%s: %w (the last attempt: %v)", sendUpload, context.Cause(ctx), err)
		}
		pause := c.pause(attempts, pass.after)
		c.Log.WarnContext(ctx, "Slack did not take a file; waiting", "attempt", attempts, "pause", pause, "err", err)
		if err := c.Sleep(ctx, pause); err != nil {
			return "", fmt.Errorf("%s: %w (the last attempt: %v)", sendUpload, err, pass)
		}
	}
}

// isShared reports whether a file of ramus is shown in a channel.
func (c *Client) isShared(ctx context.Context, id, channel string) (bool, error) {
	var answer struct {
		File struct {
			Shares map[string]map[string]json.RawMessage `json:"shares"` // by public or private, then by channel
		} `json:"file"`
	}
	err := c.call(ctx, filesInfo, func(ctx context.Context) error {
		return c.form(ctx, filesInfo, url.Values{"file": {id}}, &answer)
	}, nil)
	if err != nil {
		return false, err
	}
	for _, channels := range answer.File.Shares {
		if _, ok := channels[channel]; ok {
			return true, nil
		}
	}
	return false, nil
}

// awaitShared waits until files are visible. Slack shows them some moments after its confirmation, and sometimes never.
func (c *Client) awaitShared(ctx context.Context, id, channel string) error {
	for pause := time.Second; ; pause *= 2 {
		shown, err := c.isShared(ctx, id, channel)
		var refused *RefusedError
		switch {
		case shown:
			return nil
		case errors.As(err, &refused):
			return nil // without files:read only Slack's confirmation is known
		case err != nil:
			return err
		case pause > 16*time.Second:
			return &RefusedError{Method: completeUpload, Code: "not_shared",
				Detail: "Slack took the files and shows them nowhere"}
		}
		if err := c.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// hasFiles reports whether a message of ramus in the thread has one of the files, by name.
func (c *Client) hasFiles(ctx context.Context, s Share) (found bool, err error) {
	me, err := c.Me(ctx)
	if err != nil {
		return false, err
	}
	err = c.pages(ctx, s.Channel, s.ThreadTS, func(m *threadMessage) bool {
		for _, f := range m.Files {
			// Files of others with the same names do not count.
			found = found || m.isOwn(me) && slices.ContainsFunc(s.Files, func(u Upload) bool { return u.Name == f.Name })
		}
		return !found
	})
	var refused *RefusedError
	if errors.As(err, &refused) && refused.Code == "thread_not_found" {
		return false, nil
	}
	return found, err
}
