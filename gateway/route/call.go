package route

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Call is one request on its way through a handler.
type Call struct {
	W   http.ResponseWriter
	R   *http.Request
	Who Who
	ID  string // names the request in the log
	// Access is the access of the route.
	Access Access
	// Until is the end of the signed link that the request came by. The zero time means that it came by a token.
	Until time.Time
	// Relink returns the link to a path, if links of the page are neither signed nor for people with a session. Nil means that they are.
	Relink func(to string) string

	mux     *Mux
	audited bool // by the handler
}

// ResultOK is the result of an action that succeeded, in the log of actions.
const ResultOK = "ok"

// Audit adds an action of the person of the call to the log of actions, and returns when it is on disk. It is called after
// the action and before the answer.
func (c *Call) Audit(action, object string) error { return c.AuditResult(action, object, ResultOK) }

// AuditResult is [Call.Audit] of an action that may have been refused.
func (c *Call) AuditResult(action, object, result string) error {
	c.audited = true
	if c.mux.Audit == nil {
		return nil
	}
	return c.mux.Audit(c, action, object, result)
}

// Again returns the person of the call as it is now. A socket that is open for a while asks for it before it shows
// something new. The error is a problem if the session has ended.
func (c *Call) Again() (Who, error) {
	if c.Who.Account == nil || c.mux.Again == nil {
		return c.Who, nil
	}
	who, err := c.mux.Again(c.R.Context(), c.Who)
	return who.Under(c.mux.Veil), err
}

// isRead reports whether a request changes nothing.
func isRead(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
}

// Reply answers with v as JSON.
func (c *Call) Reply(v any) error { return c.ReplyStatus(http.StatusOK, v) }

// ReplyStatus answers with v as JSON and a status of success.
func (c *Call) ReplyStatus(status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("cannot encode the answer: %w", err)
	}
	b = c.mux.Secrets.JSON(b) // also a secret that is a number

	c.W.Header().Set("Content-Type", "application/json")
	c.W.Header().Set("Cache-Control", "no-store")
	c.W.WriteHeader(status)
	_, err = c.W.Write(append(b, '\n'))
	return err
}

// ReplyRaw answers with JSON that is encoded already.
func (c *Call) ReplyRaw(b []byte) error {
	c.W.Header().Set("Content-Type", "application/json")
	_, err := c.W.Write(b)
	return err
}

// MarkAttachment marks an answer whose bytes somebody else wrote, so that no browser takes it for a page of this
// server. name is the name of the file that a browser saves.
func (c *Call) MarkAttachment(name string) {
	h := c.W.Header()
	h.Set("Content-Type", MediaBytes)
	h.Set("Content-Disposition", "attachment; filename*=UTF-8''"+url.PathEscape(name))
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
}

// CutShort ends an answer after an error in its middle, so that no reader can take it for a complete one. It closes
// the connection without the last chunk and does not return. CutShort returns err if the answer has not begun.
func (c *Call) CutShort(err error) error {
	if c.W.(*recorder).status == 0 {
		return err
	}
	c.mux.Log.ErrorContext(c.R.Context(), "answer cut short", "request", c.ID, "error", err)
	panic(http.ErrAbortHandler)
}

// SendAsIs leaves secrets in the answer. It is for answers of containers, which have no secrets of the server, and
// where bytes that are compressed or half of a stream cannot be searched.
func (c *Call) SendAsIs() {
	if w, ok := c.W.(*recorder); ok {
		w.clean = nil
	}
}

// WantsPage reports whether the request comes from a browser that followed a link, and not from a program.
func (c *Call) WantsPage() bool { return strings.Contains(c.R.Header.Get("Accept"), "text/html") }

// Address returns the URL where people reach this server, without a slash at its end. Returns "" if only the unix
// socket is known.
func (c *Call) Address() string {
	switch {
	case c.mux.URL != "":
		return strings.TrimSuffix(c.mux.URL, "/")
	case c.Who.Local:
		return ""
	case c.R.TLS != nil:
		return "https://" + c.R.Host
	}
	return "http://" + c.R.Host
}

// Programs returns the URL where programs and git reach this server, without a slash at its end. Returns "" if only the
// unix socket is known.
func (c *Call) Programs() string {
	if c.mux.API != "" {
		return c.mux.API
	}
	return c.Address()
}

// CloneURL returns the URL of a repository for `git clone`. Returns "" if git has no way to the server.
func (c *Call) CloneURL(repo string) string {
	address := c.Programs()
	if address == "" {
		return ""
	}
	return address + (&url.URL{Path: "/" + repo + ".git"}).EscapedPath()
}

// Link returns a link from a page of this server to a path of it. If the page was opened by a signed link, the link
// is signed too, with the same end.
func (c *Call) Link(to string) string {
	if c.Relink != nil {
		return c.Relink(to)
	}
	if c.Until.IsZero() {
		return c.Prefix() + (&url.URL{Path: to}).String()
	}
	return c.Prefix() + c.mux.Links.SignUntil(to, c.Until)
}

// Prefix returns the path below which people reach this server, without a slash at its end.
func (c *Call) Prefix() string {
	u, err := url.Parse(c.mux.URL)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(u.Path, "/")
}

// OpenStream counts one more stream of the caller. It refuses the stream if the server or the caller has too many.
// done gives the stream back.
func (c *Call) OpenStream() (done func(), err error) { return c.mux.open.Acquire(c.Who) }

// Draining returns a context that ends when the server drains.
func (c *Call) Draining() context.Context { return c.mux.draining }
