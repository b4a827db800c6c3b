package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/docker"
	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/executor/record"
)

// runner starts a container of ramus and returns the connection to its runner, which has no journal and makes no
// commit. An exec of the engine has neither.
func (b *bench) runner(ctx context.Context) (*containers.Host, error) {
	if b.engine == "sandbox" {
		return b.host(ctx, &sandbox.Engine{Runner: b.ramus, Dir: filepath.Join(b.dir, "sandboxes")})
	}
	return b.host(ctx, &docker.Engine{Runner: b.ramus, Image: b.image})
}

// host starts a container that ends with the scenario, and returns the connection to its runner.
func (b *bench) host(ctx context.Context, e containers.Engine) (*containers.Host, error) {
	f, err := b.fleet(ctx, e, 0)
	if err != nil {
		return nil, err
	}
	lease, err := f.Acquire(ctx, containers.Request{Key: "run:bench"})
	if err != nil {
		return nil, err
	}
	b.onExit(func(context.Context) error { lease.Release(); return nil })
	return lease.Host, nil
}

// fleet opens a fleet that ends with the scenario.
func (b *bench) fleet(ctx context.Context, e containers.Engine, pool int) (*containers.Fleet, error) {
	dir, err := os.MkdirTemp(b.dir, "fleet-")
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	f := &containers.Fleet{Engine: e, Dir: dir, Pool: pool, SleepAfter: time.Hour}
	b.onExit(func(ctx context.Context) error {
		return errors.Join(f.Close(ctx, false), e.Close(), os.RemoveAll(dir))
	})
	return f, f.Open(ctx)
}

// command runs one command by the runner alone.
func command(ctx context.Context, h *containers.Host, n int, out io.Writer, args ...string) error {
	p, err := h.Start(ctx, containers.Command{ID: fmt.Sprintf("bench-%d-%d", n, time.Now().UnixNano()), Args: args})
	if err != nil {
		return err
	}
	exit, err := p.Output(out, io.Discard)
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("%q ended with exit code %d", args, exit.Code)
	}
	return err
}

func warmCommands(ctx context.Context, b *bench) error {
	h, r, err := b.furnished(ctx, "warm", 0, small)
	if err != nil {
		return err
	}
	host, err := b.runner(ctx)
	if err != nil {
		return err
	}
	const rest = "ramus by REST"
	caller := h.name()
	byREST := func(c record.Command) (*execution, error) { return h.exec(ctx, caller, r.name, c) }
	if _, err := byREST(record.Command{Args: []string{"true"}}); err != nil {
		return err
	}

	c := comparison{metrics: []metric{wall}, sides: []side{
		{name: sideRamus, round: timed(func(ctx context.Context,
			n int) error {
			return command(ctx, host, n, io.Discard, "true")
		})},
		{name: rest, round: timed(func(ctx context.Context, _ int) error {
			x, err := byREST(record.Command{Args: []string{"true"}})
			if err != nil {
				return err
			}
			return x.printed("")
		})},
		{name: sideFloor, round: timed(func(ctx context.Context,
			_ int) error {
			return exec.CommandContext(ctx, "true").Run()
		})},
	}}
	var id string
	if h.api != nil {
		if id, err = b.stay(ctx, h.api); err != nil {
			return err
		}
		c.sides = append(c.sides, side{name: sideExec, round: timed(func(ctx context.Context, _ int) error {
			return h.api.exec(ctx, id, io.Discard, "true")
		})})
	}
	m, err := b.compare(ctx, c)
	if err != nil {
		return err
	}
	b.add(m, "exec true, by the runner", wall.what, sideExec, atMost(0.08))
	b.add(m, "exec true, by the runner", wall.what, sideFloor, target{})
	b.addPair(m, "exec true, by REST with journal and record", wall.what, rest, sideExec, target{})

	const size = 100 << 20
	args := []string{"head", "-c", strconv.Itoa(size), "/dev/zero"}
	whole := func(w *zeros, err error) error {
		if err == nil && (w.n != size || w.other) {
			err = fmt.Errorf("%d bytes came, or not the right ones", w.n)
		}
		return err
	}
	c = comparison{metrics: []metric{wall}, sides: []side{
		{name: sideRamus, round: timed(func(ctx context.Context, n int) error {
			w := new(zeros)
			return whole(w, command(ctx, host, n, w, args...))
		})},
		{name: rest, round: timed(func(ctx context.Context, _ int) error {
			w := new(zeros)
			return whole(w, h.execTo(ctx, caller, r.name, record.Command{Args: args}, w))
		})},
		{name: sideFloor, round: timed(func(ctx context.Context, _ int) error {
			w := new(zeros)
			cmd := exec.CommandContext(ctx, args[0], args[1:]...)
			cmd.Stdout = w
			return whole(w, cmd.Run())
		})},
	}}
	if h.api != nil {
		c.sides = append(c.sides, side{name: sideExec, round: timed(func(ctx context.Context, _ int) error {
			w := new(zeros)
			return whole(w, h.api.exec(ctx, id, w, args...))
		})})
	}
	if m, err = b.compare(ctx, c); err != nil {
		return err
	}
	b.add(m, "100 MB of output, by the runner, kept", wall.what, sideExec, atMost(0.6))
	b.add(m, "100 MB of output, by the runner, kept", wall.what, sideFloor, target{})
	b.addPair(m, "100 MB of output, by REST as JSON lines, recorded", wall.what, rest, sideExec, target{})
	return nil
}

// timed returns a round that measures the time of f.
func timed(f func(ctx context.Context, n int) error) func(context.Context, int) ([]float64, error) {
	return func(ctx context.Context, n int) ([]float64, error) {
		begin := time.Now()
		err := f(ctx, n)
		return []float64{ms(time.Since(begin))}, err
	}
}

