package pack

import (
	"context"
	"io"
)

// contextReader is a reader that fails when its context has ended.
type contextReader struct {
	ctx context.Context
	in  io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.in.Read(p)
}

// NewContextReader returns a reader of in that fails with the cause of ctx when ctx has ended.
func NewContextReader(ctx context.Context, in io.Reader) io.Reader { return contextReader{ctx, in} }
