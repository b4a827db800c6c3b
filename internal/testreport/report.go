package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// keep is how much of one test's output is remembered, the end of it: a test
// that prints without end must not take the machine's memory.
const keep = 1 << 20

// cannotRun begins the reason of a test that this machine has not the means for.
const cannotRun = "cannot run here:"

// event is a line of go test -json (go doc test2json).
type event struct {
	Action      string
	Package     string
	ImportPath  string // build events have this instead of Package
	Test        string
	Elapsed     float64 // seconds
	Output      string
	FailedBuild string
}

type testName struct{ pkg, test string }

func (n testName) String() string { return n.pkg + " " + n.test }

// skip is a test that did not run, and why.
type skip struct {
	testName
	reason string
}

// report is filled from events and printed as they come.
type report struct {
	out                     io.Writer
	passed, failed, skipped int

	output  map[testName]*tail // of tests that have not ended; test "" is the package itself
	running map[testName]bool  // begun and not ended
	builds  map[string]*tail   // compilers' output by import path
	counts  map[string][3]int  // passed, failed, skipped by package
	skips   []skip
	lost    []string // what failed without being a test
	failing []testName
}

// step is how a command went that is no test.
type step struct {
	line string
	said []byte
	took time.Duration
	err  error
}

func runStep(ctx context.Context, name string, args ...string) step {
	begin := time.Now()
	said, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	return step{strings.Join(append([]string{name}, args...), " "), said, time.Since(begin), err}
}

// step adds a command; when it failed its output is shown and it counts as a failure.
func (r *report) step(s step) {
	if s.err != nil {
		fmt.Fprintf(r.out, "%s\n", bytes.TrimRight(s.said, "\n"))
		r.fail(fmt.Sprintf("%s: %v", s.line, s.err))
		return
	}
	fmt.Fprintf(r.out, "ok    %-50s %6.1fs\n", s.line, s.took.Seconds())
}

// fail counts a failure that is not a test's.
func (r *report) fail(what string) {
	r.failed++
	r.lost = append(r.lost, what)
	fmt.Fprintf(r.out, "FAIL  %s\n", what)
}

