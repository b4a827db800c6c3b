package mcp

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/ramus-dev/ramus/gateway/gather"
	"github.com/ramus-dev/ramus/gateway/route"
)

// A client cancels a call by a message of its session (https://modelcontextprotocol.io/specification/2025-06-18/basic/utilities/cancellation).
// The replica of the session ends the calls that it answers itself. A call that another replica answers ends with its request, at the
// replica that the client asked. This may be another one than the message reached, so all are told.

// errCancelled is the cause of the context of a call that its client cancelled.
var errCancelled = errors.New("the client cancelled the call")

// callName names a call of a tool in a session.
type callName struct {
	Session string `json:"session"`
	ID      string `json:"id"` // as JSON
	subject string
}

// openCalls are the calls of tools in progress that this replica passed on, or that it answers for a session of another replica. All methods
// are safe for concurrent use.
type openCalls struct {
	mu    sync.Mutex // guards calls
	calls map[callName]*openCall
}

type openCall struct{ cancel context.CancelCauseFunc }

// beginCall has the context of a call end when the client cancels the call. The caller calls end when the call has an answer.
func (o *openCalls) beginCall(c *route.Call, m message) (end func()) {
	name := callName{c.R.Header.Get(sessionHeader), string(m.ID), c.Who.Subject}
	if !m.isToolCall() || name.Session == "" || name.ID == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancelCause(c.R.Context())
	c.R = c.R.WithContext(ctx)
	call := &openCall{cancel}

	o.mu.Lock()
	defer o.mu.Unlock()
	if o.calls == nil {
		o.calls = map[callName]*openCall{}
	}
	o.calls[name] = call
	return func() {
		cancel(nil)
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.calls[name] == call { // and not one of a client that used the id again
			delete(o.calls, name)
		}
	}
}

// cancel cancels a call, if it is in progress.
func (o *openCalls) cancel(name callName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if call := o.calls[name]; call != nil {
		call.cancel(errCancelled)
	}
}

func (api *API) newCancels() *gather.Question[callName, struct{}] {
	return gather.New(api.Desk, "cancel", func(_ context.Context, who route.Who, name callName) (struct{}, error) {
		name.subject = who.Subject
		api.calls.cancel(name)
		return struct{}{}, nil
	})
}

// cancelCall has the replicas cancel the call that a message names. A replica that does not answer has lost its calls, or loses them with
// their connections.
func (api *API) cancelCall(c *route.Call, m message) {
	if api.Desk.Alone() || route.Via(c.R.Context()) != "" {
		return
	}
	_, _ = api.cancels.Ask(c.R.Context(), c.Who, callName{Session: c.R.Header.Get(sessionHeader), ID: string(m.Params.RequestID)})
}

// servePassed has another replica answer. The answer of a call that the client cancelled is a stream without a message, because the client
// expects no result.
func servePassed(passed http.Handler, c *route.Call) {
	w := &begunWriter{ResponseWriter: c.W}
	defer func() {
		if context.Cause(c.R.Context()) != errCancelled {
			return
		}
		// The proxy ends a request so if it has written the beginning of the answer.
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			panic(p)
		}
		if !w.begun {
			c.W.Header().Set("Content-Type", "text/event-stream")
			c.W.WriteHeader(http.StatusOK)
		}
	}()
	passed.ServeHTTP(w, c.R)
}

// begunWriter notes that an answer has begun.
type begunWriter struct {
	http.ResponseWriter
	begun bool
}

func (w *begunWriter) WriteHeader(status int) {
	w.begun = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *begunWriter) Write(b []byte) (int, error) {
	w.begun = true
	return w.ResponseWriter.Write(b)
}

// Unwrap returns the writer whose abilities the proxy uses.
func (w *begunWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
