package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/signin"
)

// followed is a ramus that a stand-by follows.
type followed struct {
	*gitServer
	second string // the stand-by's copy of the repository
}

// follow starts a ramus with a repository and a stand-by of it.
func (b *bench) follow(ctx context.Context, r *repository, sync bool) (*followed, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	l.Close()
	// With standby.alone the first token can be made before there is a stand-by.
	h, err := b.house(ctx, "standby", 0, "RAMUS_LISTEN="+address, "RAMUS_STANDBY_ALLOW=true", "RAMUS_STANDBY_ALONE=true",
		fmt.Sprintf("RAMUS_STANDBY_SYNC=%t", sync))
	if err != nil {
		return nil, err
	}
	token, err := h.client.NewToken(ctx, signin.NewToken{Subject: "bench", Scopes: []string{"admin"}})
	if err != nil {
		return nil, err
	}
	data, err := os.MkdirTemp(b.dir, "standby-")
	if err != nil {
		return nil, err
	}
	b.onExit(func(context.Context) error { return os.RemoveAll(data) })
	h.url = "http://" + address
	env := []string{"RAMUS_DATA=" + data, "RAMUS_LISTEN=", "RAMUS_LOG_LEVEL=warn", "RAMUS_TOKEN=" + token.Token}
	if _, err := b.start(ctx, "a stand-by", env, nil, b.ramus, "standby", "--of", h.url); err != nil {
		return nil, err
	}
	err = until(ctx, time.Millisecond, func() (bool, error) {
		st, err := h.client.Standby(ctx)
		return err == nil && len(st.Standbys) == 1 && !st.Standbys[0].At.IsZero(), err
	})
	if err != nil {
		return nil, err
	}
	if _, err := h.client.CreateRepo(ctx, gateway.CreateRepo{Name: r.name, Source: r.dir}, func(string) {}); err != nil {
		return nil, err
	}
	copied := filepath.Join("repos", r.name+".git")
	f := &followed{gitServer: &gitServer{server: h.server, repo: h.url + "/" + r.name + ".git", user: "bench:" + token.Token,
		dir: filepath.Join(h.data, copied)}, second: filepath.Join(data, copied)}
	tip, err := gitIn(ctx, f.dir, "rev-parse", "main")
	if err != nil {
		return nil, err
	}
	return f, until(ctx, 20*time.Millisecond, func() (bool, error) {
		got, err := gitIn(ctx, f.second, "rev-parse", "main")
		return err == nil && got == tip, nil
	})
}

// until returns when done returns true.
func until(ctx context.Context, every time.Duration, done func() (bool, error)) error {
	again := time.NewTicker(every)
	defer again.Stop()
	late := time.NewTimer(starting)
	defer late.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-again.C:
		case <-late.C:
			return errors.New("the stand-by does not get what its server has")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// followedPushes measures pushes to a server that a stand-by follows, and how long the stand-by takes to have them.
func followedPushes(ctx context.Context, b *bench) error {
	r, err := b.repository(ctx, small)
	if err != nil {
		return err
	}
	on, err := parentIn(ctx, r.dir, "refs/heads/main")
	if err != nil {
		return err
	}
	const all = pushersAtOnce * pushesEach
	prepared := make([]push, (b.rounds+1)*all)
	for i := range prepared {
		prepared[i] = prepare(on, fmt.Sprintf("refs/heads/pushed/%d", i), i)
	}
	lag := metric{"lag of the stand-by after the last answer", "ms"}
	c := comparison{metrics: []metric{wall, lag}}
	const alone = "standby.sync: false"
	for _, s := range []struct {
		name string
		sync bool
	}{{sideRamus, true}, {alone, false}} {
		f, err := b.follow(ctx, r, s.sync)
		if err != nil {
			return err
		}
		c.sides = append(c.sides, side{name: s.name, round: func(ctx context.Context, n int) ([]float64, error) {
			mine := prepared[n*all : (n+1)*all]
			v, err := f.storm(ctx, pushersAtOnce, func(ctx context.Context, i int) error {
				c := f.client()
				defer c.close()
				for _, p := range mine[i*pushesEach : (i+1)*pushesEach] {
					if err := c.push(ctx, p); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
			answered := time.Now()
			for _, p := range mine {
				err := until(ctx, time.Millisecond, func() (bool, error) {
					if _, err := os.Stat(filepath.Join(f.second, p.ref)); err == nil {
						return true, nil
					}
					packed, err := os.ReadFile(filepath.Join(f.second, "packed-refs"))
					return err == nil && bytes.Contains(packed, []byte(p.new+" "+p.ref+"\n")), nil
				})
				if err != nil {
					return nil, err
				}
			}
			late := ms(time.Since(answered))
			last := mine[all-1]
			if tip, err := gitIn(ctx, f.second, "rev-parse", last.ref); err != nil || tip != last.new {
				return nil, fmt.Errorf("%s is at %q, want %s (%w)", last.ref, tip, last.new, err)
			}
			return []float64{v[0], late}, nil
		}})
	}
	m, err := b.compare(ctx, c)
	if err != nil {
		return err
	}
	b.addPair(m, "32 pushes, standby.sync: false", lag.what, alone, "", below(2000))
	b.add(m, "32 pushes, standby.sync", lag.what, "", below(10)).note("each push is answered when the stand-by has it")
	b.add(m, "32 pushes, standby.sync", wall.what, alone, target{})
	return nil
}
