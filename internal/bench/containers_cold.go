package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/moby/moby/client"
	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
)

// firstOutput is the metric of all sides whose rounds begin with a request for a container.
var firstOutput = metric{"first output", "ms"}

// mark makes a folder that has only the file that every first command prints.
func (b *bench) mark() (string, error) {
	dir := filepath.Join(b.dir, "mark")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, markPath), []byte(markText), 0o644)
}

// plainRun returns a side that runs the same command in a container of the engine. The container has no repository. The
// one file that the command needs is bound.
func (b *bench) plainRun(e *engineAPI) (side, error) {
	dir, err := b.mark()
	return side{name: sideRun, round: func(ctx context.Context, _ int) ([]float64, error) {
		first, out, err := e.run(ctx, []string{dir + ":" + containers.WorkDir + ":ro"}, "cat", markPath)
		if err == nil && out != markText {
			err = fmt.Errorf("it printed %q", out)
		}
		return []float64{ms(first)}, err
	}}, err
}

// cloneRun returns a side that makes a work tree without ramus, by a clone in the container.
func cloneRun(e *engineAPI, r *repository, every int) side {
	return side{name: sideClone, every: every, round: func(ctx context.Context, _ int) ([]float64, error) {
		first, out, err := e.run(ctx, []string{r.dir + ":/repo.git:ro"}, "sh", "-c",
			"git clone -q file:///repo.git tree 2>/dev/null && cat tree/"+markPath)
		if err == nil && out != markText {
			err = fmt.Errorf("it printed %q", out)
		}
		return []float64{ms(first)}, err
	}}
}

// floor returns a side that runs the same command as a process of this machine.
func (b *bench) floor() (side, error) {
	dir, err := b.mark()
	return side{name: sideFloor, round: func(ctx context.Context, _ int) ([]float64, error) {
		w := &firstWriter{begin: time.Now()}
		cmd := exec.CommandContext(ctx, "cat", markPath)
		cmd.Dir, cmd.Stdout = dir, w
		err := cmd.Run()
		if err == nil && w.text.String() != markText {
			err = fmt.Errorf("it printed %q", w.text.String())
		}
		return []float64{ms(w.first)}, err
	}}, err
}

func coldCaller(ctx context.Context, b *bench) error {
	h, err := b.house(ctx, "cold", 2)
	if err != nil {
		return err
	}
	var plain side
	floor, err := b.floor()
	if err != nil {
		return err
	}
	c := comparison{metrics: []metric{firstOutput}}
	var repos []*repository
	for _, s := range []shape{small, medium, large} {
		r, err := b.repository(ctx, s)
		if err != nil {
			return err
		}
		took, err := h.take(ctx, r)
		if err != nil {
			return err
		}
		if took > 0 {
			b.tell(thousands(int64(s.files))+" files, base layer made", "ms", ms(took), target{},
				"once a base commit, in the background")
		}
		repos = append(repos, r)
		c.sides = append(c.sides, h.cold(s.name, r))
	}
	if h.api != nil {
		if plain, err = b.plainRun(h.api); err != nil {
			return err
		}
		c.sides = append(c.sides, plain, cloneRun(h.api, repos[1], 5))
	}
	copied, err := b.copyFloor(ctx, repos[1])
	if err != nil {
		return err
	}
	c.sides = append(c.sides, floor, copied)
	m, err := b.compare(ctx, c)
	if err != nil {
		return err
	}
	for _, r := range repos {
		label := thousands(int64(r.files)) + " files"
		if h.api != nil {
			b.addPair(m, label, firstOutput.what, r.name, sideRun, atMost(0.1))
		}
		switch r.name {
		case medium.name:
			if h.api != nil {
				b.addPair(m, label, firstOutput.what, r.name, sideClone, target{})
			}
			b.addPair(m, label, firstOutput.what, r.name, copied.name, target{}).note("the floor of any check-out")
		case large.name:
			b.addPair(m, label, firstOutput.what, r.name, small.name, atMost(1.3)).note("against ramus with 437 files")
		case small.name:
			b.addPair(m, label, firstOutput.what, r.name, sideFloor, target{}).note("the floor of any command")
		}
	}
	return nil
}

// copyFloor returns a side that copies a checked-out tree, which is the minimal cost of a private copy.
func (b *bench) copyFloor(ctx context.Context, r *repository) (side, error) {
	tree := filepath.Join(b.dir, "tree")
	if err := os.MkdirAll(tree, 0o755); err != nil {
		return side{}, err
	}
	if _, err := gitIn(ctx, r.dir, "--work-tree="+tree, "checkout", "-q", "-f", "main", "--", "."); err != nil {
		return side{}, err
	}
	// The index belongs to the check-out, not to the repository.
	if err := os.Remove(filepath.Join(r.dir, "index")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return side{}, err
	}
	b.onExit(func(context.Context) error { return os.RemoveAll(tree) })
	to := tree + "-copy"
	return side{name: "cp -a", every: 5,
		settle: func(context.Context) error { return os.RemoveAll(to) },
		round: func(ctx context.Context, _ int) ([]float64, error) {
			begin := time.Now()
			out, err := exec.CommandContext(ctx, "cp", "-a", tree, to).CombinedOutput()
			took := time.Since(begin)
			if err != nil {
				return nil, fmt.Errorf("cp: %w: %s", err, out)
			}
			text, err := os.ReadFile(filepath.Join(to, markPath))
			if err == nil && string(text) != markText {
				err = errors.New("the copy is not the same")
			}
			return []float64{ms(took)}, joined(err, os.RemoveAll(to))
		}}, nil
}

