package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mxschmitt/playwright-go"

	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// Bounds on a page, above which its check ends.
const (
	maxDialogs = 50
	maxPopups  = 20
	maxAria    = 1 << 20

	loadTime   = 30 * time.Second
	quietTime  = 3 * time.Second
	finishTime = 10 * time.Second
	filmTime   = 45 * time.Second // ffmpeg encodes the pictures that it has not encoded yet
)

// Ends of a page that the page itself causes.
var (
	errClosed  = errors.New("the page closed itself")
	errCrashed = errors.New("the page crashed")
	errDialogs = fmt.Errorf("the page opens dialogs without end (more than %d)", maxDialogs)
	errPopups  = fmt.Errorf("the page opens windows without end (more than %d)", maxPopups)
	// errBrowser has no known cause.
	errBrowser = errors.New("the browser or its driver ended by itself")
)

// view is the check of a page in one viewport.
type view struct {
	*driver
	result *browser.View
	size   browser.Viewport
	dir    string
	begun  time.Time

	context playwright.BrowserContext
	page    playwright.Page
	givenUp bool                    // an abandoned call may still be making context and page
	stop    context.CancelCauseFunc // ends the check, with one of the errors above
	notes   []string                // texts for the reason that are not faults
	covered []string                // selectors of elements to cover in pictures

	mu sync.Mutex // guards the fields below, which the goroutines of Playwright's events write
	// closing means that this program causes the page's current events.
	closing bool
	faults  faults
	console *consoleLog
	dialogs int
	popups  int
}

// look sets the view's result. A failure of this program or the browser makes it UNVERIFIED, and a fault of the page
// FAIL.
func (v *view) look(ctx context.Context) {
	v.begun = time.Now()
	defer func() { v.result.DurationMS = time.Since(v.begun).Milliseconds() }()
	v.dir = filepath.Join(v.out, v.size.Name)
	if !v.browser.IsConnected() {
		v.result.Verdict, v.result.Reason = browser.Unverified, "not looked at: "+errBrowser.Error()
		return
	}
	if err := context.Cause(ctx); err != nil {
		v.result.Verdict, v.result.Reason = browser.Unverified, "not looked at: the check "+err.Error()
		return
	}
	ctx, v.stop = context.WithCancelCause(ctx)
	defer v.stop(nil)
	if err := v.open(ctx); err != nil {
		v.close()
		v.result.Verdict, v.result.Reason = browser.Unverified, "cannot look at the page: "+plainError(err)
		if late := timeoutError(0); errors.As(err, &late) {
			v.result.Reason = "the check " + late.Error() + " before the page answered"
		}
		return
	}
	found := v.visit(ctx)
	v.keep(ctx)
	v.close()
	v.conclude(ctx, found)
}

// open makes the context and the empty page.
func (v *view) open(ctx context.Context) error {
	if err := os.MkdirAll(v.dir, 0o700); err != nil {
		return fmt.Errorf("cannot make a folder for evidence: %w", err)
	}
	var err error
	if v.console, err = newConsoleLog(filepath.Join(v.dir, "console.jsonl"), v.begun); err != nil {
		return err
	}
	options := playwright.BrowserNewContextOptions{
		Viewport:          &playwright.Size{Width: v.size.Width, Height: v.size.Height},
		Screen:            &playwright.Size{Width: v.size.Width, Height: v.size.Height},
		DeviceScaleFactor: playwright.Float(v.size.Scale),
		IsMobile:          playwright.Bool(v.size.Mobile),
		HasTouch:          playwright.Bool(v.size.Mobile),
		AcceptDownloads:   playwright.Bool(false),
		Locale:            playwright.String("en-US"),
		TimezoneId:        playwright.String("UTC"),
		ColorScheme:       playwright.ColorSchemeLight,
		// A dev server may have a self-signed certificate. That of a remote page must be valid.
		IgnoreHttpsErrors: playwright.Bool(isLocal(v.job.page.Hostname())),
		RecordHarPath:     playwright.String(filepath.Join(v.dir, "network.har")),
		RecordHarContent:  playwright.HarContentPolicyOmit,
		RecordHarMode:     playwright.HarModeFull,
	}
	if v.job.spec.Video {
		if v.place.ffmpeg == "" {
			v.notes = append(v.notes, "no video: ffmpeg is not installed with the browser")
		} else {
			options.RecordVideo = &playwright.RecordVideo{
				Dir:  playwright.String(filepath.Join(v.work, "video")),
				Size: &playwright.Size{Width: v.size.Width, Height: v.size.Height},
			}
		}
	}
	var opened atomic.Bool
	err = within(ctx, 30*time.Second, func() (err error) {
		defer opened.Store(true)
		if v.context, err = v.browser.NewContext(options); err != nil {
			return fmt.Errorf("cannot open a window: %w", err)
		}
		// The state is set before the trace begins, because a trace records it.
		if err := v.setState(); err != nil {
			return err
		}
		if !v.job.clock.IsZero() {
			if err := v.context.Clock().SetFixedTime(v.job.clock); err != nil {
				return fmt.Errorf("cannot set the page's clock: %w", err)
			}
		}
		if err := v.context.Tracing().Start(playwright.TracingStartOptions{
			Screenshots: playwright.Bool(true), Snapshots: playwright.Bool(true),
		}); err != nil {
			return fmt.Errorf("cannot start the trace: %w", err)
		}
		if v.page, err = v.context.NewPage(); err != nil {
			return fmt.Errorf("cannot open a page: %w", err)
		}
		v.listen()
		return nil
	})
	v.givenUp = !opened.Load()
	return err
}

