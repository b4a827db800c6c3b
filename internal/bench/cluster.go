package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/kubernetes"
	"github.com/ramus-dev/ramus/containers/kubernetes/clustertest"
)

const (
	// newAtOnce bounds the callers that are new at the same time. A thousand people do not begin in the same second, and a node starts
	// pods one after another.
	newAtOnce = 64
	// clusterRounds is the least number of commands of each caller at the same time as those of all others, and clusterCommands that of
	// all. clusterAlone is the number of commands that one caller gives while the others have nothing to do.
	clusterRounds   = 5
	clusterCommands = 100
	clusterAlone    = 50
	// clusterSilence is the time for which no caller gives a command.
	clusterSilence = 10 * time.Second
	// podMemory is what a runner takes of this machine, with the part of this program and of the API server for its connection.
	podMemory = 12 << 20
	// clusterStart bounds the start of one container.
	clusterStart = 10 * time.Minute
)

// clusterCallers are the sizes of the curves.
var clusterCallers = []int{1, 10, 100, 500, 1000}

// clusterSizes returns the sizes up to most, which is one of them.
func clusterSizes(most int) []int {
	sizes := slices.DeleteFunc(slices.Clone(clusterCallers), func(n int) bool { return n >= most })
	return append(sizes, most)
}

// crowdInPods measures callers on Kubernetes, each with a pod of its own on a simulated node, with the fleet and the engine of ramus in this
// process. The API server is that of `make cluster`.
func crowdInPods(ctx context.Context, b *bench) error {
	if os.Geteuid() != 0 {
		return unable("only root may make the namespaces of pods")
	}
	sizes := clusterSizes(b.callers)
	admin, config, namespace, err := b.clusterNamespace(ctx)
	if err != nil {
		return err
	}
	nodes, err := clustertest.Simulate(ctx, filepath.Join(b.dir, "nodes"), 1+sizes[len(sizes)-1]/clustertest.PerNode)
	if err != nil {
		return err
	}
	b.onExit(func(context.Context) error { return nodes.Close() })
	template, err := nodes.Template(ctx, admin, namespace)
	if err != nil {
		return err
	}
	c := newClusterCharts(b.scenario)
	for _, n := range sizes {
		if free := memoryFree(); free < int64(n)*podMemory {
			b.report.Rows = append(b.report.Rows, row{Scenario: b.scenario, What: callersLabel(n), State: stateUnable,
				Note: fmt.Sprintf("%d MB of memory are free, and %d pods take %d MB", free>>20, n, int64(n)*podMemory>>20)})
			continue
		}
		kept := len(b.exits)
		e := &kubernetes.Engine{Cluster: config, Namespace: namespace, Template: template,
			// No node looks for images.
			Runtime: clustertest.RuntimeImage, Image: clustertest.TaskImage}
		m, err := b.crowdOfPods(ctx, e, n)
		if err != nil {
			b.report.Charts = append(b.report.Charts, c.all()...)
			return fmt.Errorf("%s: %w", callersLabel(n), err)
		}
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), clusterStart)
		err = b.exitTo(ending, kept) // its pods are removed before those of the next one start
		cancel()
		if err != nil {
			return fmt.Errorf("%s: cannot remove them: %w", callersLabel(n), err)
		}
		m.tell(b, n)
		c.add(n, *m)
	}
	b.report.Charts = append(b.report.Charts, c.all()...)
	return nil
}

func callersLabel(n int) string {
	if n == 1 {
		return "1 caller"
	}
	return thousands(int64(n)) + " callers"
}

// crowdMeasured is the result for a number of callers.
type crowdMeasured struct {
	start      time.Duration   // from the first request to the last caller's first answer
	commands   []time.Duration // of all callers at once, sorted
	alone      []time.Duration // of one caller at a time, sorted
	memory     int64           // of this process, in bytes
	machine    int64           // what the machine has less than before, in bytes
	goroutines int             // of this process
	silent     float64         // the part of a core that this process takes while no caller gives a command
	perCommand float64         // requests to the API server
	perCaller  float64         // requests to the API server, from the start of the callers to their end
	load       float64
}

// crowdOfPods has n callers begin, and give commands. They end with the exits of the bench, which complete the result.
func (b *bench) crowdOfPods(ctx context.Context, e *kubernetes.Engine, n int) (*crowdMeasured, error) {
	m := &crowdMeasured{}
	dir, err := os.MkdirTemp(b.dir, "fleet-")
	if err != nil {
		return m, err
	}
	f := &containers.Fleet{Engine: e, Dir: dir, Capacity: n, SleepAfter: time.Hour, StartTimeout: clusterStart}
	b.onExit(func(ctx context.Context) error {
		err := f.Close(ctx, false)
		m.perCaller = float64(e.Asked()) / float64(n)
		return errors.Join(err, e.Close(), os.RemoveAll(dir))
	})
	if err := f.Open(ctx); err != nil {
		return m, err
	}
	hosts := make([]*containers.Host, n)
	var number atomic.Int64
	perform := func(i int) error { return command(ctx, hosts[i], int(number.Add(1)), io.Discard, "true") }
	free, began := memoryFree(), time.Now()
	err = atOnceUpTo(newAtOnce, n, func(i int) error {
		l, err := f.Acquire(ctx, containers.Request{Key: "run:caller-" + strconv.Itoa(i)})
		if err != nil {
			return err
		}
		hosts[i] = l.Host
		return perform(i)
	})
	if err != nil {
		return m, fmt.Errorf("cannot begin: %w", err)
	}
	m.start = time.Since(began)
	b.sayf("%s: all have their first answer after %s", callersLabel(n), m.start.Round(100*time.Millisecond))

	before := e.Asked()
	took := make([][]time.Duration, n)
	for range max(clusterRounds, clusterCommands/n) {
		err := atOnceUpTo(n, n, func(i int) error {
			began := time.Now()
			err := perform(i)
			took[i] = append(took[i], time.Since(began))
			return err
		})
		if err != nil {
			return m, fmt.Errorf("cannot perform commands at once: %w", err)
		}
	}
	m.load = loadAverage()
	m.commands = slices.Concat(took...)
	m.perCommand = float64(e.Asked()-before) / float64(len(m.commands))
	for i := range clusterAlone {
		began := time.Now()
		if err := perform(i * 7919 % n); err != nil { // callers far from each other
			return m, fmt.Errorf("cannot perform a command: %w", err)
		}
		m.alone = append(m.alone, time.Since(began))
	}
	slices.Sort(m.commands)
	slices.Sort(m.alone)
	spent := ownTime()
	if err := pause(ctx, clusterSilence); err != nil {
		return m, err
	}
	m.silent = float64(ownTime()-spent) / float64(clusterSilence)
	m.memory, m.goroutines, m.machine = ownMemory(), runtime.NumGoroutine(), free-memoryFree()
	return m, nil
}

