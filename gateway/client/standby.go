package client

import (
	"context"
	"io"

	"github.com/ramus-dev/ramus/executor/standby"
	standbyapi "github.com/ramus-dev/ramus/gateway/standby"
)

// Standby returns how far a stand-by is, or the stand-bys of a server.
func (c *Client) Standby(ctx context.Context) (standby.Status, error) {
	return get[standby.Status](ctx, c, "/api/standby")
}

// NextRound returns the next round for a stand-by.
func (c *Client) NextRound(ctx context.Context, have standby.Have) (standby.Round, error) {
	return post[standby.Round](ctx, c, "/api/standby/rounds", have)
}

// RoundFile copies a file of the last round to w, from an offset on.
func (c *Client) RoundFile(ctx context.Context, session, path string, from int64, w io.Writer) error {
	return c.copyTo(ctx, "/api/standby/file"+query(standbyapi.FileQuery{Session: session, Path: path, From: from}), w)
}

// Fence ends a server, because another one has begun a higher epoch, and returns its state. That has another fence if
// an epoch that is higher still has ended the server before.
func (c *Client) Fence(ctx context.Context, f standby.Fence) (standby.Status, error) {
	return post[standby.Status](ctx, c, "/api/standby/fence", f)
}

// Promote makes a stand-by the server.
func (c *Client) Promote(ctx context.Context) (standby.Epoch, error) {
	return post[standby.Epoch](ctx, c, "/api/standby/promote", nil)
}