// read follows events until the stream ends. Lines that are no event are
// printed as they are: that is how the go command reports its own troubles.
func (r *report) read(events io.Reader) error {
	in := bufio.NewReaderSize(events, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if line[0] == '{' && json.Unmarshal(line, &e) == nil && e.Action != "" {
				r.add(e)
			} else {
				fmt.Fprintf(r.out, "%s\n", bytes.TrimRight(line, "\n"))
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func (r *report) add(e event) {
	if r.output == nil {
		r.output = make(map[testName]*tail)
		r.running = make(map[testName]bool)
		r.builds = make(map[string]*tail)
		r.counts = make(map[string][3]int)
	}
	name := testName{e.Package, e.Test}
	switch e.Action {
	case "run":
		r.running[name] = true
	case "output":
		remember(r.output, name, e.Output)
	case "build-output":
		remember(r.builds, e.ImportPath, e.Output)
	case "pass", "fail", "skip", "bench":
		if e.Test == "" {
			r.endPackage(e)
		} else {
			r.endTest(name, e)
		}
	}
}

func (r *report) endTest(name testName, e event) {
	count := r.counts[name.pkg]
	switch e.Action {
	case "fail":
		r.failed++
		count[1]++
		r.failing = append(r.failing, name)
		fmt.Fprintf(r.out, "--- FAIL: %s (%.2fs)\n%s", name, e.Elapsed, r.output[name])
	case "skip":
		r.skipped++
		count[2]++
		r.skips = append(r.skips, skip{name, reason(r.output[name].String())})
	default:
		r.passed++
		count[0]++
	}
	r.counts[name.pkg] = count
	delete(r.running, name)
	delete(r.output, name)
}

func (r *report) endPackage(e event) {
	// Tests that began and never ended: the process died or ran out of time in them.
	var stuck []testName
	for name := range r.running {
		if name.pkg == e.Package {
			stuck = append(stuck, name)
		}
	}
	slices.SortFunc(stuck, func(a, b testName) int { return strings.Compare(a.test, b.test) })
	for _, name := range stuck {
		r.endTest(name, event{Action: "fail"})
	}

	name := testName{pkg: e.Package}
	count := r.counts[e.Package]
	said := r.output[name].String()
	switch {
	case e.Action == "fail" && e.FailedBuild != "":
		fmt.Fprint(r.out, r.builds[e.FailedBuild])
		r.fail(e.Package + ": does not build")
	case e.Action == "fail" && count[1] == 0:
		fmt.Fprint(r.out, said)
		r.fail(e.Package + ": failed outside of a test")
	case e.Action == "fail":
		// What the package printed besides its tests' output: races found late, panics, goroutine dumps.
		if len(stuck) > 0 {
			fmt.Fprint(r.out, said)
		}
		fmt.Fprintf(r.out, "FAIL  %-50s %6.1fs  %d failed\n", e.Package, e.Elapsed, count[1])
	case e.Action == "pass" && count != [3]int{}:
		skipped := ""
		if count[2] > 0 {
			skipped = fmt.Sprintf(", %d skipped", count[2])
		}
		fmt.Fprintf(r.out, "ok    %-50s %6.1fs  %d passed%s\n", e.Package, e.Elapsed, count[0], skipped)
	}
	delete(r.output, name)
	delete(r.counts, e.Package)
}

// end prints what is left to say and returns the exit status.
func (r *report) end(ci bool) int {
	code := 0
	if r.failed > 0 {
		code = 1
	}
	if len(r.failing)+len(r.lost) > 0 {
		fmt.Fprintln(r.out, "\nfailed:")
		for _, name := range r.failing {
			fmt.Fprintf(r.out, "  %s\n", name)
		}
		for _, what := range r.lost {
			fmt.Fprintf(r.out, "  %s\n", what)
		}
	}
	var cannot, other []skip
	for _, s := range r.skips {
		if strings.HasPrefix(s.reason, cannotRun) {
			cannot = append(cannot, s)
		} else {
			other = append(other, s)
		}
	}
	if len(other) > 0 {
		fmt.Fprintln(r.out, "\nskipped:")
		for _, s := range other {
			fmt.Fprintf(r.out, "  %s: %s\n", s.testName, s.reason)
		}
	}
	if missing := len(cannot); missing > 0 {
		fmt.Fprintln(r.out)
		// By reason: one missing program keeps many tests from running.
		for len(cannot) > 0 {
			reason := cannot[0].reason
			fmt.Fprintln(r.out, reason)
			cannot = slices.DeleteFunc(cannot, func(s skip) bool {
				if s.reason == reason {
					fmt.Fprintf(r.out, "  %s\n", s.testName)
				}
				return s.reason == reason
			})
		}
		if ci {
			fmt.Fprintf(r.out, "FAIL  CI is set and %d tests cannot run on this machine\n", missing)
			code = 1
		}
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
	return code
}

// reason finds why a test was skipped in its output, whose lines look like
//
//	name_test.go:12: cannot run here: there is no bwrap
func reason(output string) string {
	last := ""
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if i := strings.Index(line, cannotRun); i >= 0 {
			return line[i:]
		}
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		last = line
	}
	if _, said, ok := strings.Cut(last, ".go:"); ok {
		if _, said, ok = strings.Cut(said, ": "); ok {
			return said
		}
	}
	if last == "" {
		return "no reason given"
	}
	return last
}

// tail is the end of a text. A nil tail is empty.
type tail struct {
	text    []byte
	dropped int
}

func remember[K comparable](m map[K]*tail, key K, text string) {
	t := m[key]
	if t == nil {
		t = new(tail)
		m[key] = t
	}
	t.text = append(t.text, text...)
	// Cut at twice the limit, so that the copying stays linear.
	if over := len(t.text) - keep; over > keep {
		t.text = append(t.text[:0], t.text[over:]...)
		t.dropped += over
	}
}

func (t *tail) String() string {
	if t == nil {
		return ""
	}
	if t.dropped > 0 {
		return fmt.Sprintf("(the first %d bytes are left out)\n%s", t.dropped, t.text)
	}
	return string(t.text)
}
