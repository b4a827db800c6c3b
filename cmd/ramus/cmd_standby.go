package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/standby"
	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gateway/route"
	standbyapi "github.com/ramus-dev/ramus/gateway/standby"
	"github.com/ramus-dev/ramus/gitd"
)

func standbyCommand() command {
	var (
		source standby.Source
		status bool
	)
	return command{
		name: "standby", args: "--of URL [--token-file FILE] | --status",
		short: "follow another server, so that this machine can take its place",
		long: `
The data folder gets everything that the other server has: repositories with all refs,
runs at work, artifacts and sealed credentials. It must be empty at first; it may have
a configuration and keys. The other server needs standby.allow in its configuration,
and FILE (or RAMUS_TOKEN) a token of it with the scope admin for every repository.

A stand-by answers /health at the address of its own configuration, and refuses all
else. "ramus promote" makes it the server. It then goes on in this process. The same
command is the server again after a restart.

--status shows how far a stand-by is, or the stand-bys of a server.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.StringVar(&source.Of, "of", "", "the `URL` of the server to follow; not needed again after the first time")
			fs.StringVar(&source.TokenFile, "token-file", "", "a `file` with the token")
			fs.BoolVar(&status, "status", false, "show how far it is, and end")
			fs.BoolVar(&e.json, "json", false, "with --status: as JSON")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 0, 0, ""); err != nil {
				return err
			}
			if status {
				return standbyStatus(ctx, e)
			}
			if source.Of != "" && !strings.HasPrefix(source.Of, "http://") && !strings.HasPrefix(source.Of, "https://") {
				return usage("--of is %q; want http://… or https://…", source.Of)
			}
			return followServer(ctx, e, source)
		},
	}
}

// standbyStatus shows how far a stand-by is, or the stand-bys of a server.
func standbyStatus(ctx context.Context, e *env) error {
	c, err := runningServer(ctx, e)
	if err != nil {
		return err
	}
	st, err := c.Standby(ctx)
	if err != nil {
		return err
	}
	if e.json {
		return e.writeJSON(st)
	}
	if st.Role == "standby" {
		if st.At.IsZero() {
			fmt.Fprintf(e.out, "follows %s, and has nothing of it yet\n", st.Of)
		} else {
			fmt.Fprintf(e.out, "follows %s, epoch %d, %.1f s behind it, %s\n", st.Of, st.Epoch, st.Lag,
				plural(len(st.Repos), "repository", "repositories"))
		}
		if st.Error != "" {
			fmt.Fprintf(e.out, "last attempt: %s\n", e.oneLine(st.Error, 500))
		}
		return nil
	}
	fmt.Fprintf(e.out, "server, epoch %d, sync %v, %s\n", st.Epoch, st.Sync, plural(len(st.Standbys), "stand-by", "stand-bys"))
	for _, s := range st.Standbys {
		state := "connected"
		if !s.Connected {
			state = "away"
		}
		fmt.Fprintf(e.out, "  %s  %s  %.1f s behind, %s to confirm\n", e.oneLine(s.Name, 100), state, s.Lag,
			count(int(s.Pending), "change"))
	}
	return nil
}

func promoteCommand() command {
	var dry bool
	return command{
		name: "promote", args: "[--dry]",
		short: "make the stand-by of this data folder the server",
		long: `
The stand-by stops following, and begins the next epoch, a commit at refs/ramus/epoch of
the repository ramus-people. If "ramus standby" runs, it goes on as the server. Otherwise
start "ramus serve".

The server that was followed refuses all work as soon as it learns of the epoch. The new
server tells it until it answers. It also asks its stand-bys and standby.peers, when it
starts and every two seconds. A server that reaches none of them does not know. With
standby.sync it can acknowledge nothing then, because no stand-by confirms it.

If two stand-bys are promoted at once, one of them stays, and the other refuses all work
when they reach each other or the server that they followed.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.BoolVar(&dry, "dry", false, "show the server whose place would be taken, and how far the stand-by is behind")
			fs.BoolVar(&e.json, "json", false, "as JSON")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 0, 0, ""); err != nil {
				return err
			}
			c, err := e.config()
			if err != nil {
				return err
			}
			if err := e.promotePlan(ctx, c, dry); err != nil || dry {
				return err
			}
			epoch, err := promote(ctx, e, c)
			if err != nil {
				return err
			}
			if e.json {
				return e.writeJSON(epoch)
			}
			fmt.Fprintf(e.out, "this is the server now, in epoch %d\n", epoch.Number)
			return nil
		},
	}
}

// promotePlan shows the server whose place a stand-by takes on standard error. A dry request has it as JSON on standard
// output, if that is asked for.
func (e *env) promotePlan(ctx context.Context, c Config, dry bool) error {
	source, err := standby.ReadSource(c.Data)
	if err != nil {
		return err
	}
	if source.Of == "" {
		if dry {
			return fmt.Errorf("cannot promote: %w: this data folder follows no server", record.ErrConflict)
		}
		return nil // the promotion says why it cannot be done, or that it was done before
	}
	s := client.Socket(func(ctx context.Context) (net.Conn, error) { return dialSocket(ctx, c.Data) })
	defer s.Close()
	st, err := s.Standby(ctx)
	if err != nil { // it does not run
		st = standby.Status{Role: standby.RoleStandby, Of: source.Of, Epoch: source.Epoch}
	}
	behind := "how far it is behind is not known, because it does not run"
	if !st.At.IsZero() {
		behind = fmt.Sprintf("it is %.1f s behind", st.Lag)
	}
	fmt.Fprintf(e.err, "taking the place of %s in epoch %d; %s\n", e.oneLine(st.Of, 300), st.Epoch, behind)
	if dry && e.json {
		return e.writeJSON(st)
	}
	return nil
}