func coldWithoutPool(ctx context.Context, b *bench) error {
	r, err := b.repository(ctx, medium)
	if err != nil {
		return err
	}
	const depth = 4
	warm, err := b.house(ctx, "warmup", depth)
	if err != nil {
		return err
	}
	tiny, err := b.repository(ctx, small)
	if err != nil {
		return err
	}
	begin := time.Now()
	if _, err := warm.take(ctx, tiny); err != nil {
		return err
	}
	if warm.api != nil && !warm.poolless {
		b.tell("filling the pool, a container", "ms", ms(time.Since(begin))/depth, target{},
			"ahead of callers, at low priority; no caller waits for it")
	}

	h, err := b.house(ctx, "poolless", 0)
	if err != nil {
		return err
	}
	if _, err := h.take(ctx, r); err != nil {
		return err
	}
	c := comparison{metrics: []metric{firstOutput}, sides: []side{h.cold(sideRamus, r)}}
	if h.api != nil {
		plain, err := b.plainRun(h.api)
		if err != nil {
			return err
		}
		c.sides = append(c.sides, plain)
	}
	m, err := b.compare(ctx, c)
	if err != nil {
		return err
	}
	b.add(m, "27,000 files, no pool", firstOutput.what, sideRun, atMost(1))
	return nil
}

// kill kills process 1 of a caller's container.
func (h *house) kill(ctx context.Context, caller string) error {
	if h.api == nil {
		return unable("only containers of Docker are killed here")
	}
	st, err := h.client.Caller(ctx, caller)
	if err != nil {
		return err
	}
	if st.Container == nil {
		return fmt.Errorf("%s has no container", caller)
	}
	id := st.Container.ID
	c, err := h.api.api.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return err
	}
	if err := syscall.Kill(c.Container.State.Pid, syscall.SIGKILL); errors.Is(err, os.ErrPermission) {
		_, err = h.api.api.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "KILL"})
		return err
	} else if err != nil {
		return fmt.Errorf("cannot kill the container of %s: %w", caller, err)
	}
	return nil
}

func rebuild(ctx context.Context, b *bench) error {
	r, err := b.repository(ctx, medium)
	if err != nil {
		return err
	}
	h, err := b.house(ctx, "rebuild", 2)
	if err != nil {
		return err
	}
	if h.api == nil {
		return unable("only containers of Docker are killed here")
	}
	if _, err := h.take(ctx, r); err != nil {
		return err
	}
	caller := h.name()
	change := `mv packages/package-001 packages/moved && rm packages/package-000/src/module-00/file-01.js && printf 'a change\n' >changed.txt && echo done`
	x, err := h.exec(ctx, caller, r.name, record.Command{Shell: change})
	if err == nil {
		err = x.printed("done\n")
	}
	if err != nil {
		return err
	}
	tree, err := gitIn(ctx, filepath.Join(h.data, "repos", r.name+".git"), "rev-parse", string(x.result.Commit)+"^{tree}")
	if err != nil {
		return err
	}
	mine := side{name: sideRamus,
		settle: func(ctx context.Context) error {
			if x, err := h.exec(ctx, caller, r.name, record.Command{Args: []string{"true"}}); err != nil || x.result.ExitCode != 0 {
				return fmt.Errorf("the caller's container cannot be woken: %w", err)
			}
			return h.settled(ctx)
		},
		round: func(ctx context.Context, _ int) ([]float64, error) {
			if err := h.kill(ctx, caller); err != nil {
				return nil, err
			}
			x, err := h.exec(ctx, caller, r.name, record.Command{Args: []string{"cat", "changed.txt"}})
			if err == nil {
				err = x.printed("a change\n")
			}
			if err != nil {
				return nil, err
			}
			// According to git, the whole work tree must equal the branch's tree, and the index must agree.
			check, err := h.exec(ctx, caller, r.name,
				record.Command{Shell: "git status --porcelain | head -5; export GIT_INDEX_FILE=/tmp/index; git read-tree --empty; git add -A . && git write-tree; rm -f /tmp/index"})
			if err == nil {
				err = check.printed(tree + "\n")
			}
			return []float64{ms(x.first)}, err
		}}
	plain, err := b.plainRun(h.api)
	if err != nil {
		return err
	}
	m, err := b.compare(ctx, comparison{metrics: []metric{firstOutput}, sides: []side{mine, plain}})
	if err != nil {
		return err
	}
	b.add(m, "27,000 files, from the kill, tree identical", firstOutput.what, sideRun, atMost(0.15))
	return nil
}

// atOnce is a metric of several callers, the 90th percentile of the times of their first outputs.
var atOnce = metric{"p90 of first outputs", "ms"}

