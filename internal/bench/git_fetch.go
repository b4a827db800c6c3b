package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

const stormOf = 32

func cloneStorm(ctx context.Context, b *bench) error {
	r, servers, err := b.serve(ctx, served)
	if err != nil {
		return err
	}
	packs, err := filepath.Glob(filepath.Join(r.dir, "objects/pack/*.pack"))
	if err != nil || len(packs) != 1 {
		return fmt.Errorf("%s has %d packs, want one", r.dir, len(packs))
	}
	info, err := os.Stat(packs[0])
	if err != nil {
		return err
	}
	static, err := b.static(ctx, filepath.Dir(packs[0]))
	if err != nil {
		return err
	}
	file := static.url + "/" + filepath.Base(packs[0])

	kinds := []struct {
		label     string
		what      clone
		wall, cpu target
	}{
		{"full", clone{ref: "HEAD"}, atMost(1.0 / 7), atMost(1.0 / 25)},
		{"depth 1", clone{ref: "HEAD", depth: 1}, atMost(1.0 / 40), atMost(1.0 / 100)},
		{"blob:none", clone{ref: "HEAD", filter: "blob:none"}, target{}, target{}},
	}
	for _, k := range kinds {
		c := comparison{metrics: []metric{wall, cpuEach}}
		for _, g := range servers {
			c.sides = append(c.sides, cloner(g, stormOf, func(int, int) clone { return k.what }))
		}
		if k.label == "full" {
			c.sides = append(c.sides, side{name: sideStatic, round: func(ctx context.Context, _ int) ([]float64, error) {
				return static.storm(ctx, stormOf,
					func(ctx context.Context, _ int) error { return fileOf(ctx, file, info.Size()) })
			}})
		}
		m, err := b.compare(ctx, c)
		if err != nil {
			return err
		}
		for i, s := range c.sides[1:] {
			wallTarget, cpuTarget := k.wall, k.cpu
			if s.name == sideStatic {
				wallTarget, cpuTarget = atMost(1.3), target{}
			}
			if i > 0 && s.name != sideStatic {
				wallTarget, cpuTarget = target{}, target{} // reported once, in the row of git's own server
			}
			b.add(m, k.label, wall.what, s.name, wallTarget)
			b.add(m, k.label, cpuEach.what, s.name, cpuTarget)
		}
	}

	peak := comparison{metrics: []metric{{"peak memory", "MB"}, {"of it, no program's file", "MB"}}, rounds: 3,
		noWarmUp: true}
	for _, g := range servers {
		peak.sides = append(peak.sides, side{name: g.name, round: func(ctx context.Context, n int) ([]float64, error) {
			stop := g.watch()
			err := together(ctx, stormOf, func(ctx context.Context, _ int) error {
				c := g.client()
				defer c.close()
				_, err := c.clone(ctx, clone{ref: "HEAD"})
				return err
			})
			mb, own := stop()
			return []float64{mb, own}, err
		}})
	}
	m, err := b.compare(ctx, peak)
	if err != nil {
		return err
	}
	for i, s := range peak.sides[1:] {
		t := below(25).onlyFor(i == 0)
		b.add(m, "full", "peak memory", s.name, t)
		b.add(m, "full", "of it, no program's file", s.name, target{})
	}
	return nil
}

func branchStorm(ctx context.Context, b *bench) error {
	r, servers, err := b.serve(ctx, tasked)
	if err != nil {
		return err
	}
	for _, k := range []struct {
		label string
		depth int
		wall  target
	}{{"depth 1", 1, atMost(0.1)}, {"full", 0, target{}}} {
		// No two rounds request a branch in the same way, so that no server has the response in a cache.
		c := comparison{metrics: []metric{wall, cpuEach}, rounds: r.branches/stormOf - 1}
		for _, g := range servers {
			c.sides = append(c.sides, cloner(g, stormOf, func(n, i int) clone {
				return clone{ref: fmt.Sprintf("refs/heads/task-%d", n*stormOf+i), depth: k.depth}
			}))
		}
		m, err := b.compare(ctx, c)
		if err != nil {
			return err
		}
		for i, s := range c.sides[1:] {
			t := k.wall.onlyFor(i == 0)
			b.add(m, k.label, wall.what, s.name, t)
			b.add(m, k.label, cpuEach.what, s.name, target{})
		}
	}
	return nil
}

