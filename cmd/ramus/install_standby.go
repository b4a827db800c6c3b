package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/standby"
	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gitd"
)

// openLeader lets stand-bys follow the repositories, and asks the peers whether one of them took the place of this server.
func (o *opening) openLeader(ctx context.Context) error {
	c := o.config.Standby
	o.fenced = make(chan error, 1)
	l := &standby.Leader{Data: o.config.Data, Git: o.git, Allow: c.Allow, Keys: c.Keys,
		Elsewhere: o.config.Artifacts.URL != "", Sync: c.Sync, Wait: time.Duration(c.Wait), Alone: c.Alone,
		Ended: func(err error) { o.fenced <- err }, Log: o.log}
	if err := l.Open(ctx); err != nil {
		return err
	}
	for _, url := range c.Peers {
		if epoch := epochOf(ctx, url); epoch > l.Epoch().Number {
			f := standby.Fence{Epoch: epoch, By: url}
			return placeStatus(errors.Join(l.Fence(f), &f))
		}
	}
	o.leader, o.git.Duty, o.git.Settle = l, l.Duty, l.Settle
	return nil
}

// peerWait bounds the wait for an answer of another server.
const peerWait = 2 * time.Second

// epochOf returns the epoch of another server. Returns 0 if that does not answer, or follows one itself.
func epochOf(ctx context.Context, url string) uint64 {
	ctx, cancel := context.WithTimeout(ctx, peerWait)
	defer cancel()
	c := client.New(url, "")
	defer c.Close()
	h, err := c.Health(ctx)
	if err != nil || h.Role != "server" {
		return 0
	}
	return h.Epoch
}

// placeStatus returns an error with the exit status of a data folder that is not that of a server.
func placeStatus(err error) error {
	if errors.Is(err, gitd.ErrFenced) || errors.Is(err, record.ErrConflict) {
		return &exitStatus{exitInTheWay, err}
	}
	return err
}

// fenceEvery is the time between two attempts to tell a server that another one took its place.
const fenceEvery = 5 * time.Second

// fencePredecessor tells the server that this one followed that its time is over. It tries until that server knows, or
// ctx ends.
func (i *installation) fencePredecessor(ctx context.Context) {
	old, err := standby.ReadPredecessor(i.config.Data)
	if err != nil || old.Of == "" {
		return
	}
	for {
		err := tellFence(ctx, old, standby.Fence{Epoch: i.leader.Epoch().Number, By: i.config.URL})
		if err == nil {
			i.log.Info("the server that was followed knows that its time is over", "of", old.Of)
			if err := standby.ForgetPredecessor(i.config.Data); err != nil {
				i.log.Warn("cannot forget the server that was followed", "err", err)
			}
			return
		}
		i.log.Debug("cannot tell the server that was followed yet", "of", old.Of, "err", err)
		next := time.NewTimer(fenceEvery)
		select {
		case <-next.C:
		case <-ctx.Done():
			next.Stop()
			return
		}
	}
}

func tellFence(ctx context.Context, old standby.Source, f standby.Fence) error {
	ctx, cancel := context.WithTimeout(ctx, peerWait)
	defer cancel()
	token, err := sourceToken(old, nil)
	if err != nil {
		return err
	}
	c := client.New(old.Of, token)
	defer c.Close()
	return c.Fence(ctx, f)
}

// sourceToken returns the token for a server that is followed, from its file or from the environment.
func sourceToken(s standby.Source, e *env) (string, error) {
	if s.TokenFile == "" {
		if e == nil {
			return "", nil
		}
		return e.getenv("RAMUS_TOKEN"), nil
	}
	secret := &secrets{}
	token, err := secret.value("token", "", s.TokenFile)
	if err != nil {
		return "", fmt.Errorf("cannot read the token: %w", err)
	}
	return token, nil
}
