package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// maxStderr bounds the driver's standard error, in bytes.
const maxStderr = 64 << 10

// check performs a job and writes the evidence, even if the browser crashes.
func check(ctx context.Context, args []string, std streams) (int, error) {
	begun := time.Now()
	if len(args) != 0 {
		return exitOther, errors.New("check takes no arguments: the job comes by standard input")
	}
	if err := adopt(); err != nil {
		return exitOther, err
	}
	work, err := os.MkdirTemp("", "ramus-browser-")
	if err != nil {
		return exitOther, fmt.Errorf("cannot make a folder to work in: %w", err)
	}
	defer os.RemoveAll(work)
	out := filepath.Join(work, "evidence")
	if err := os.Mkdir(out, 0o700); err != nil {
		return exitOther, fmt.Errorf("cannot make a folder for evidence: %w", err)
	}
	c := checkJob(ctx, std, work, out)
	c.DurationMS = time.Since(begun).Milliseconds()
	if c.Started.IsZero() {
		c.Started = begun.UTC()
	}
	if err := writeEvidence(std.out, out, &c); err != nil {
		return exitOther, err
	}
	fmt.Fprintf(std.err, "%s: %s\n", c.Verdict, c.Reason)
	switch c.Verdict {
	case browser.Pass:
		return exitPass, nil
	case browser.Fail:
		return exitFail, nil
	}
	return exitOther, nil
}

// checkJob runs the driver for the job and returns the check with its results.
func checkJob(ctx context.Context, std streams, work, out string) browser.Check {
	in, err := readJob(std.in)
	if err != nil {
		return unverified(in, err)
	}
	j, err := newJob(in)
	if err != nil {
		return unverified(in, err)
	}
	p, err := findPlace()
	if err != nil {
		return unverified(in, err)
	}
	env, err := p.environment(work)
	if err != nil {
		return unverified(in, err)
	}
	said, end := j.drive(ctx, p, env, in, std.err, work, out)
	c, err := readCheck(out)
	if err != nil {
		c = unverified(in, err)
		c.Reason = lastWords(said, end, err)
		return c
	}
	complete(&c, j, end, said)
	return c
}

// unverified returns a check that could not be performed.
func unverified(in browser.Job, err error) browser.Check {
	return browser.Check{Name: in.Spec.Name, Verdict: browser.Unverified, Reason: err.Error(), Views: []browser.View{}}
}

// Ends of a driver other than by itself.
var (
	errDeadline = errors.New("the deadline passed")
	errStopped  = errors.New("the check was stopped")
)

// drive runs `ramus-browser drive` to its end or to the deadline, and leaves no process.
func (j *job) drive(ctx context.Context, p place, env []string, in browser.Job, stderr io.Writer, work, out string) (said string, end error) {
	text, err := json.Marshal(in)
	if err != nil {
		return "", fmt.Errorf("cannot pass the job on: %w", err)
	}
	// The child's own deadline begins slightly later.
	ctx, cancel := context.WithTimeoutCause(ctx, j.deadline+500*time.Millisecond, errDeadline)
	defer cancel()
	jobIn, jobOut, err := os.Pipe()
	if err != nil {
		return "", fmt.Errorf("cannot pass the job on: %w", err)
	}
	defer jobOut.Close()
	wordsIn, wordsOut, err := os.Pipe()
	if err != nil {
		jobIn.Close()
		return "", fmt.Errorf("cannot listen to the driver: %w", err)
	}
	defer wordsIn.Close()
	cmd := exec.Command(p.self, "drive", out, filepath.Join(work, "tmp"))
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// These are files and not writers, because the browser holds them longer than the driver runs, and is killed only
	// afterwards.
	cmd.Stdin, cmd.Stderr = jobIn, wordsOut
	err = cmd.Start()
	jobIn.Close()
	wordsOut.Close()
	if err != nil {
		return "", fmt.Errorf("cannot start the driver: %w", err)
	}
	tail := &tailWriter{w: stderr, left: maxStderr}
	var pipes sync.WaitGroup
	pipes.Go(func() { _, _ = jobOut.Write(text); jobOut.Close() })
	pipes.Go(func() { _, _ = io.Copy(tail, wordsIn) })
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case end = <-ended:
	case <-ctx.Done():
		killFamily(cmd.Process.Pid)
		<-ended
		end = context.Cause(ctx)
		if !errors.Is(end, errDeadline) {
			end = errStopped
		}
	}
	bury()
	pipes.Wait()
	return tail.last(), end
}

