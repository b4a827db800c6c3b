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
	"github.com/ramus-dev/ramus/executor"
)

// newBrowser says how pages are looked at.
func newBrowser(c BrowserConfig) *executor.Browser {
	return &executor.Browser{Image: c.Image, Timeout: time.Duration(c.Timeout),
		Limits: containers.Limits{Memory: int64(c.Memory), CPUs: c.CPUs, PIDs: c.PIDs}}
}

// browserDir is the folder of the Sandbox's browser: the one that is configured, or
// that lies beside this program; "" when there is neither.
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

// diagnoseBrowser starts the browser's program as a check would, and has it say what it finds.
func diagnoseBrowser(ctx context.Context, c BrowserConfig, engine containers.Engine) (says string, err error) {
	const hint = "; `make browser` makes what is needed, and browser_test is UNVERIFIED until then"
	if s, ok := engine.(*sandbox.Engine); ok && s.Browser == "" {
		return "", fmt.Errorf("there is no folder of the browser's programs beside ramus, and browser.dir names none%s", hint)
	}
	sidecars, err := containers.AsSidecars(engine)
	if err != nil {
		return "", fmt.Errorf("no browser can be started: %w", err)
	}
	var out, said bytes.Buffer
	exit, err := sidecars.RunSidecar(ctx, "", containers.Sidecar{Owner: "doctor", Key: "doctor", Image: c.Image, Limits: newBrowser(c).Limits,
		Args: []string{containers.BrowserDir + "/ramus-browser", "version"}, Stdout: &out, Stderr: &said})
	if err != nil {
		return "", fmt.Errorf("no browser can be started: %w%s", err, hint)
	}
	var v struct {
		Driver   string `json:"driver"`
		Chromium string `json:"chromium"`
		FFmpeg   bool   `json:"ffmpeg"`
	}
	if exit.Code != 0 || json.Unmarshal(out.Bytes(), &v) != nil {
		return "", fmt.Errorf("the browser's program ended with %d: %s%s", exit.Code, strings.TrimSpace(said.String()), hint)
	}
	says = fmt.Sprintf("%s, driver %s", v.Chromium, v.Driver)
	if !v.FFmpeg {
		says += "; it records no films"
	}
	return says, nil
}