// setState sets the cookies and the local storage of the context. It passes them in a short-lived file that is not
// evidence, because a trace records the options of its context.
func (v *view) setState() error {
	if v.job.state == nil {
		return nil
	}
	name := filepath.Join(v.work, "state.json")
	if err := os.WriteFile(name, v.job.state, 0o600); err != nil {
		return fmt.Errorf("cannot sign in: %w", err)
	}
	err := v.context.SetStorageState(name)
	if rerr := os.Remove(name); rerr != nil {
		return fmt.Errorf("cannot remove the storage state: %w", rerr)
	}
	if err != nil {
		// Playwright's error may quote a value.
		return errors.New("cannot sign in: the browser does not take the storage state")
	}
	return nil
}

// visit loads the page and performs the steps.
func (v *view) visit(ctx context.Context) []finding {
	err := within(ctx, loadTime+time.Second, func() error {
		_, err := v.page.Goto(v.job.page.String(), playwright.PageGotoOptions{
			Timeout: playwright.Float(loadTime.Seconds() * 1000), WaitUntil: playwright.WaitUntilStateLoad,
		})
		return err
	})
	v.mu.Lock()
	failed := false // the document's own failure is among the faults and is clearer
	for _, e := range v.faults.exchanges {
		failed = failed || e.document
	}
	answered := v.result.Status > 0
	v.mu.Unlock()
	if serr := v.save(); serr != nil {
		return []finding{{rankEnd, serr.Error()}}
	}
	switch {
	case err == nil:
	case context.Cause(ctx) != nil || failed:
		return nil
	case errors.Is(err, playwright.ErrTimeout) && answered:
		return []finding{{rankDocument, fmt.Sprintf("%s did not finish loading in %v", v.result.URL, loadTime)}}
	case errors.Is(err, playwright.ErrTimeout):
		return []finding{{rankDocument, fmt.Sprintf("nothing answers at %s (waited %v)", v.result.URL, loadTime)}}
	default:
		return []finding{{rankDocument, fmt.Sprintf("cannot load %s: %s", v.result.URL, plainError(err))}}
	}
	v.settle(ctx)
	found := v.steps(ctx)
	if len(v.job.spec.Steps) > 0 {
		v.settle(ctx)
	}
	return found
}

// settle waits until the page makes no request for a while and its fonts are loaded. The wait is bounded, because some
// pages never stop making requests.
func (v *view) settle(ctx context.Context) {
	_ = within(ctx, quietTime+time.Second, func() error {
		return v.page.WaitForLoadState(playwright.PageWaitForLoadStateOptions{
			State: playwright.LoadStateNetworkidle, Timeout: playwright.Float(quietTime.Seconds() * 1000),
		})
	})
	_ = within(ctx, quietTime, func() error {
		_, err := v.page.Evaluate(`() => document.fonts.ready.then(() => document.fonts.size)`)
		return err
	})
}

// keep collects the evidence of the page's final state. Time is reserved for it after the check's own has run out.
func (v *view) keep(ctx context.Context) {
	v.result.FinalURL = text.Clip(v.page.URL(), maxURL)
	switch context.Cause(ctx) {
	case errClosed, errCrashed, errDialogs, errBrowser:
		return // there is no page, or the page does not respond
	}
	v.mu.Lock()
	answered := v.result.Status > 0
	v.mu.Unlock()
	late := timeoutError(0)
	over := errors.As(context.Cause(ctx), &late)
	if over && !answered {
		return // the browser would wait for a page that does not come before it responds
	}
	ctx = v.hard
	var title string
	err := within(ctx, 2*time.Second, func() (err error) {
		title, err = v.page.Title()
		return err
	})
	if err == nil {
		v.result.Title = text.Clip(title, maxText)
	}
	if over && errors.Is(err, context.DeadlineExceeded) {
		v.notes = append(v.notes, "no picture: the page's thread never rests")
		return
	}
	if name, err := v.picture(ctx, "screenshot.png", v.job.spec.Screenshot); err == nil {
		v.result.Screenshot = name
	} else {
		v.notes = append(v.notes, "no picture: "+plainError(err))
	}
	var aria string
	err = within(ctx, finishTime, func() (err error) {
		aria, err = v.page.Locator("body").AriaSnapshot(playwright.LocatorAriaSnapshotOptions{Timeout: playwright.Float(5000)})
		return err
	})
	if err == nil {
		v.result.Aria = v.write("aria.yml", []byte(text.Clip(aria, maxAria)+"\n"))
	}
	if v.job.spec.PDF {
		var pdf []byte
		err := within(ctx, finishTime, func() (err error) {
			pdf, err = v.page.PDF(playwright.PagePdfOptions{PrintBackground: playwright.Bool(true)})
			return err
		})
		if err == nil {
			v.result.PDF = v.write("page.pdf", pdf)
		} else {
			v.notes = append(v.notes, "no PDF: "+plainError(err))
		}
	}
}

