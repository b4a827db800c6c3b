package store

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// errIdle ends a body of which no byte arrives.
var errIdle = errors.New("the answer stopped in the middle")

// idleTransport bounds the time between the bytes of a response's body. http.Transport bounds only the time until its head.
type idleTransport struct {
	next *http.Transport
	wait time.Duration
}

// RoundTrip implements [http.RoundTripper].
func (t *idleTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	resp, err := t.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	resp.Body = &idleBody{body: resp.Body, ctx: ctx, cancel: cancel, wait: t.wait}
	return resp, nil
}

// idleBody is a body that ends with errIdle if one Read takes longer than wait.
type idleBody struct {
	body   io.ReadCloser
	ctx    context.Context // of the request
	cancel context.CancelCauseFunc
	wait   time.Duration
}

func (b *idleBody) Read(p []byte) (int, error) {
	timer := time.AfterFunc(b.wait, func() { b.cancel(errIdle) })
	n, err := b.body.Read(p)
	timer.Stop()
	if err != nil && err != io.EOF && errors.Is(context.Cause(b.ctx), errIdle) {
		err = errIdle
	}
	return n, err
}

func (b *idleBody) Close() error {
	err := b.body.Close()
	b.cancel(nil)
	return err
}
