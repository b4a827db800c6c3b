package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/mxschmitt/playwright-go"

	"github.com/ramus-dev/ramus/tasks/browser"
)

// Bounds on a job. The server has narrower ones. These prevent a broken job from filling the container.
const (
	maxJob       = 4 << 20
	maxViewports = 10
	maxSteps     = 200
	maxPatterns  = 100
	maxMasks     = 50
	maxSide      = 8000 // CSS pixels of a viewport
	maxTime      = 24 * time.Hour

	defaultWait     = 60 * time.Second
	defaultTimeout  = 2 * time.Minute
	defaultStepTime = 10 * time.Second
)

// job is a checked browser.Job.
type job struct {
	spec     browser.Spec
	page     *url.URL
	state    json.RawMessage
	proxy    *url.URL // nil allows only local addresses
	deadline time.Duration
	timeout  time.Duration
	clock    time.Time // zero means the real time
	allow    allowed
}

// readJob reads a job. Its mistakes are the server's and not the page's.
func readJob(r io.Reader) (browser.Job, error) {
	var j browser.Job
	text, err := io.ReadAll(io.LimitReader(r, maxJob+1))
	if err != nil {
		return j, fmt.Errorf("cannot read the job: %w", err)
	}
	if len(text) > maxJob {
		return j, fmt.Errorf("cannot read the job: it is longer than %d MiB", maxJob>>20)
	}
	if err := json.Unmarshal(text, &j); err != nil {
		return j, fmt.Errorf("cannot read the job: %w", err)
	}
	return j, nil
}

// viewName is the form of a viewport's name, which is also the name of a folder of the evidence.
var viewName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// newJob checks the fields that the driver relies on.
func newJob(in browser.Job) (*job, error) {
	j := &job{spec: in.Spec, state: in.State}
	wait := orElse(in.Spec.Wait, defaultWait)
	j.spec.Wait = browser.Duration(wait)
	j.timeout = orElse(in.Spec.Timeout, defaultTimeout)
	j.deadline = orElse(in.Deadline, wait+j.timeout+30*time.Second)
	var err error
	if j.page, err = webURL(in.Spec.URL); err != nil {
		return nil, err
	}
	if j.proxy, err = proxyURL(in.Proxy); err != nil {
		return nil, err
	}
	if err := j.checkViews(); err != nil {
		return nil, err
	}
	if n := len(j.spec.Steps); n > maxSteps {
		return nil, fmt.Errorf("%d steps are too many; at most %d", n, maxSteps)
	}
	if n := len(j.spec.Screenshot.Mask); n > maxMasks {
		return nil, fmt.Errorf("%d masks are too many; at most %d", n, maxMasks)
	}
	if j.spec.Clock != "" {
		if j.clock, err = time.Parse(time.RFC3339, j.spec.Clock); err != nil {
			return nil, fmt.Errorf("cannot read the clock: %w", err)
		}
	}
	if len(j.state) > 0 && string(j.state) != "null" {
		var s playwright.OptionalStorageState
		if json.Unmarshal(j.state, &s) != nil {
			// The error would quote a secret.
			return nil, errors.New("cannot read the storage state: it is not {\"cookies\": […], \"origins\": […]}")
		}
	} else {
		j.state = nil
	}
	j.allow, err = compileAllow(in.Spec.Allow)
	return j, err
}

// orElse returns a duration of the job if it is valid, and otherwise the other one.
func orElse(d browser.Duration, otherwise time.Duration) time.Duration {
	if d <= 0 || time.Duration(d) > maxTime {
		return otherwise
	}
	return time.Duration(d)
}

// checkViews sets default viewports, and refuses those that cannot be a window or a folder.
func (j *job) checkViews() error {
	if len(j.spec.Viewports) == 0 {
		j.spec.Viewports = []browser.Viewport{browser.Desktop, browser.Mobile}
	}
	if n := len(j.spec.Viewports); n > maxViewports {
		return fmt.Errorf("%d viewports are too many; at most %d", n, maxViewports)
	}
	j.spec.Viewports = slices.Clone(j.spec.Viewports)
	seen := make(map[string]bool)
	for i, v := range j.spec.Viewports {
		switch {
		case !viewName.MatchString(v.Name):
			return fmt.Errorf("viewport %q: a name has small letters, digits, - and _ only", v.Name)
		case seen[v.Name]:
			return fmt.Errorf("viewport %q is there twice", v.Name)
		case v.Width < 1 || v.Height < 1 || v.Width > maxSide || v.Height > maxSide:
			return fmt.Errorf("viewport %q: %dx%d is no size between 1 and %d", v.Name, v.Width, v.Height, maxSide)
		case v.Scale < 0 || v.Scale > 4:
			return fmt.Errorf("viewport %q: scale %v is not between 0 and 4", v.Name, v.Scale)
		}
		seen[v.Name] = true
		if v.Scale == 0 {
			j.spec.Viewports[i].Scale = 1
		}
	}
	return nil
}

// webURL parses the address of a page. It refuses other schemes (file:, view-source:, chrome:), which would show pages
// that are not the application's.
func webURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("cannot read the address: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is no address of a page: it must begin with http:// or https://", text)
	}
	return u, nil
}

// proxyURL parses the address of the egress proxy.
func proxyURL(text string) (*url.URL, error) {
	if text == "" {
		return nil, nil
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("cannot read the proxy's address: %w", err)
	}
	if u.Scheme != "http" || u.Hostname() == "" || u.Port() == "" || u.User != nil {
		return nil, errors.New("the proxy's address must be http://HOST:PORT, without a password")
	}
	return u, nil
}

// isLocal reports whether a host is the container's own.
func isLocal(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

// resolve parses the address of a goto or expect_url, which may be a path.
func (j *job) resolve(target string) (*url.URL, error) {
	u, err := j.page.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("cannot read the address: %w", err)
	}
	return webURL(u.String())
}