// zeros counts bytes and checks that each piece begins and ends with a zero.
type zeros struct {
	n     int64
	other bool
}

func (z *zeros) Write(p []byte) (int, error) {
	if len(p) > 0 && (p[0] != 0 || p[len(p)-1] != 0) {
		z.other = true
	}
	z.n += int64(len(p))
	return len(p), nil
}

func commits(ctx context.Context, b *bench) error {
	h, r, err := b.furnished(ctx, "commit", 1, medium)
	if err != nil {
		return err
	}
	caller := h.name()
	edit := func(n int) string {
		var s strings.Builder
		for i := range 3 {
			fmt.Fprintf(&s, "echo 'round %d' >>%s && ", n, r.path(i*4001))
		}
		return s.String() + "echo done"
	}
	if _, err := h.exec(ctx, caller, r.name, record.Command{Args: []string{"true"}}); err != nil {
		return err
	}
	commit, both := metric{"commit", "ms"}, metric{"command and commit", "ms"}
	repo := filepath.Join(h.data, "repos", r.name+".git")
	c := comparison{metrics: []metric{commit, both},
		sides: []side{{name: sideRamus, settle: rest, round: func(ctx context.Context, n int) ([]float64, error) {
			x, err := h.exec(ctx, caller, r.name, record.Command{Shell: edit(n)})
			if err == nil {
				err = x.printed("done\n")
			}
			if err != nil {
				return nil, err
			}
			return []float64{ms(x.all - x.last), ms(x.all)}, changes(ctx, repo, string(x.result.Commit), 3)
		}}}}
	const naive = "add, commit, push"
	if h.api != nil {
		bare := filepath.Join(b.dir, "pushed.git")
		if err := r.copyTo(bare); err != nil {
			return err
		}
		b.onExit(func(context.Context) error { return os.RemoveAll(bare) })
		id, err := b.stay(ctx, h.api, bare+":/repo.git")
		if err != nil {
			return err
		}
		if err := h.api.exec(ctx, id, io.Discard, "sh", "-c", "git clone -q file:///repo.git "+containers.WorkDir+
			"/tree && cd tree && git config user.name A && git config user.email a@example.org"); err != nil {
			return err
		}
		c.sides = append(c.sides,
			side{name: naive, settle: rest, round: func(ctx context.Context, n int) ([]float64, error) {
				if err := h.api.exec(ctx, id, io.Discard, "sh", "-c", "cd tree && "+edit(n)); err != nil {
					return nil, err
				}
				begin := time.Now()
				if err := h.api.exec(ctx, id, io.Discard, "sh", "-c",
					"cd tree && git add -A && git commit -q -m 'A change' && git push -q origin HEAD:refs/heads/bench"); err != nil {
					return nil, err
				}
				return []float64{ms(time.Since(begin)), math.NaN()}, changes(ctx, bare, "refs/heads/bench", 3)
			}},
			side{name: sideExec, settle: rest, round: func(ctx context.Context, _ int) ([]float64, error) {
				begin := time.Now()
				err := h.api.exec(ctx, id, io.Discard, "true")
				return []float64{math.NaN(), ms(time.Since(begin))}, err
			}})
	}
	m, err := b.compare(ctx, c)
	if err != nil {
		return err
	}
	b.add(m, "3 files of 27,000", commit.what, naive,
		atMost(0.05)).note("from the last output to the answer: durable, journalled, recorded")
	b.add(m, "3 files of 27,000", both.what, sideExec, atMost(0.4)).note("against an exec of true that commits nothing")
	return nil
}

// rest pauses between rounds, because the server still works after a response.
func rest(ctx context.Context) error { return pause(ctx, 200*time.Millisecond) }

// changes checks that a commit differs from its parent in want files.
func changes(ctx context.Context, repo, commit string, want int) error {
	if commit == "" {
		return errors.New("nothing was committed")
	}
	out, err := gitIn(ctx, repo, "diff-tree", "-r", "--no-commit-id", "--name-only", commit)
	if n := len(strings.Fields(out)); err == nil && n != want {
		err = fmt.Errorf("the commit changes %d files, want %d", n, want)
	}
	return err
}

func gitStatus(ctx context.Context, b *bench) error {
	h, r, err := b.furnished(ctx, "status", 1, medium)
	if err != nil {
		return err
	}
	caller := h.name()
	// The time is measured inside, around git alone, with one change to find.
	look := func(name, options string) side {
		return side{name: name, settle: rest, round: func(ctx context.Context, n int) ([]float64, error) {
			x, err := h.exec(ctx, caller, r.name, record.Command{Shell: fmt.Sprintf(
				"echo %d >>%s && touch new-%d && b=$(date +%%s%%N) && git %s status --porcelain >/tmp/status; e=$(date +%%s%%N); cat /tmp/status; rm new-%[3]d; echo $((e-b))", n, r.path(1), n, options)})
			if err != nil {
				return nil, err
			}
			lines := strings.Split(strings.TrimSpace(x.text.String()), "\n")
			want := fmt.Sprintf("M %s\n?? new-%d", r.path(1), n)
			ns, err := strconv.ParseFloat(lines[len(lines)-1], 64)
			if got := strings.Join(lines[:len(lines)-1], "\n"); err != nil || got != want {
				return nil, fmt.Errorf("git status says %q, want %q", x.text.String(), want)
			}
			return []float64{ns / 1e6}, nil
		}}
	}
	const without = "without fsmonitor"
	m, err := b.compare(ctx, comparison{metrics: []metric{wall},
		sides: []side{look(sideRamus, ""), look(without, "-c core.fsmonitor=false")}})
	if err != nil {
		return err
	}
	b.add(m, "27,000 files", wall.what, without, atMost(0.5))
	return nil
}