// promote promotes the stand-by of a data folder, in its process if one runs.
func promote(ctx context.Context, e *env, c Config) (standby.Epoch, error) {
	lock, err := lockFolder(c.Data)
	if errors.Is(err, errLocked) {
		s := client.Socket(func(ctx context.Context) (net.Conn, error) { return dialSocket(ctx, c.Data) })
		defer s.Close()
		return s.Promote(ctx)
	}
	if err != nil {
		return standby.Epoch{}, err
	}
	log, _ := newLog(e.err, c.Log, slog.LevelWarn)
	git, err := replicas(ctx, c, log)
	if err != nil {
		return standby.Epoch{}, errors.Join(err, lock.Close())
	}
	epoch, err := standby.Promote(ctx, c.Data, git, time.Now(), hostName())
	return epoch, errors.Join(restoreStatus(err), git.Close(), lock.Close())
}

// replicas opens the repositories of a stand-by. Its keys are in memory, because the real ones come from its server.
func replicas(ctx context.Context, c Config, log *slog.Logger) (*gitd.Server, error) {
	git := &gitd.Server{Root: filepath.Join(c.Data, "repos"), ReplyCache: -1, Log: log}
	if err := git.Open(ctx); err != nil {
		return nil, fmt.Errorf("cannot open the repositories: %w", err)
	}
	return git, nil
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// leaderConn is a [standby.Server] over HTTP.
type leaderConn struct {
	of, token string
	client    *client.Client
}

func (l *leaderConn) Next(ctx context.Context, have standby.Have) (standby.Round, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r, err := l.client.NextRound(ctx, have)
	var p *route.Problem
	if errors.As(err, &p) && (p.Kind == route.KindConflict || p.Kind == route.KindDenied || p.Kind == route.KindUnauthorized) {
		err = fmt.Errorf("%w: %w", standby.ErrRefused, err)
	}
	return r, err
}

func (l *leaderConn) File(ctx context.Context, session, path string, from int64, w io.Writer) error {
	err := l.client.RoundFile(ctx, session, path, from, w)
	var p *route.Problem
	if errors.As(err, &p) && p.Kind == route.KindNotFound {
		return fmt.Errorf("%w: %w", record.ErrNotFound, err)
	}
	return err
}

func (l *leaderConn) Upstream(repo string) gitd.Upstream {
	return gitd.Upstream{URL: strings.TrimSuffix(l.of, "/") + standbyapi.GitPrefix + "/" + repo + ".git",
		Credential: func(context.Context) (gitd.Credential, error) {
			return gitd.Credential{User: "standby", Password: l.token}, nil
		}}
}

// followServer follows a server until ctx ends, or until it is promoted. Then it serves.
func followServer(ctx context.Context, e *env, source standby.Source) error {
	c, err := e.config()
	if err != nil {
		return err
	}
	if source.TokenFile != "" {
		if source.TokenFile, err = folder(source.TokenFile); err != nil {
			return err
		}
	}
	lock, err := lockFolder(c.Data)
	if errors.Is(err, errLocked) {
		return &exitStatus{exitInTheWay, fmt.Errorf("cannot follow: another ramus%s uses %s", owner(c.Data), c.Data)}
	} else if err != nil {
		return err
	}
	if standby.WasPromoted(c.Data) { // before a restart of this process
		if err := lock.Close(); err != nil {
			return err
		}
		return serve(ctx, e, e.config, 10*time.Second)
	}
	promoted, err := followLocked(ctx, e, c, source)
	if err := errors.Join(err, lock.Close()); err != nil || !promoted {
		return restoreStatus(err)
	}
	return serve(ctx, e, e.config, 10*time.Second)
}

// followLocked follows with the data folder locked, and reports whether the stand-by was promoted.
func followLocked(ctx context.Context, e *env, c Config, source standby.Source) (promoted bool, err error) {
	if source, err = standby.Begin(c.Data, source); err != nil {
		return false, err
	}
	if source.Of == "" {
		return false, usage("--of is missing: this data folder follows no server yet")
	}
	token, err := sourceToken(source, e.getenv("RAMUS_TOKEN"))
	if err != nil {
		return false, err
	}
	log, _ := newLog(e.err, c.Log, slog.LevelDebug)
	git, err := replicas(ctx, c, log)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, git.Close()) }()
	conn := &leaderConn{of: source.Of, token: token, client: client.New(source.Of, token)}
	defer conn.client.Close()
	f := &standby.Follower{Data: c.Data, Source: source, Name: hostName() + ":" + c.Data, URL: c.URL, Git: git, From: conn, Log: log}

	following, stop := context.WithCancel(ctx)
	defer stop()
	door := &standbyDoor{follower: f, stop: stop, stopped: make(chan struct{}), answered: make(chan struct{}),
		promote: func(ctx context.Context) (standby.Epoch, error) {
			return standby.Promote(ctx, c.Data, git, time.Now(), hostName())
		}}
	closeDoor, err := door.open(c, log)
	if err != nil {
		return false, err
	}
	log.Info("following", "of", source.Of)
	err = f.Run(following)
	close(door.stopped)
	if !door.asked.CompareAndSwap(false, true) {
		<-door.answered
	}
	closeDoor()
	return door.done.Load(), err
}
