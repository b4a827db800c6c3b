package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/standby"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gitd"
)

// openLeader lets stand-bys follow the repositories, and asks the peers whether one of them took the place of this server.
func (o *opening) openLeader(ctx context.Context) error {
	c := o.config.Standby
	o.fenced, o.token = make(chan error, 1), o.secret.env("RAMUS_TOKEN")
	l := &standby.Leader{Data: o.config.Data, Git: o.git, Allow: c.Allow, Keys: c.Keys,
		Elsewhere: o.config.Artifacts.URL != "", Sync: c.Sync, Wait: time.Duration(c.Wait), Alone: c.Alone,
		Ended: func(err error) { o.fenced <- err }, Log: o.log}
	if err := l.Open(ctx); err != nil {
		return err
	}
	o.leader, o.git.Duty, o.git.Settle = l, l.Duty, l.Settle
	if f := o.askPeers(ctx); f != nil {
		return placeStatus(errors.Join(l.Fence(*f), f))
	}
	return nil
}

// peers returns the URLs of the servers that may have taken the place of this one.
func (i *installation) peers() []string {
	known, err := standby.ReadPeers(i.config.Data)
	if err != nil {
		i.log.Warn("cannot read the known servers", "err", err)
	}
	urls := append(slices.Clone(i.config.Standby.Peers), known...)
	slices.Sort(urls)
	return slices.DeleteFunc(slices.Compact(urls), func(url string) bool {
		return strings.TrimSuffix(url, "/") == strings.TrimSuffix(i.config.URL, "/")
	})
}

// askPeers asks all peers at once. It returns a fence if another server took the place of this one.
func (i *installation) askPeers(ctx context.Context) *standby.Fence {
	urls, own := i.peers(), i.leader.Epoch()
	answers := make([]gateway.Health, len(urls))
	var asking sync.WaitGroup
	for n, url := range urls {
		asking.Go(func() { answers[n] = healthAt(ctx, url) })
	}
	asking.Wait()
	var f *standby.Fence
	for n, h := range answers {
		e := standby.Epoch{Number: h.Epoch, ID: h.EpochID}
		if h.Role != standby.RoleStandby && h.Epoch > 0 && e.Over(own) {
			own, f = e, &standby.Fence{Epoch: e.Number, ID: e.ID}
			if h.Role == standby.RoleServer {
				f.By = urls[n]
			}
		}
	}
	return f
}

// peerWait bounds the wait for an answer of another server.
const peerWait = 2 * time.Second

// healthAt returns the health of another server. It is zero if that does not answer.
func healthAt(ctx context.Context, url string) gateway.Health {
	ctx, cancel := context.WithTimeout(ctx, peerWait)
	defer cancel()
	c := client.New(url, "")
	defer c.Close()
	h, err := c.Health(ctx)
	if err != nil {
		return gateway.Health{}
	}
	return h
}

// placeStatus returns an error with the exit status of a data folder that is not that of a server.
func placeStatus(err error) error {
	if errors.Is(err, gitd.ErrFenced) || errors.Is(err, record.ErrConflict) {
		return &exitStatus{exitInTheWay, err}
	}
	return err
}

// fenceEvery is the time between two questions to the peers.
const fenceEvery = 2 * time.Second

// watchEpochs tells the server that this one followed that its time is over, until that server knows. It asks the peers
// whether another server took the place of this one, until ctx ends.
func (i *installation) watchEpochs(ctx context.Context) {
	old, err := standby.ReadPredecessor(i.config.Data)
	if err != nil {
		i.log.Warn("cannot tell the server that was followed that its time is over", "err", err)
	}
	for {
		if old.Of != "" && i.fencePredecessor(ctx, old) {
			old.Of = ""
		}
		if f := i.askPeers(ctx); f != nil {
			if err := i.leader.Fence(*f); err != nil {
				i.log.Error("cannot record that another server took the place of this one", "err", err)
			}
			return
		}
		next := time.NewTimer(fenceEvery)
		select {
		case <-next.C:
		case <-ctx.Done():
			next.Stop()
			return
		}
	}
}

// fencePredecessor reports whether the server that this one followed knows that its time is over.
func (i *installation) fencePredecessor(ctx context.Context, old standby.Source) bool {
	e := i.leader.Epoch()
	err := i.tellFence(ctx, old, standby.Fence{Epoch: e.Number, ID: e.ID, By: i.config.URL})
	if err != nil {
		i.log.Debug("cannot tell the server that was followed yet", "of", old.Of, "err", err)
		return false
	}
	i.log.Info("the server that was followed knows that its time is over", "of", old.Of)
	if err := standby.ForgetPredecessor(i.config.Data); err != nil {
		i.log.Warn("cannot forget the server that was followed", "err", err)
	}
	return true
}

func (i *installation) tellFence(ctx context.Context, old standby.Source, f standby.Fence) error {
	ctx, cancel := context.WithTimeout(ctx, peerWait)
	defer cancel()
	token, err := sourceToken(old, i.token)
	if err != nil {
		return err
	}
	c := client.New(old.Of, token)
	defer c.Close()
	_, err = c.Fence(ctx, f) // askPeers sees the fence of another server
	return err
}

// sourceToken returns the token for a server that is followed, from its file or from the environment.
func sourceToken(s standby.Source, environ string) (string, error) {
	if s.TokenFile == "" {
		return environ, nil
	}
	secret := &secrets{}
	token, err := secret.value("token", "", s.TokenFile)
	if err != nil {
		return "", fmt.Errorf("cannot read the token: %w", err)
	}
	return token, nil
}