// crowd returns a side of n concurrent new callers.
func (h *house) crowd(r *repository, n int) side {
	var came []string
	return side{name: sideRamus,
		settle: func(ctx context.Context) error {
			err := together(ctx, len(came), func(ctx context.Context, i int) error {
				_, err := h.client.StopCaller(ctx, came[i])
				return err
			})
			came = nil
			return joined(err, h.settled(ctx))
		},
		round: func(ctx context.Context, _ int) ([]float64, error) {
			names := make([]string, n)
			for i := range names {
				names[i] = h.name()
			}
			came = names
			return crowd(ctx, n, func(ctx context.Context, i int) (time.Duration, error) {
				x, err := h.exec(ctx, names[i], r.name, record.Command{Args: []string{"cat", markPath}})
				if err != nil {
					return 0, err
				}
				return x.first, x.printed(markText)
			})
		}}
}

// crowdOfRuns returns a side of n concurrent containers of the engine.
func (b *bench) crowdOfRuns(e *engineAPI, n int) (side, error) {
	dir, err := b.mark()
	return side{name: sideRun, round: func(ctx context.Context, _ int) ([]float64, error) {
		return crowd(ctx, n, func(ctx context.Context, _ int) (time.Duration, error) {
			first, out, err := e.run(ctx, []string{dir + ":" + containers.WorkDir + ":ro"}, "cat", markPath)
			if err == nil && out != markText {
				err = fmt.Errorf("it printed %q", out)
			}
			return first, err
		})
	}}, err
}

func crowd(ctx context.Context, n int, one func(ctx context.Context, i int) (time.Duration, error)) ([]float64, error) {
	firsts := make([]float64, n)
	err := together(ctx, n, func(ctx context.Context, i int) error {
		d, err := one(ctx, i)
		firsts[i] = ms(d)
		return err
	})
	if err != nil {
		return nil, err
	}
	return []float64{quantile(known(firsts), 0.9)}, nil
}

func burst(ctx context.Context, b *bench) error {
	const callers = 20
	h, r, err := b.furnished(ctx, "burst", callers, medium)
	if err != nil {
		return err
	}
	c := comparison{metrics: []metric{atOnce}, sides: []side{h.crowd(r, callers)}, noWarmUp: true}
	if h.api != nil {
		plain, err := b.crowdOfRuns(h.api, callers)
		if err != nil {
			return err
		}
		c.sides = append(c.sides, plain)
	}
	m, err := b.compare(ctx, c)
	if err != nil {
		return err
	}
	b.add(m, "20 callers, pool of 20, 27,000 files", atOnce.what, sideRun, atMost(0.05))
	return nil
}

func idleContainers(ctx context.Context, b *bench) error {
	h, r, err := b.furnished(ctx, "idle", 0, small)
	if err != nil {
		return err
	}
	before := available()
	var pids []int
	for range b.idle {
		x, err := h.exec(ctx, h.name(), r.name, record.Command{Args: []string{"cat", markPath}})
		if err == nil {
			err = x.printed(markText)
		}
		if err != nil {
			return err
		}
		st, err := h.client.Caller(ctx, x.caller)
		if err != nil || st.Container == nil || h.api == nil {
			continue
		}
		c, err := h.api.api.ContainerInspect(ctx, st.Container.ID, client.ContainerInspectOptions{})
		if err != nil {
			return err
		}
		pids = append(pids, c.Container.State.Pid)
	}
	if err := pause(ctx, 5*time.Second); err != nil { // work that the last starts and ends have left
		return err
	}
	n := float64(b.idle)
	b.tell(fmt.Sprintf("%d bound containers, memory each", b.idle), "MB", (before-available())/n, below(16),
		"what the machine has less, engine and shims included")
	if len(pids) == 0 {
		return nil
	}
	share, used := 0.0, 0.0
	for _, pid := range pids {
		kb, _ := pss(pid)
		share += kb / 1024
		used -= ranFor(pid)
	}
	server := -h.cpu()
	const long = 15 * time.Second
	if err := pause(ctx, long); err != nil {
		return err
	}
	for _, pid := range pids {
		used += ranFor(pid)
	}
	server += h.cpu()
	b.tell("of it the runner", "MB", share/n, target{}, "its share of pages")
	b.tell(fmt.Sprintf("%d idle for 15 s, CPU of all runners", b.idle), "% of a core", 100*used/ms(long), below(0.5), "")
	b.tell("the same time, CPU of ramus", "% of a core", 100*server/ms(long), below(1), "")
	return nil
}

// available returns the memory that the machine could still give, in MB.
func available() float64 {
	text, _ := os.ReadFile("/proc/meminfo")
	for line := range bytes.Lines(text) {
		var kb float64
		if n, _ := fmt.Sscanf(string(line), "MemAvailable: %f kB", &kb); n == 1 {
			return kb / 1024
		}
	}
	return 0
}

// ranFor returns how long the threads of a process have run, in ms.
func ranFor(pid int) (total float64) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		var ns float64
		fmt.Sscan(strings.TrimSpace(string(text)), &ns)
		total += ns / 1e6
	}
	return total
}