// write writes a file into the view's folder and returns its name for the evidence, or "" if it fails.
func (v *view) write(name string, content []byte) string {
	if err := os.WriteFile(filepath.Join(v.dir, name), content, 0o600); err != nil {
		v.notes = append(v.notes, fmt.Sprintf("cannot keep %s: %v", name, err))
		return ""
	}
	return v.size.Name + "/" + name
}

// close ends the trace and the context, which writes the HAR and the video.
func (v *view) close() {
	v.mu.Lock()
	v.closing = true
	v.mu.Unlock()
	if !v.givenUp && v.context != nil {
		trace := filepath.Join(v.dir, "trace.zip")
		if err := within(v.hard, finishTime, func() error { return v.context.Tracing().Stop(trace) }); err == nil {
			v.result.Trace = v.size.Name + "/trace.zip"
		} else {
			v.notes = append(v.notes, "no trace: "+plainError(err))
			if errors.Is(err, playwright.ErrTargetClosed) && v.stop != nil {
				v.stop(errBrowser) // no event reports its end; a trace outlives its page, but not its driver
			}
		}
		limit := finishTime
		if v.job.spec.Video {
			limit = filmTime
		}
		if err := within(v.hard, limit, func() error { return v.context.Close() }); err == nil {
			v.result.HAR = v.size.Name + "/network.har"
			v.keepVideo()
		} else {
			v.notes = append(v.notes, "no HAR: "+plainError(err))
		}
	}
	if v.console != nil {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.result.Console.Counts, v.result.Console.Dropped = v.console.counts, v.console.dropped
		if err := v.console.close(); err == nil {
			v.result.Console.File = v.size.Name + "/console.jsonl"
		} else {
			v.notes = append(v.notes, plainError(err))
		}
	}
}

// keepVideo moves the video of the main page to the evidence. Videos of popups are not kept.
func (v *view) keepVideo() {
	if v.page == nil || !v.job.spec.Video || v.place.ffmpeg == "" {
		return
	}
	err := within(v.hard, finishTime, func() error {
		video := v.page.Video()
		if video == nil {
			return errors.New("the browser made none")
		}
		path, err := video.Path()
		if err != nil {
			return err
		}
		return os.Rename(path, filepath.Join(v.dir, "video.webm"))
	})
	if err == nil {
		v.result.Video = v.size.Name + "/video.webm"
	} else {
		v.notes = append(v.notes, "no video: "+plainError(err))
	}
}

// conclude sets the verdict and the reason from the findings.
func (v *view) conclude(ctx context.Context, found []finding) {
	v.mu.Lock()
	defer v.mu.Unlock()
	found = append(found, v.faults.judge(v.job.allow, v.result)...)
	cause := context.Cause(ctx)
	if !v.browser.IsConnected() {
		cause = errBrowser // the browser ended the page
	}
	var late timeoutError
	switch {
	case errors.Is(cause, errBrowser):
		v.result.Verdict, v.result.Reason = browser.Unverified, errBrowser.Error()
		return
	case errors.As(cause, &late) && v.result.Status == 0 && len(found) == 0:
		v.result.Verdict, v.result.Reason = browser.Unverified, "the check "+late.Error()+" before the page answered"
		return
	case errors.As(cause, &late):
		found = append(found, finding{rankEnd, "the check " + late.Error()})
	case cause != nil:
		found = append(found, finding{rankEnd, cause.Error()})
	}
	v.result.Verdict = browser.Fail
	if len(found) == 0 {
		v.result.Verdict = browser.Pass
		found = append(found, finding{rankEnd, fmt.Sprintf("answered %d %s, %s, %s, no errors", v.result.Status,
			http.StatusText(v.result.Status), plural(v.result.Requests, "request"), plural(len(v.result.Steps), "step"))})
	}
	for _, note := range v.notes {
		found = append(found, finding{rankConsole + 1, note})
	}
	v.result.Reason = words(found)
}
