package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
)

// grow adds one point of a curve. It adds a row for each other side, and the chart's points.
func (b *bench) grow(c *chart, m *measured, label string, x float64, what string) {
	for i, name := range m.names {
		if s := statOf(m.of[i][m.metric(what)]); s.N > 0 {
			c.add(name, x, s.Median)
			if i > 0 || len(m.names) == 1 {
				b.add(m, label, what, name, target{})
			}
		}
	}
}

func growthFiles(ctx context.Context, b *bench) error {
	h, err := b.house(ctx, "files", 1)
	if err != nil {
		return err
	}
	c := chart{Name: b.scenario, Title: "A new caller's first output", X: "files of the repository", Y: "milliseconds"}
	for i, files := range []int{400, 2_000, 10_000, 27_000, 80_000} {
		r, err := b.repository(ctx, shape{name: fmt.Sprintf("files-%d", files), files: files, commits: 20})
		if err != nil {
			return err
		}
		if _, err := h.take(ctx, r); err != nil {
			return err
		}
		x := comparison{metrics: []metric{firstOutput}, sides: []side{h.cold(sideRamus, r)}, rounds: 7, noWarmUp: i > 0}
		if h.api != nil {
			plain, err := b.plainRun(h.api)
			if err != nil {
				return err
			}
			x.sides = append(x.sides, plain, cloneRun(h.api, r, 10))
		}
		m, err := b.compare(ctx, x)
		if err != nil {
			return err
		}
		b.grow(&c, m, thousands(int64(files))+" files", float64(files), firstOutput.what)
	}
	b.report.Charts = append(b.report.Charts, c)
	return nil
}

func growthChange(ctx context.Context, b *bench) error {
	h, r, err := b.furnished(ctx, "change", 1, medium)
	if err != nil {
		return err
	}
	c := chart{Name: b.scenario, Title: "A caller's first output in a new container",
		X: "files that its branch changes", Y: "milliseconds"}
	for _, files := range []int{1, 10, 100, 1000} {
		caller := h.name()
		x, err := h.exec(ctx, caller, r.name, record.Command{Shell: fmt.Sprintf(
			`mkdir change; i=0; while [ $i -lt %d ]; do echo "file $i" >change/file-$i; i=$((i+1)); done; ls change | wc -l`, files)})
		if err == nil {
			err = x.printed(fmt.Sprintf("%d\n", files))
		}
		if err != nil {
			return err
		}
		mine := side{name: sideRamus,
			settle: func(ctx context.Context) error {
				if _, err := h.client.StopCaller(ctx, caller); err != nil {
					return err
				}
				return h.settled(ctx)
			},
			round: func(ctx context.Context, _ int) ([]float64, error) {
				x, err := h.exec(ctx, caller, r.name, record.Command{Args: []string{"cat", "change/file-0"}})
				if err != nil {
					return nil, err
				}
				return []float64{ms(x.first)}, x.printed("file 0\n")
			}}
		sides := []side{mine}
		if h.api != nil {
			plain, err := b.plainRun(h.api)
			if err != nil {
				return err
			}
			sides = append(sides, plain)
		}
		m, err := b.compare(ctx, comparison{metrics: []metric{firstOutput}, sides: sides, rounds: 7})
		if err != nil {
			return err
		}
		b.grow(&c, m, thousands(int64(files))+" files changed", float64(files), firstOutput.what)
	}
	b.report.Charts = append(b.report.Charts, c)
	return nil
}

func growthCallers(ctx context.Context, b *bench) error {
	r, err := b.repository(ctx, medium)
	if err != nil {
		return err
	}
	c := chart{Name: b.scenario, Title: "New callers at once", X: "callers",
		Y: "milliseconds to first output (90th percentile)"}
	for _, callers := range []int{1, 5, 20, 50, 100, 200} {
		kept := len(b.exits)
		if err := b.growCallers(ctx, &c, r, callers); err != nil {
			return err
		}
		if err := b.exitTo(ctx, kept); err != nil { // its containers are removed before those of the next one start
			return err
		}
	}
	b.report.Charts = append(b.report.Charts, c)
	return nil
}

func (b *bench) growCallers(ctx context.Context, c *chart, r *repository, callers int) error {
	h, err := b.house(ctx, "crowd", callers)
	if err != nil {
		return err
	}
	if _, err := h.take(ctx, r); err != nil {
		return err
	}
	x := comparison{metrics: []metric{atOnce}, sides: []side{h.crowd(r, callers)}, rounds: 3, noWarmUp: true}
	if callers >= 50 {
		x.rounds = 1
	}
	if h.api != nil {
		plain, err := b.crowdOfRuns(h.api, callers)
		if err != nil {
			return err
		}
		x.sides = append(x.sides, plain)
	}
	m, err := b.compare(ctx, x)
	if err != nil {
		return err
	}
	b.grow(c, m, fmt.Sprintf("%d callers", callers), float64(callers), atOnce.what)
	return nil
}

func growthBranches(ctx context.Context, b *bench) error {
	refs := chart{Name: b.scenario + "-refs", Title: "Advertisement and ls-refs", X: "branches of the repository",
		Y: "requests a second"}
	clones := chart{Name: b.scenario + "-clone", Title: "32 clones of 32 branches, depth 1",
		X: "branches of the repository", Y: "milliseconds"}
	rate := metric{"requests", "/s"}
	for _, branches := range []int{10, 100, 1_000, 10_000} {
		r, err := b.repository(ctx,
			shape{name: fmt.Sprintf("branches-%d", branches), files: 961, commits: 200, branches: branches})
		if err != nil {
			return err
		}
		kept := len(b.exits)
		servers, err := b.gitServers(ctx, r)
		if err != nil {
			return err
		}
		one := comparison{metrics: []metric{rate, cpuEach}, rounds: 5}
		two := comparison{metrics: []metric{wall, cpuEach}, rounds: 5, noWarmUp: true}
		for _, g := range servers {
			one.sides = append(one.sides, side{name: g.name, round: refsRate(g, 4, 300*time.Millisecond, branches+2)})
			two.sides = append(two.sides, cloner(g, stormOf, func(n, i int) clone {
				return clone{ref: fmt.Sprintf("refs/heads/task-%d", (n*stormOf+i)%branches), depth: 1}
			}))
		}
		label := thousands(int64(branches)) + " branches"
		m, err := b.compare(ctx, one)
		if err != nil {
			return err
		}
		b.grow(&refs, m, label, float64(branches), rate.what)
		if m, err = b.compare(ctx, two); err != nil {
			return err
		}
		b.grow(&clones, m, label+", depth 1", float64(branches), wall.what)
		if err := b.exitTo(ctx, kept); err != nil {
			return err
		}
	}
	b.report.Charts = append(b.report.Charts, refs, clones)
	return nil
}