// refsRate returns a round in which clients request the advertisement and the refs in turn, each on one connection. The
// round returns the requests per second and the server's CPU time for each.
func refsRate(g *gitServer, clients int, long time.Duration, refs int) func(ctx context.Context, n int) ([]float64, error) {
	return func(ctx context.Context, _ int) ([]float64, error) {
		var count atomic.Int64
		before, begin := g.cpu(), time.Now()
		err := together(ctx, clients, func(ctx context.Context, _ int) error {
			c := g.client()
			defer c.close()
			for time.Since(begin) < long {
				if err := c.capabilities(ctx); err != nil {
					return err
				}
				got, err := c.refs(ctx, "HEAD", "refs/heads/")
				if err != nil {
					return err
				}
				if len(got) != refs {
					return fmt.Errorf("%d refs came, want %d", len(got), refs)
				}
				count.Add(2)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		n := float64(count.Load())
		return []float64{n / time.Since(begin).Seconds(), (g.cpu() - before) / n}, nil
	}
}

func lsRefs(ctx context.Context, b *bench) error {
	_, servers, err := b.serve(ctx, served)
	if err != nil {
		return err
	}
	rate := metric{"requests", "/s"}
	c := comparison{metrics: []metric{rate, cpuEach}}
	for _, g := range servers {
		c.sides = append(c.sides, side{name: g.name, round: refsRate(g, 16, 500*time.Millisecond, 2)})
	}
	m, err := b.compare(ctx, c)
	if err != nil {
		return err
	}
	for i, s := range c.sides[1:] {
		t := atLeast(10).onlyFor(i == 0)
		x := b.add(m, "16 clients", rate.what, s.name, t)
		if x.State == stateMissed && x.Ramus.Median >= 5000 {
			x.State = stateMet
			x.note("5,000/s will do as well")
		}
		b.add(m, "16 clients", cpuEach.what, s.name, target{})
	}
	return nil
}

func realClones(ctx context.Context, b *bench) error {
	r, servers, err := b.serve(ctx, served)
	if err != nil {
		return err
	}
	for _, k := range []struct {
		label string
		n     int
		args  []string
	}{
		{"ls-remote", 1, []string{"ls-remote", "-q", "URL"}},
		{"16 × clone --depth 1", 16, []string{"clone", "-q", "--depth", "1", "URL", "DIR"}},
		{"one full clone", 1, []string{"clone", "-q", "URL", "DIR"}},
	} {
		c := comparison{metrics: []metric{wall, cpuEach}}
		for _, g := range servers {
			made := ""
			c.sides = append(c.sides, side{name: g.name,
				settle: func(context.Context) (err error) {
					if err := os.RemoveAll(made); made != "" && err != nil {
						return err
					}
					made, err = os.MkdirTemp(b.dir, "clones-")
					return err
				},
				round: func(ctx context.Context, _ int) ([]float64, error) {
					v, err := g.storm(ctx, k.n, func(ctx context.Context, i int) error {
						return g.git(ctx, filepath.Join(made, fmt.Sprint(i)), k.args)
					})
					if err != nil || k.args[0] != "clone" {
						return v, err
					}
					for i := range k.n {
						tip, err := gitIn(ctx, filepath.Join(made, fmt.Sprint(i)), "rev-parse", "HEAD")
						if err != nil || tip != r.tip {
							return nil, fmt.Errorf("the clone is at %q, want %s (%w)", tip, r.tip, err)
						}
					}
					if out, err := gitIn(ctx, filepath.Join(made, "0"), "status", "--porcelain"); err != nil || out != "" {
						return nil, fmt.Errorf("the clone's work tree is not clean: %q (%w)", out, err)
					}
					return v, nil
				}})
		}
		m, err := b.compare(ctx, c)
		if err != nil {
			return err
		}
		for _, s := range c.sides[1:] {
			x := b.add(m, k.label, wall.what, s.name, target{})
			if k.label == "one full clone" {
				x.note("the client's own work: nothing is claimed")
			}
			b.add(m, k.label, cpuEach.what, s.name, target{})
		}
	}
	return nil
}

// git runs a command of stock git with the repository's address and a folder.
func (g *gitServer) git(ctx context.Context, dir string, args []string) error {
	address := g.repo
	if name, token, ok := strings.Cut(g.user, ":"); ok {
		u, err := url.Parse(address)
		if err != nil {
			return err
		}
		u.User = url.UserPassword(name, token)
		address = u.String()
	}
	out := make([]string, len(args))
	for i, a := range args {
		switch a {
		case "URL":
			a = address
		case "DIR":
			a = dir
		}
		out[i] = a
	}
	_, err := gitIn(ctx, "", out...)
	return err
}

// stalledClients is the number of clients that stop reading.
const stalledClients = 200

func stalled(ctx context.Context, b *bench) error {
	r, servers, err := b.serve(ctx, served)
	if err != nil {
		return err
	}
	c := comparison{metrics: []metric{{"processes", ""}, {"memory", "MB"}}, rounds: 1, noWarmUp: true}
	for _, g := range servers {
		c.sides = append(c.sides, side{name: g.name, round: func(ctx context.Context, _ int) ([]float64, error) {
			return stall(ctx, g, r.tip)
		}})
	}
	m, err := b.compare(ctx, c)
	if err != nil {
		return err
	}
	for i, s := range c.sides[1:] {
		processes, memory := below(1).onlyFor(i == 0), below(30).onlyFor(i == 0)
		b.add(m, "", "processes", s.name, processes)
		b.add(m, "", "memory", s.name, memory)
	}
	return nil
}

// stall opens clones that no client reads, and measures the server once it has served them all.
func stall(ctx context.Context, g *gitServer, tip string) ([]float64, error) {
	// One client reads first, because memory that serves all clients is not measured here.
	c := g.client()
	defer c.close()
	if _, err := c.clone(ctx, clone{ref: "HEAD"}); err != nil {
		return nil, err
	}
	u, err := url.Parse(g.repo)
	if err != nil {
		return nil, err
	}
	conns := make([]net.Conn, stalledClients)
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}()
	body := fetchBody([]string{tip}, clone{})
	err = together(ctx, stalledClients, func(ctx context.Context, i int) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", u.Host)
		if err != nil {
			return err
		}
		conns[i] = conn
		if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			return err
		}
		w := bufio.NewWriter(conn)
		fmt.Fprintf(w, "POST %s/git-upload-pack HTTP/1.1\r\nHost: %s\r\nGit-Protocol: version=2\r\n", u.Path, u.Host)
		fmt.Fprintf(w, "Content-Type: application/x-git-upload-pack-request\r\nContent-Length: %d\r\n", body.Len())
		if g.user != "" {
			fmt.Fprintf(w, "Authorization: Basic %s\r\n", basic(g.user))
		}
		fmt.Fprintf(w, "\r\n%s", body.Bytes())
		return w.Flush()
	})
	if err != nil {
		return nil, err
	}
	// All are served when neither the number of processes nor the CPU time changes any more.
	var processes int
	var used float64
	for quiet := 0; quiet < 10; {
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
		p, u := len(g.pids()), g.cpu()
		if quiet++; p != processes || u-used > 5 {
			quiet = 0
		}
		processes, used = p, u
	}
	mb, _ := g.rss()
	return []float64{float64(processes), mb}, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
