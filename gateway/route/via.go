package route

import "context"

type viaKey struct{}

// WithVia returns the context of a request that another server passed on. Its RemoteAddr is that of the client.
func WithVia(ctx context.Context, server string) context.Context {
	return context.WithValue(ctx, viaKey{}, server)
}

// Via returns the name of the server that passed a request on. Returns "" if the client sent the request here.
func Via(ctx context.Context) string {
	server, _ := ctx.Value(viaKey{}).(string)
	return server
}
