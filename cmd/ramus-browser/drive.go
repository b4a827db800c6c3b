package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/mxschmitt/playwright-go"

	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// driveGrace returns the part of the deadline that is reserved for writing evidence.
func driveGrace(deadline time.Duration) time.Duration {
	return min(max(deadline/5, 2*time.Second), 20*time.Second)
}

// drive performs a check and writes it to a folder, with its current state at each moment. args are the folder of the
// evidence and one for other files. It may end in a panic of Playwright's client. `check` watches it.
func drive(ctx context.Context, args []string, std streams) (int, error) {
	begun := time.Now()
	if len(args) != 2 {
		return exitOther, errors.New("drive is for `ramus-browser check`")
	}
	out, work := args[0], args[1]
	in, err := readJob(std.in)
	if err != nil {
		return exitOther, err
	}
	j, err := newJob(in)
	if err != nil {
		return exitOther, err
	}
	p, err := findPlace()
	if err != nil {
		return exitOther, err
	}
	// Evidence is written until shortly before the deadline. The page is checked until only the time for that is left.
	hard, cancel := context.WithDeadlineCause(ctx, begun.Add(j.deadline-time.Second), timeoutError(j.deadline))
	defer cancel()
	ready, cancelReady := context.WithDeadlineCause(hard, begun.Add(j.deadline-driveGrace(j.deadline)),
		timeoutError(j.deadline))
	defer cancelReady()

	d := &driver{job: j, place: p, out: out, work: work, hard: hard}
	d.check = browser.Check{Name: j.spec.Name, Started: begun.UTC()}
	for _, v := range j.spec.Viewports {
		d.check.Views = append(d.check.Views, browser.View{Viewport: v, URL: j.page.String()})
	}
	if err := d.save(); err != nil {
		return exitOther, err
	}
	if err := d.awaitPort(ready); err != nil {
		for i := range d.check.Views {
			d.check.Views[i].Verdict, d.check.Views[i].Reason = browser.Fail, err.Error()
		}
		return exitPass, d.save()
	}
	if err := d.launch(ready); err != nil {
		return exitOther, err
	}
	looking, cancelLooking := context.WithTimeoutCause(ready, j.timeout, timeoutError(j.timeout))
	defer cancelLooking()
	for i := range d.check.Views {
		v := &view{driver: d, result: &d.check.Views[i], size: d.check.Views[i].Viewport}
		v.look(looking)
		if err := d.save(); err != nil {
			return exitOther, err
		}
	}
	d.check.DurationMS = time.Since(begun).Milliseconds()
	if err := d.save(); err != nil {
		return exitOther, err
	}
	// The browser is not closed, because a page can delay that. `check` kills the remaining processes.
	return exitPass, nil
}

// timeoutError is the cause of a context that ended because the time of the check was over.
type timeoutError time.Duration

func (t timeoutError) Error() string {
	return "took longer than " + time.Duration(t).Round(time.Millisecond).String()
}

// driver is one check in progress. Only the goroutine of drive uses it.
type driver struct {
	job     *job
	place   place
	out     string // folder of the evidence
	work    string // folder of other files
	hard    context.Context
	browser playwright.Browser
	check   browser.Check
}

// indexFile is the name of the check among its files.
const indexFile = "index.json"

// save writes the current check atomically.
func (d *driver) save() error {
	text, err := json.Marshal(d.check)
	if err != nil {
		return fmt.Errorf("cannot write the check down: %w", err)
	}
	next := filepath.Join(d.work, indexFile)
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return fmt.Errorf("cannot write the check down: %w", err)
	}
	if err := os.Rename(next, filepath.Join(d.out, indexFile)); err != nil {
		return fmt.Errorf("cannot write the check down: %w", err)
	}
	return nil
}

// awaitPort waits until a program listens at the page's port. For a remote page only the proxy can know that, so
// awaitPort does not wait.
func (d *driver) awaitPort(ctx context.Context) error {
	host, port := d.job.page.Hostname(), d.job.page.Port()
	if !isLocal(host) || port == doorPort {
		return nil
	}
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[d.job.page.Scheme]
	}
	hosts := []string{host}
	if host != "127.0.0.1" && host != "::1" {
		hosts = []string{"127.0.0.1", "::1"}
	}
	wait := time.Duration(d.job.spec.Wait)
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	begun := time.Now()
	var dialer net.Dialer
	for {
		for _, h := range hosts {
			conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(h, port))
			if err == nil {
				return conn.Close()
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nothing answers at %s (waited %v)", text.Clip(d.job.page.String(), maxURL),
				time.Since(begun).Round(time.Second))
		case <-tick.C:
		}
	}
}

// launch starts driver and browser.
func (d *driver) launch(ctx context.Context) error {
	return within(ctx, 60*time.Second, func() error {
		pw, err := playwright.Run(&playwright.RunOptions{
			DriverDirectory: d.place.driver, SkipInstallBrowsers: true, Stdout: os.Stderr, Stderr: os.Stderr,
		})
		if err != nil {
			return fmt.Errorf("cannot start Playwright's driver: %w", err)
		}
		d.browser, err = pw.Chromium.Launch(launchOptions(d.place, d.job, d.work))
		if err != nil {
			return fmt.Errorf("cannot start the browser: %w", err)
		}
		d.check.Browser = "Chromium " + d.browser.Version()
		d.check.Driver = "Playwright " + d.place.driverVersion()
		return nil
	})
}

// within bounds a call to Playwright. Some calls have no time limit of their own, and a page with a busy thread blocks
// them forever. An abandoned call ends with the process, which is soon.
func within(ctx context.Context, limit time.Duration, call func() error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- call() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
