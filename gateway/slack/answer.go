package slack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/internal/text"
	slackgo "github.com/slack-go/slack"
)

// Ephemeral shows a text to one user. It may be shown twice if the outcome of the first attempt is unknown, because it
// leaves nothing in the thread by which it could be found.
func (c *Client) Ephemeral(ctx context.Context, channel, threadTS, user, text string) error {
	c.setup()
	options := []slackgo.MsgOption{slackgo.MsgOptionText(c.Secrets.String(text), false)}
	if threadTS != "" {
		options = append(options, slackgo.MsgOptionTS(threadTS))
	}
	err := c.call(ctx, "chat.postEphemeral", func(ctx context.Context) error {
		_, err := c.api.PostEphemeralContext(ctx, channel, user, options...)
		return err
	}, nil)
	if err != nil {
		return fmt.Errorf("cannot show a message to one user in Slack: %w", err)
	}
	return nil
}

// Respond answers at a response_url, which must be at one of Slack's hosts or at the configured URL's. Only the user
// who pressed the button or typed the command sees the answer. Slack accepts five answers within half an hour, and
// refuses further ones.
func (c *Client) Respond(ctx context.Context, responseURL, printed string) error {
	c.setup()
	const method = "response_url"
	u, err := url.Parse(responseURL)
	if err != nil || !c.trusted(u) {
		return fmt.Errorf("cannot answer at a response_url: %w",
			&RefusedError{Method: method, Code: "foreign_url", Detail: "it is not Slack's"})
	}
	body, err := json.Marshal(map[string]any{"text": c.Secrets.String(printed), "response_type": "ephemeral",
		"replace_original": false})
	if err != nil {
		return err
	}
	err = c.call(ctx, method, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, responseURL, bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json; charset=utf-8")
		answer, err := c.fetch(req, method, 1<<16, func(http.Header) error { return nil })
		if err != nil {
			return err
		}
		// The answer is "ok" as text, or an object.
		var said struct {
			OK    bool   `json:"ok"`
			Error string `json:"error"`
		}
		if json.Unmarshal(answer, &said) == nil && !said.OK {
			return &RefusedError{Method: method, Code: text.Clip(said.Error, clipped)}
		}
		return nil
	}, nil)
	if err != nil {
		return fmt.Errorf("cannot answer at a response_url: %w", err)
	}
	return nil
}

// download is the name of the lane of files.
const download = "files"

// Download fetches a shared file of at most max bytes. It refuses a file that is longer, deleted, or stored outside of
// Slack.
func (c *Client) Download(ctx context.Context, f File, max int64) ([]byte, error) {
	c.setup()
	refuse := func(code, detail string) error {
		return fmt.Errorf("cannot fetch file %q from Slack: %w", text.Clip(f.Name, clipped),
			&RefusedError{Method: download, Code: code, Detail: detail})
	}
	u, err := url.Parse(f.Download)
	if err != nil || !c.trusted(u) {
		// The author of an external file chose its link, and the token must not be sent there.
		return nil, refuse("foreign_url", "it is not stored at Slack")
	}
	if f.Size > max {
		return nil, refuse("file_too_large", fmt.Sprintf("%d bytes, more than %d", f.Size, max))
	}
	var data []byte
	err = c.call(ctx, download, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.Download, nil)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+c.Token)
		data, err = c.fetch(req, download, max, func(h http.Header) error {
			if strings.HasPrefix(h.Get("Content-Type"), "text/html") && !strings.HasPrefix(f.MIME, "text/html") {
				return &RefusedError{Method: download, Code: "not_readable", Needed: "files:read",
					Detail: "Slack answers with its sign-in page"}
			}
			return nil
		})
		return err
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot fetch file %q from Slack: %w", text.Clip(f.Name, clipped), err)
	}
	return data, nil
}

// downloadTime bounds one attempt to fetch a file.
const downloadTime = 5 * time.Minute

// fetch makes a request outside of the Web API. If good returns nil for the answer's header, it reads at most most
// bytes.
func (c *Client) fetch(req *http.Request, method string, most int64, good func(http.Header) error) ([]byte, error) {
	client := *c.HTTP
	client.CheckRedirect = func(to *http.Request, via []*http.Request) error {
		// Slack redirects users who may not read a file to its sign-in page.
		if len(via) >= 5 || !c.trusted(to.URL) || to.URL.Query().Has("redir") {
			return http.ErrUseLastResponse
		}
		return nil
	}
	resp, err := client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // a response_url is a secret
		}
		return nil, &temporary{err: fmt.Errorf("%s: %w", method, err), unknown: true}
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode/100 == 2:
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusRequestTimeout,
		resp.StatusCode/100 == 5:
		return nil, &temporary{err: fmt.Errorf("%s: status %d", method, resp.StatusCode),
			after: retryAfter(resp.Header), unknown: true}
	default:
		code, _ := io.ReadAll(io.LimitReader(resp.Body, 80))
		return nil, &RefusedError{Method: method, Code: fmt.Sprintf("status %d", resp.StatusCode),
			Detail: strings.ToValidUTF8(string(code), "?")}
	}
	if err := good(resp.Header); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err != nil {
		return nil, &temporary{err: fmt.Errorf("%s: cannot read the answer: %w", method, err), unknown: true}
	}
	if int64(len(body)) > most {
		return nil, &RefusedError{Method: method, Code: "file_too_large", Detail: fmt.Sprintf("more than %d bytes", most)}
	}
	return body, nil
}

// trusted reports whether a URL is Slack's or the configured one's. People and payloads may name any URL.
func (c *Client) trusted(u *url.URL) bool {
	if base, err := url.Parse(c.base); err == nil && u.Scheme == base.Scheme && strings.EqualFold(u.Host, base.Host) && u.User == nil {
		return true
	}
	host := strings.ToLower(u.Hostname())
	for _, domain := range [...]string{"slack.com", "slack-gov.com"} {
		if u.Scheme == "https" && u.User == nil && (u.Port() == "" || u.Port() == "443") &&
			(host == domain || strings.HasSuffix(host, "."+domain)) {
			return true
		}
	}
	return false
}
