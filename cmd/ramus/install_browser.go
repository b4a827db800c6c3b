package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/executor/browse"
)

// newBrowser returns the settings for checks of pages.
func newBrowser(c BrowserConfig) *browse.Browser {
	return &browse.Browser{Image: c.Image, Timeout: time.Duration(c.Timeout),
		Limits: containers.Limits{Memory: int64(c.Memory), CPUs: c.CPUs, PIDs: c.PIDs}}
}

// browserDir returns the folder of the Sandbox's browser. It is the configured one, or the folder "browser" next to
// this program. Returns "" if neither exists.
func browserDir(c BrowserConfig) string {
	if c.Dir != "" {
		return c.Dir
	}
	program, err := os.Executable()
	if err != nil {
		return ""
	}
	dir := filepath.Join(filepath.Dir(program), "browser")
	if _, err := os.Stat(filepath.Join(dir, "ramus-browser")); err != nil {
		return ""
	}
	return dir
}

// diagnoseBrowser starts the browser's program like a check does, and returns a description of its answer.
func diagnoseBrowser(ctx context.Context, c BrowserConfig, engine containers.Engine) (says string, err error) {
	const hint = "; run `make browser`; until then browser_test is UNVERIFIED"
	if s, ok := engine.(*sandbox.Engine); ok && s.Browser == "" {
		return "", fmt.Errorf("the folder of ramus has no folder browser with the browser's programs, and browser.dir is not set%s", hint)
	}
	sidecars, err := containers.AsSidecars(engine)
	if err != nil {
		return "", fmt.Errorf("cannot start a browser: %w", err)
	}
	var out, errs bytes.Buffer
	exit, err := sidecars.RunSidecar(ctx, "",
		containers.Sidecar{Owner: "doctor", Key: "doctor", Image: c.Image, Limits: newBrowser(c).Limits,
			Args: []string{containers.BrowserDir + "/ramus-browser", "version"}, Stdout: &out, Stderr: &errs})
	if err != nil {
		return "", fmt.Errorf("cannot start a browser: %w%s", err, hint)
	}
	var v struct {
		Driver   string `json:"driver"`
		Chromium string `json:"chromium"`
		FFmpeg   bool   `json:"ffmpeg"`
	}
	if exit.Code != 0 || json.Unmarshal(out.Bytes(), &v) != nil {
		return "", fmt.Errorf("the browser's program ended with %d: %s%s", exit.Code, strings.TrimSpace(errs.String()), hint)
	}
	says = fmt.Sprintf("%s, driver %s", v.Chromium, v.Driver)
	if !v.FFmpeg {
		says += "; it records no films"
	}
	return says, nil
}
