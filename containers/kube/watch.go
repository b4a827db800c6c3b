package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// Types of [Change].
const (
	Added    = "ADDED"
	Modified = "MODIFIED"
	Deleted  = "DELETED"
	Bookmark = "BOOKMARK" // the object has nothing but its resourceVersion
)

// Change is an object that changed.
type Change struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// ErrExpired means that the version from which a watch should begin is too old. The caller lists the objects again.
var ErrExpired = errors.New("the version is too old")

// maxChange bounds one change, in bytes. etcd keeps objects of 1.5 MB at most.
const maxChange = 8 << 20

// Watch calls each with the changes of objects, in their order, until the server ends the answer, each returns an
// error, or ctx is done. Servers end answers after some minutes, and then Watch returns nil. query has resourceVersion,
// after which the changes begin, and selectors. Returns [ErrExpired] if the server no longer has the changes after that
// version.
func (c *Client) Watch(ctx context.Context, path string, query url.Values, each func(Change) error) error {
	q := url.Values{}
	for k, v := range query {
		q[k] = v
	}
	q.Set("watch", "true")
	q.Set("allowWatchBookmarks", "true")
	r, err := c.request(ctx, http.MethodGet, path, q, nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxFile))
		if err = statusError(resp, text); IsCode(err, http.StatusGone) {
			err = fmt.Errorf("%w: %w", ErrExpired, err)
		}
		return err
	}
	body := &bounded{r: resp.Body}
	d := json.NewDecoder(body)
	for {
		body.left = maxChange
		var change Change
		if err := d.Decode(&change); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if change.Type == "ERROR" {
			var s status
			_ = json.Unmarshal(change.Object, &s)
			err := &StatusError{Code: s.Code, Reason: s.Reason, Message: s.Message}
			if s.Code == http.StatusGone {
				return fmt.Errorf("%w: %w", ErrExpired, err)
			}
			return err
		}
		if err := each(change); err != nil {
			return err
		}
	}
}

// bounded fails after left bytes.
type bounded struct {
	r    io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("a change has more than %d bytes", maxChange)
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
