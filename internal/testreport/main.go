// Command testreport runs this project's tests and says in a few lines how it
// went. It is what make test ends with.
//
//	go run ./internal/testreport [-lint] [-race] [-short] [packages]
//
// A passing package is one line; a failing test is shown with all it printed.
// No test is skipped silently: those that cannot run on this machine (their
// reason begins with "cannot run here:") are named at the end, and with CI=true
// in the environment they make the run a failure; other skips are named too.
// The last line is the count of tests, subtests included:
//
//	312 passed, 0 failed, 2 skipped
//
// A package that does not build or dies outside of a test, and a lint step that
// complains, count as one failure each.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
	}
	os.Exit(code)
}

// run returns the exit status: 0 when all passed, 1 when something failed, 2
// when the tests could not be run at all.
func run(ctx context.Context, args []string, out io.Writer) (int, error) {
	flags := flag.NewFlagSet("testreport", flag.ContinueOnError)
	lint := flags.Bool("lint", false, "run go vet and staticcheck beside the tests")
	race := flags.Bool("race", false, "with the race detector")
	short := flags.Bool("short", false, "short tests only")
	// One more than there are processors: tests wait for containers and servers more than they compute.
	parallel := flags.Int("p", runtime.NumCPU()+1, "packages at once")
	timeout := flags.Duration("timeout", 15*time.Minute, "limit for each package")
	if err := flags.Parse(args); err != nil {
		return 2, err
	}
	packages := flags.Args()
	if len(packages) == 0 {
		packages = []string{"./..."}
	}

	r := &report{out: out}

	// -count=1: many tests depend on what the go command does not see (a
	// container engine, an image, a program they build), so a remembered result
	// may be about another machine than this one has become.
	test := []string{"test", "-json", "-count=1", "-p", strconv.Itoa(*parallel), "-timeout", timeout.String()}
	if *race {
		test = append(test, "-race")
	}
	if *short {
		test = append(test, "-short")
	}
	cmd := exec.CommandContext(ctx, "go", append(test, packages...)...)
	// Interrupted, the tests get the chance to remove their containers.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	// One pipe for both streams keeps the go command's own messages in their place among the events.
	events, w, err := os.Pipe()
	if err != nil {
		return 2, fmt.Errorf("cannot run the tests: %w", err)
	}
	defer events.Close()
	cmd.Stdout, cmd.Stderr = w, w
	err = cmd.Start()
	w.Close()
	if err != nil {
		return 2, fmt.Errorf("cannot run the tests: %w", err)
	}
	// Beside the tests, which leave processors idle.
	steps := make(chan step, 2)
	go func() {
		defer close(steps)
		if *lint {
			steps <- runStep(ctx, "go", append([]string{"vet"}, packages...)...)
			steps <- runStep(ctx, "go", append([]string{"tool", "staticcheck"}, packages...)...)
		}
	}()
	// What a test left running holds the pipe open; once interrupted it is not waited for.
	defer context.AfterFunc(ctx, func() { events.SetReadDeadline(time.Now().Add(cmd.WaitDelay)) })()
	readErr := r.read(events)
	err = cmd.Wait()
	failed := r.failed
	for s := range steps {
		r.step(s)
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return 2, errors.New("interrupted")
	case readErr != nil:
		return 2, fmt.Errorf("cannot follow the tests: %w", readErr)
	case err != nil && !errors.As(err, &exit):
		return 2, fmt.Errorf("cannot run the tests: %w", err)
	case err != nil && failed == 0:
		// The go command itself refused (a pattern without packages, a broken go.mod): its stderr said why.
		r.fail("go test: " + err.Error())
	}
	ci, _ := strconv.ParseBool(os.Getenv("CI"))
	return r.end(ci), nil
}
