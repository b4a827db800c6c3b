// Package jira uses Jira, in the cloud or a data center, as a source of tasks and for comments on their issues.
package jira

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/forge/rest"
	"github.com/ramus-dev/ramus/gateway/ticket"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/text"
)

// Client uses Jira's REST API (2). Its exported fields are its options and may be changed until the first call. Methods
// are safe for concurrent use.
type Client struct {
	URL string // of the site, "https://acme.atlassian.net"
	// User is the e-mail address of the user of an API token. It is empty for a token of a data center.
	User    string
	Token   string
	HTTP    *http.Client    // if nil, the default one
	Secrets *redact.Secrets // removed from all posts; nil if there are none
	Log     *slog.Logger
	// Now and Sleep are the clock. A test replaces both or none.
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration) error

	once sync.Once
	rest *rest.Client
}

var _ ticket.Tracker = (*Client)(nil)

// Title returns "Jira".
func (c *Client) Title() string { return "Jira" }

func (c *Client) api() *rest.Client {
	c.once.Do(func() {
		c.rest = &rest.Client{Site: "Jira", URL: strings.TrimSuffix(c.URL, "/") + "/rest/api/2", HTTP: c.HTTP,
			Log: c.Log, Now: c.Now, Sleep: c.Sleep,
			Authorize: func(r *http.Request) {
				if c.User != "" {
					r.SetBasicAuth(c.User, c.Token)
				} else {
					r.Header.Set("Authorization", "Bearer "+c.Token)
				}
			}}
	})
	return c.rest
}

// property is the name of the property of a comment that has its mark. People do not see it.
const property = "ramus"

type propertyOf struct {
	Key   string `json:"key"`
	Value struct {
		Mark string `json:"mark"`
	} `json:"value"`
}

// isKey reports whether text can be the key of an issue.
func isKey(text string) bool {
	project, number, ok := strings.Cut(text, "-")
	return ok && project != "" && number != "" && len(text) <= 100 &&
		strings.Trim(project, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == "" && strings.Trim(number, "0123456789") == ""
}

// maxComment is Jira's limit for a comment, in characters.
const maxComment = 32_767

// Comment posts a comment on an issue, once for each mark.
func (c *Client) Comment(ctx context.Context, key, text, detail, mark string) error {
	const what = "comment on an issue"
	if !isKey(key) || mark == "" {
		return fmt.Errorf("cannot %s: %w", what, c.api().Refuse("%.100q is no key of an issue, or there is no mark", key))
	}
	path := rest.Path("issue", key, "comment")
	mark = forge.Mark(mark)
	done := func() (bool, error) {
		var list struct {
			Comments []struct {
				Properties []propertyOf `json:"properties"`
			} `json:"comments"`
		}
		query := url.Values{"expand": {"properties"}, "orderBy": {"-created"}, "maxResults": {"100"}}
		_, err := c.api().Do(ctx, rest.Request{What: "list the comments of an issue", Path: path, Query: query}, &list, nil)
		for _, one := range list.Comments {
			if slices.ContainsFunc(one.Properties, func(p propertyOf) bool { return p.Key == property && p.Value.Mark == mark }) {
				return true, nil
			}
		}
		return false, err
	}
	if was, err := done(); was || err != nil {
		return err
	}
	body := text
	if detail != "" {
		body += "\n{noformat}\n" + strings.ReplaceAll(detail, "{noformat}", "(noformat)") + "\n{noformat}"
	}
	own := propertyOf{Key: property}
	own.Value.Mark = mark
	_, err := c.api().Do(ctx, rest.Request{What: what, Method: http.MethodPost, Path: path, Done: done,
		Body: map[string]any{"body": forge.Body(c.Secrets.String(body), "", maxComment, "Jira"),
			"properties": []propertyOf{own}}}, nil, nil)
	return err
}

// Parse checks the signature (X-Hub-Signature, HMAC-SHA256 over the raw body, compared in constant time) and reads the
// webhook. The errors are [forge.ErrSignature] and [forge.ErrDelivery].
func (c *Client) Parse(h http.Header, body []byte, secret string, names ticket.Names) (ticket.Event, error) {
	const header = "X-Hub-Signature"
	signature, ok := strings.CutPrefix(h.Get(header), "sha256=")
	if !ok {
		signature = ""
	}
	if err := forge.CheckSignature(secret, signature, header, body); err != nil {
		return ticket.Event{}, err
	}
	var p struct {
		Event string `json:"webhookEvent"`
		Issue *struct {
			Key    string `json:"key"`
			Fields struct {
				Summary     string          `json:"summary"`
				Description json.RawMessage `json:"description"`
				Labels      []string        `json:"labels"`
				Assignee    *struct {
					ID   string `json:"accountId"`
					Name string `json:"name"` // of a data center
				} `json:"assignee"`
			} `json:"fields"`
		} `json:"issue"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return ticket.Event{}, fmt.Errorf("%w: %w", forge.ErrDelivery, err)
	}
	e := ticket.Event{Name: text.Clip(p.Event, 100)}
	if p.Issue == nil {
		return e, nil
	}
	if e.Key = p.Issue.Key; !isKey(e.Key) {
		return ticket.Event{}, fmt.Errorf("%w: %.100q is no key of an issue", forge.ErrDelivery, e.Key)
	}
	e.Project, _, _ = strings.Cut(e.Key, "-")
	e.URL = strings.TrimSuffix(c.URL, "/") + "/browse/" + e.Key
	f := p.Issue.Fields
	e.Title = text.Clip(f.Summary, ticket.MaxTitle)
	var words string
	if json.Unmarshal(f.Description, &words) == nil { // null, or a document of the newer format, is left out
		e.Text = text.Clip(words, ticket.MaxText)
	}
	named := names.Label != "" && slices.Contains(f.Labels, names.Label) ||
		names.Assignee != "" && f.Assignee != nil && (f.Assignee.ID == names.Assignee || f.Assignee.Name == names.Assignee)
	e.Starts = named && (p.Event == "jira:issue_created" || p.Event == "jira:issue_updated")
	return e, nil
}