// atOnceUpTo calls do for 0 to n-1, at most at of them at the same time, and returns the first error with the number of all.
func atOnceUpTo(at, n int, do func(i int) error) error {
	turns := make(chan struct{}, at)
	var all sync.WaitGroup
	var mu sync.Mutex // guards the two below
	var first error
	failed := 0
	for i := range n {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			if err := do(i); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if failed++; first == nil {
					first = err
				}
			}
		})
	}
	all.Wait()
	if first != nil {
		return fmt.Errorf("%d of %d failed, the first one: %w", failed, n, first)
	}
	return nil
}

// tell adds the rows of a number of callers.
func (m crowdMeasured) tell(b *bench, n int) {
	label := callersLabel(n)
	add := func(what, unit string, v float64, t target, note string) {
		b.tell(label+", "+what, unit, v, t, note)
		b.report.Rows[len(b.report.Rows)-1].Load = m.load
	}
	add("last one's first answer", "ms", ms(m.start), target{}, fmt.Sprintf("at most %d are new at once", newAtOnce))
	add("true of all at once, median", "ms", ms(durationAt(m.commands, 0.5)), target{}, "")
	add("true of all at once, 99th percentile", "ms", ms(durationAt(m.commands, 0.99)), target{}, "")
	add("true of one, the others silent, median", "ms", ms(durationAt(m.alone, 0.5)), target{}, "")
	add("memory of the process", "MB", float64(m.memory)/1e6, target{}, "")
	if n >= 100 { // less is lost in what other programs take and give
		add("memory of the machine, each with its pod", "MB", float64(m.machine)/float64(n)/1e6, target{}, "")
	}
	add("CPU of the process while all are silent", "% of a core", 100*m.silent, target{}, "")
	add("goroutines of the process", "", float64(m.goroutines), target{}, "")
	add("requests to the API server for each command", "", m.perCommand, below(0.1).onlyFor(n >= 100),
		"the fleet measures the disks of containers meanwhile")
	add("requests to the API server for each caller, from its start to its end", "", m.perCaller, target{}, "")
}

func durationAt(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// clusterCharts are the curves over the number of callers.
type clusterCharts struct{ time, memory, requests chart }

func newClusterCharts(name string) *clusterCharts {
	x := "callers, each in a pod"
	return &clusterCharts{chart{Name: name + "-time", Title: "Callers on Kubernetes: time", X: x, Y: "milliseconds"},
		chart{Name: name + "-memory", Title: "Callers on Kubernetes: the process of ramus", X: x, Y: "MB, goroutines"},
		chart{Name: name + "-requests", Title: "Callers on Kubernetes: requests to the API server", X: x, Y: "requests"}}
}

func (c *clusterCharts) add(n int, m crowdMeasured) {
	x := float64(n)
	c.time.add("last one's first answer", x, ms(m.start))
	c.time.add("true of all at once, p99", x, ms(durationAt(m.commands, 0.99)))
	c.time.add("true of all at once, median", x, ms(durationAt(m.commands, 0.5)))
	c.time.add("true of one", x, ms(durationAt(m.alone, 0.5)))
	c.memory.add("MB", x, float64(m.memory)/1e6)
	c.memory.add("goroutines", x, float64(m.goroutines))
	c.requests.add("for each caller", x, m.perCaller)
	c.requests.add("for each command", x, m.perCommand)
}

// all returns the charts that have points.
func (c *clusterCharts) all() []chart {
	return slices.DeleteFunc([]chart{c.time, c.memory, c.requests}, func(c chart) bool { return len(c.Series) == 0 })
}

// ownTime returns the time that this process had a processor.
func ownTime() time.Duration {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// ownMemory returns the memory of this process, in bytes.
func ownMemory() int64 {
	text, _ := os.ReadFile("/proc/self/statm")
	var pages int64
	_, _ = fmt.Sscan(string(text), new(int64), &pages)
	return pages * int64(os.Getpagesize())
}

// memoryFree returns the memory that new processes may take, in bytes.
func memoryFree() int64 {
	text, _ := os.ReadFile("/proc/meminfo")
	for line := range bytes.Lines(text) {
		if rest, ok := strings.CutPrefix(string(line), "MemAvailable:"); ok {
			kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10
		}
	}
	return 0
}
