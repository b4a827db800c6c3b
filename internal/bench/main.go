// Command ramus-bench compares ramus with its alternatives on the same machine, with the same bytes, in one run. `make bench`
// builds and runs it. docs/benchmarks.md explains each row of the report.
//
// # How it measures
//
// A scenario has sides. They are ramus, the alternatives, and the physical floor where there is one. Each round runs every side
// once, in a random order, and each side checks its own output before its time counts. The report has medians, the ratio of the
// medians, and the 90th percentile of the ratios of the rounds, because a ratio within one round is the same on a noisy machine. A
// scenario is marked noisy if an alternative itself varies (p90 over minimum above 3).
//
// The servers under test are separate processes, and ramus is the built binary like the others, so that memory and CPU time are
// those of the server. The bench drives containers of ramus by REST over the socket of `ramus serve`, with journal and commit,
// because that is how users use it. Two rows measure the connection to the runner alone and have a note about it. Their
// alternative, an exec of the engine, has no journal either.
//
//	ramus-bench [-run NAMES] [-rounds N] [-seconds N] [-out DIR] [-ramus FILE]
//	ramus-bench -list
//
// The bench removes everything that it starts, also on an interrupt.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == "peer" {
		if err := servePeer(os.Args[2], os.Args[3:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "ramus-bench:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop() // a second interrupt ends the process at once
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "ramus-bench:", err)
		os.Exit(1)
	}
}

// settings are the options of a run.
type settings struct {
	names   []string // prefixes of scenarios; empty means all
	rounds  int
	seconds time.Duration // per comparison; when they have passed, only the first three rounds still begin
	out     string
	ramus   string
	image   string
	engine  string // of ramus's containers
	gitea   string
	idle    int
	callers int
}

func run(ctx context.Context, args []string, out, errs io.Writer) error {
	flags := flag.NewFlagSet("ramus-bench", flag.ContinueOnError)
	flags.SetOutput(errs)
	var s settings
	env := func(name, otherwise string) string {
		if v := os.Getenv(name); v != "" {
			return v
		}
		return otherwise
	}
	number := func(name string, otherwise int) int {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
			return n
		}
		return otherwise
	}
	names := flags.String("run", os.Getenv("BENCH"),
		"`names` of scenarios, or their beginnings, with commas; empty: all (BENCH)")
	list := flags.Bool("list", false, "list the scenarios")
	flags.IntVar(&s.rounds, "rounds", number("BENCH_ROUNDS", 15), "`rounds` of each comparison (BENCH_ROUNDS)")
	seconds := flags.Int("seconds", number("BENCH_SECONDS", 40),
		"`seconds` after which a comparison begins no further round, once it has three (BENCH_SECONDS)")
	flags.StringVar(&s.out, "out", env("BENCH_OUT", "bin/bench"),
		"`folder` for results.json, the charts, and the repositories that are made (BENCH_OUT)")
	flags.StringVar(&s.ramus, "ramus", env("BENCH_RAMUS", "bin/ramus"), "the ramus `program` (BENCH_RAMUS)")
	flags.StringVar(&s.image, "image", env("BENCH_IMAGE", "ramus/task:latest"),
		"`image` of the containers on all sides (BENCH_IMAGE)")
	flags.StringVar(&s.engine, "engine", env("BENCH_ENGINE", "docker"),
		"`engine` of ramus's containers, docker or sandbox (BENCH_ENGINE)")
	flags.StringVar(&s.gitea, "gitea", env("BENCH_GITEA", "gitea"),
		"the Gitea `program`, measured where it is found (BENCH_GITEA)")
	flags.IntVar(&s.idle, "idle", number("BENCH_IDLE", 100), "how many idle containers (BENCH_IDLE)")
	flags.IntVar(&s.callers, "callers", number("BENCH_CALLERS", 1000), "how many callers on Kubernetes at most (BENCH_CALLERS)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *list {
		for _, sc := range scenarios {
			fmt.Fprintf(out, "%-16s %s\n", sc.name, sc.about)
		}
		return nil
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("cannot use %q: scenarios are named by -run", flags.Arg(0))
	}
	s.seconds = time.Duration(*seconds) * time.Second
	s.names = strings.FieldsFunc(*names, func(r rune) bool { return r == ',' || r == ' ' })
	for _, name := range s.names {
		if !slices.ContainsFunc(scenarios, func(sc scenario) bool { return strings.HasPrefix(sc.name, name) }) {
			return fmt.Errorf("there is no scenario %q: -list names them", name)
		}
	}
	return measure(ctx, s, out, errs)
}

// measure runs the chosen scenarios and writes their results.
func measure(ctx context.Context, s settings, out, errs io.Writer) (err error) {
	if s.ramus, err = filepath.Abs(s.ramus); err != nil {
		return err
	}
	if _, err := os.Stat(s.ramus); err != nil {
		return fmt.Errorf("cannot find the ramus program (make build makes it): %w", err)
	}
	if s.out, err = filepath.Abs(s.out); err != nil {
		return err
	}
	if err := os.MkdirAll(s.out, 0o755); err != nil {
		return fmt.Errorf("cannot make the folder of the results: %w", err)
	}
	b := &bench{settings: s, said: errs, report: report{Machine: thisMachine(ctx)}}
	if b.dir, err = os.MkdirTemp("", "ramus-bench-"); err != nil {
		return fmt.Errorf("cannot make a working folder: %w", err)
	}
	// Servers that run as other users reach their own folders through this one.
	if err := os.Chmod(b.dir, 0o711); err != nil {
		return err
	}
	// Servers and containers are removed even after ctx has ended, with a time limit of their own.
	b.onExit(func(context.Context) error { return os.RemoveAll(b.dir) })
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
		defer cancel()
		err = errors.Join(err, b.exit(ending))
	}()

	for _, sc := range scenarios {
		if ctx.Err() != nil {
			break
		}
		wanted := slices.ContainsFunc(s.names, func(n string) bool { return strings.HasPrefix(sc.name, n) })
		if !wanted && len(s.names) > 0 {
			continue
		}
		b.sayf("%s: %s", sc.name, sc.about)
		b.scenario = sc.name
		kept := len(b.exits)
		began := time.Now()
		err := sc.run(ctx, b)
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
		if cerr := b.exitTo(ending, kept); cerr != nil {
			b.sayf("%s: cannot clean up: %v", sc.name, cerr)
		}
		cancel()
		var unable *unableError
		switch {
		case errors.As(err, &unable):
			b.report.Rows = append(b.report.Rows,
				row{Scenario: sc.name, What: sc.about, State: stateUnable, Note: unable.Error()})
			b.sayf("%s: cannot run here: %v", sc.name, unable)
		case err != nil && ctx.Err() == nil:
			b.report.Rows = append(b.report.Rows,
				row{Scenario: sc.name, What: sc.about, State: stateFailed, Note: err.Error()})
			b.sayf("%s: failed: %v", sc.name, err)
		}
		b.sayf("%s: took %s", sc.name, time.Since(began).Round(100*time.Millisecond))
	}
	b.report.print(out)
	if err := b.report.write(s.out); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nresults.json and the charts are in %s\n", s.out)
	if ctx.Err() != nil {
		return errors.New("interrupted; what was measured until then is told above")
	}
	if n := b.report.failed(); n > 0 {
		return fmt.Errorf("%d scenarios failed", n)
	}
	return nil
}