// maxIndex bounds the check itself, in bytes.
const maxIndex = 8 << 20

// readCheck reads the check that the driver wrote last.
func readCheck(out string) (browser.Check, error) {
	var c browser.Check
	f, err := os.Open(filepath.Join(out, indexFile))
	if err != nil {
		return c, errors.New("the driver wrote nothing")
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxIndex))
	if err != nil {
		return c, fmt.Errorf("cannot read what the driver wrote: %w", err)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("cannot read what the driver wrote: %w", err)
	}
	return c, nil
}

// complete sets the verdict of every view that the driver did not reach, and then that of the check.
func complete(c *browser.Check, j *job, end error, said string) {
	first := true
	for i := range c.Views {
		v := &c.Views[i]
		if v.Verdict != "" {
			continue
		}
		switch {
		case errors.Is(end, errDeadline) && v.Status > 0:
			// The page answered and then blocked the browser.
			v.Verdict, v.Reason = browser.Fail, "the check "+timeoutError(j.deadline).Error()
		case errors.Is(end, errDeadline):
			v.Verdict, v.Reason = browser.Unverified, "not looked at: the check "+timeoutError(j.deadline).Error()
		case errors.Is(end, errStopped):
			v.Verdict, v.Reason = browser.Unverified, "not looked at to the end: "+end.Error()
		case first:
			v.Verdict, v.Reason = browser.Unverified, lastWords(said, end, errBrowser)
		default:
			v.Verdict, v.Reason = browser.Unverified, "not looked at"
		}
		first = false
	}
	sum(c)
}

// lastWords returns the reason why a driver ended too early. A driver that a signal ended wrote nothing about its end.
// The last line is then of another process, for example Node.js, whose pipe to the driver broke.
func lastWords(said string, end, otherwise error) string {
	var exit *exec.ExitError
	switch {
	case errors.Is(end, errDeadline) || errors.Is(end, errStopped):
		return "not looked at: " + end.Error()
	case errors.As(end, &exit) && exit.ExitCode() < 0:
		return "the browser could not be driven: " + exit.String()
	case said != "":
		return "the browser could not be driven: " + said
	case errors.As(end, &exit):
		return "the browser could not be driven: " + exit.String()
	case end != nil:
		return end.Error()
	}
	return otherwise.Error()
}

// tailWriter passes a bounded number of bytes to w and remembers the last ones.
type tailWriter struct {
	w    io.Writer
	left int
	tail []byte
}

func (t *tailWriter) Write(b []byte) (int, error) {
	if n := min(len(b), t.left); n > 0 {
		t.left -= n
		_, _ = t.w.Write(b[:n])
	}
	t.tail = append(t.tail, b...)
	if over := len(t.tail) - 4096; over > 0 {
		t.tail = t.tail[over:]
	}
	return len(b), nil
}

// last returns the most informative line, that of a panic or else the last one.
func (t *tailWriter) last() string {
	line := ""
	for l := range strings.Lines(string(t.tail)) {
		l = strings.TrimSpace(l)
		if strings.HasPrefix(l, "panic: ") {
			return text.Clip(l, maxText)
		}
		if l != "" {
			line = l
		}
	}
	return text.Clip(strings.TrimPrefix(line, "ramus-browser: "), maxText)
}
