// Package linear uses Linear as a source of tasks and for comments on their issues.
package linear

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/forge/rest"
	"github.com/ramus-dev/ramus/gateway/ticket"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/text"
)

// DefaultURL is the address of Linear's API.
const DefaultURL = "https://api.linear.app"

// window bounds the difference between the time of a webhook and the clock of the server. Linear repeats a failed
// webhook for some hours.
const window = 12 * time.Hour

// Client uses Linear's GraphQL API. Its exported fields are its options and may be changed until the first call. Methods
// are safe for concurrent use.
type Client struct {
	URL     string // of the API; default [DefaultURL]
	Token   string // an API key (lin_api_…), or an OAuth token
	HTTP    *http.Client
	Secrets *redact.Secrets // removed from all posts; nil if there are none
	Log     *slog.Logger
	// Now and Sleep are the clock. A test replaces both or none.
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration) error

	once sync.Once
	rest *rest.Client
}

var _ ticket.Tracker = (*Client)(nil)

// Title returns "Linear".
func (c *Client) Title() string { return "Linear" }

func (c *Client) api() *rest.Client {
	c.once.Do(func() {
		c.rest = &rest.Client{Site: "Linear", URL: cmp.Or(c.URL, DefaultURL), HTTP: c.HTTP, Log: c.Log, Now: c.Now,
			Sleep: c.Sleep,
			Authorize: func(r *http.Request) {
				token := c.Token
				if !strings.HasPrefix(token, "lin_api_") {
					token = "Bearer " + token
				}
				r.Header.Set("Authorization", token)
			}}
	})
	return c.rest
}

// isKey reports whether text can be the identifier of an issue.
func isKey(text string) bool {
	team, number, ok := strings.Cut(text, "-")
	return ok && team != "" && number != "" && len(text) <= 100 &&
		strings.Trim(team, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == "" && strings.Trim(number, "0123456789") == ""
}

// maxComment is ramus's own limit for a comment, in characters.
const maxComment = 32_767

// idOf returns the id of the comment with a mark, a UUID. Linear refuses a second comment with it.
func idOf(mark string) string {
	sum := sha256.Sum256([]byte("ramus comment\x00" + mark))
	sum[6], sum[8] = sum[6]&0x0f|0x40, sum[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// query makes a query. The errors of GraphQL are refusals.
func (c *Client) query(ctx context.Context, what, query string, variables map[string]any, done func() (bool, error), out any) error {
	var answer struct {
		Data   json.RawMessage `json:"data"`
		Errors []struct {
			Message string `json:"message"`
		} `json:"errors"`
	}
	_, err := c.api().Do(ctx, rest.Request{What: what, Method: http.MethodPost, Path: "/graphql", Done: done,
		Body: map[string]any{"query": query, "variables": variables}}, &answer, nil)
	if err != nil {
		return err
	}
	if len(answer.Errors) > 0 {
		return fmt.Errorf("cannot %s: %w", what, c.api().Refuse("%s", text.Clip(answer.Errors[0].Message, 500)))
	}
	if out == nil || len(answer.Data) == 0 {
		return nil
	}
	return json.Unmarshal(answer.Data, out)
}

// Comment posts a comment on an issue, once for each mark.
func (c *Client) Comment(ctx context.Context, key, text, detail, mark string) error {
	const what = "comment on an issue"
	if !isKey(key) || mark == "" {
		return fmt.Errorf("cannot %s: %w", what,
			c.api().Refuse("%.100q is no identifier of an issue, or there is no mark", key))
	}
	id := idOf(key + "\x00" + mark)
	done := func() (bool, error) {
		var found struct {
			Comments struct {
				Nodes []struct {
					ID string `json:"id"`
				} `json:"nodes"`
			} `json:"comments"`
		}
		err := c.query(ctx, "look for a comment",
			"query($id: ID!) { comments(filter: {id: {eq: $id}}) { nodes { id } } }", map[string]any{"id": id}, nil, &found)
		return len(found.Comments.Nodes) > 0, err
	}
	if was, err := done(); was || err != nil {
		return err
	}
	body := text
	if detail != "" {
		body += "\n\n```text\n" + strings.ReplaceAll(detail, "`", "'") + "\n```"
	}
	var made struct {
		Create struct {
			Success bool `json:"success"`
		} `json:"commentCreate"`
	}
	return c.query(ctx, what,
		"mutation($id: String!, $issue: String!, $body: String!) { commentCreate(input: {id: $id, issueId: $issue, body: $body}) { success } }",
		map[string]any{"id": id, "issue": key, "body": forge.Body(c.Secrets.String(body), "", maxComment, "Linear")},
		done, &made)
}

// Parse checks the signature (Linear-Signature, HMAC-SHA256 over the raw body, compared in constant time) and the time
// of the webhook, and reads it. The errors are [forge.ErrSignature] and [forge.ErrDelivery].
func (c *Client) Parse(h http.Header, body []byte, secret string, names ticket.Names) (ticket.Event, error) {
	const header = "Linear-Signature"
	if err := forge.CheckSignature(secret, h.Get(header), header, body); err != nil {
		return ticket.Event{}, err
	}
	var p struct {
		Action    string `json:"action"`
		Type      string `json:"type"`
		URL       string `json:"url"`
		Timestamp int64  `json:"webhookTimestamp"`
		Data      struct {
			Identifier  string `json:"identifier"`
			Title       string `json:"title"`
			Description string `json:"description"`
			Labels      []struct {
				Name string `json:"name"`
			} `json:"labels"`
			Assignee *struct {
				ID    string `json:"id"`
				Email string `json:"email"`
			} `json:"assignee"`
		} `json:"data"`
	}
	// Other types have other data under the same names.
	var head struct {
		Action    string `json:"action"`
		Type      string `json:"type"`
		Timestamp int64  `json:"webhookTimestamp"`
	}
	if err := json.Unmarshal(body, &head); err != nil {
		return ticket.Event{}, fmt.Errorf("%w: %w", forge.ErrDelivery, err)
	}
	now := time.Now
	if c.Now != nil {
		now = c.Now
	}
	if age := now().Sub(time.UnixMilli(head.Timestamp)); age > window || age < -window {
		return ticket.Event{}, fmt.Errorf("%w: it was sent at another time", forge.ErrSignature)
	}
	e := ticket.Event{Name: text.Clip(head.Type+" "+head.Action, 100)}
	if head.Type != "Issue" {
		return e, nil
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return ticket.Event{}, fmt.Errorf("%w: %w", forge.ErrDelivery, err)
	}
	if e.Key = p.Data.Identifier; !isKey(e.Key) {
		return ticket.Event{}, fmt.Errorf("%w: %.100q is no identifier of an issue", forge.ErrDelivery, e.Key)
	}
	e.Project, _, _ = strings.Cut(e.Key, "-")
	if strings.HasPrefix(p.URL, "https://linear.app/") && len(p.URL) <= 500 {
		e.URL = p.URL
	}
	e.Title, e.Text = text.Clip(p.Data.Title, ticket.MaxTitle), text.Clip(p.Data.Description, ticket.MaxText)
	named := names.Assignee != "" && p.Data.Assignee != nil &&
		(p.Data.Assignee.ID == names.Assignee || p.Data.Assignee.Email == names.Assignee)
	for _, l := range p.Data.Labels {
		named = named || names.Label != "" && strings.EqualFold(l.Name, names.Label)
	}
	e.Starts = named && (head.Action == "create" || head.Action == "update")
	return e, nil
}
