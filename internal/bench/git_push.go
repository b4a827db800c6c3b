package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"time"
)

func basic(user string) string { return base64.StdEncoding.EncodeToString([]byte(user)) }

// Pushes of one round, concurrent ones and the number of each client's.
const (
	pushersAtOnce = 8
	pushesEach    = 4
)

func pushes(ctx context.Context, b *bench) error {
	r, servers, err := b.serve(ctx, served)
	if err != nil {
		return err
	}
	on, err := parentIn(ctx, r.dir, "refs/heads/main")
	if err != nil {
		return err
	}
	prepared := make([]push, (b.rounds+1)*pushersAtOnce*pushesEach)
	for i := range prepared {
		prepared[i] = prepare(on, fmt.Sprintf("refs/heads/pushed/%d", i), i)
	}
	rate := metric{"pushes", "/s"}
	c := comparison{metrics: []metric{rate, cpuEach}}
	for _, g := range servers {
		c.sides = append(c.sides, side{name: g.name, round: func(ctx context.Context, n int) ([]float64, error) {
			const all = pushersAtOnce * pushesEach
			mine := prepared[n*all : (n+1)*all]
			v, err := g.storm(ctx, pushersAtOnce, func(ctx context.Context, i int) error {
				c := g.client()
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
			last := mine[all-1]
			if tip, err := gitIn(ctx, g.dir, "rev-parse", last.ref); err != nil || tip != last.new {
				return nil, fmt.Errorf("%s is at %q, want %s (%w)", last.ref, tip, last.new, err)
			}
			return []float64{all / (v[0] / 1000), v[1] / pushesEach}, nil
		}})
	}
	m, err := b.compare(ctx, c)
	if err != nil {
		return err
	}
	for _, s := range c.sides[1:] {
		t := target{}
		switch s.name {
		case sideCGI:
			t = atLeast(0.6)
		case sideGitea:
			t = atLeast(10)
		}
		x := b.add(m, "", rate.what, s.name, t)
		if s.name != sideGitea {
			x.note("it neither syncs nor checks")
		}
		b.add(m, "", cpuEach.what, s.name, target{})
	}
	return nil
}

// agedBy is the number of small pushes that age a repository.
const agedBy = 200

func aged(ctx context.Context, b *bench) error {
	r, servers, err := b.serve(ctx, served)
	if err != nil {
		return err
	}
	on, err := parentIn(ctx, r.dir, "refs/heads/main")
	if err != nil {
		return err
	}
	for _, g := range servers {
		err := together(ctx, 4, func(ctx context.Context, i int) error {
			c := g.client()
			defer c.close()
			for n := i; n < agedBy; n += 4 {
				if err := c.push(ctx, prepare(on, fmt.Sprintf("refs/heads/aged/%d", n), n)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	for _, g := range servers {
		if err := quiet(ctx, g); err != nil {
			return err
		}
	}
	// main moves before each round, so that no clone before the first one has made the same request.
	first, again := metric{"server CPU, first", "ms"}, metric{"server CPU, again", "ms"}
	c := comparison{metrics: []metric{first, again}}
	for _, g := range servers {
		line, at := on, 0
		c.sides = append(c.sides, side{name: g.name,
			settle: func(ctx context.Context) error {
				p := prepare(line, "refs/heads/main", 10_000+at)
				p.old, at = line.commit, at+1
				c := g.client()
				defer c.close()
				if err := c.push(ctx, p); err != nil {
					return err
				}
				line.commit = p.new
				return quiet(ctx, g)
			},
			round: func(ctx context.Context, _ int) ([]float64, error) {
				ask := func() error {
					c := g.client()
					defer c.close()
					got, err := c.clone(ctx, clone{ref: "refs/heads/main", all: true})
					if err == nil && got.tip != line.commit {
						err = fmt.Errorf("the clone is at %s, want %s", got.tip, line.commit)
					}
					return err
				}
				before := g.cpu()
				if err := ask(); err != nil {
					return nil, err
				}
				between := g.cpu()
				const more = 4
				for range more {
					if err := ask(); err != nil {
						return nil, err
					}
				}
				return []float64{between - before, (g.cpu() - between) / more}, nil
			}})
	}
	m, err := b.compare(ctx, c)
	if err != nil {
		return err
	}
	for i, s := range c.sides[1:] {
		one, two := atMost(0.4).onlyFor(i == 0), atMost(0.05).onlyFor(i == 0)
		b.add(m, "full clone", first.what, s.name, one)
		b.add(m, "full clone", again.what, s.name, two)
	}
	return nil
}

// quiet waits until a server has finished the work that it does by itself after pushes. The server must use no CPU time
// and its packs must not change for a while.
func quiet(ctx context.Context, g *gitServer) error {
	const still = 700 * time.Millisecond
	packs := func() int {
		names, _ := filepath.Glob(filepath.Join(g.dir, "objects/pack/*"))
		return len(names)
	}
	begin, since, n, used := time.Now(), time.Now(), packs(), g.cpu()
	for time.Since(since) < still && time.Since(begin) < time.Minute {
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
		if m, u := packs(), g.cpu(); m != n || u-used > 2 {
			n, used, since = m, u, time.Now()
		}
	}
	return nil
}
