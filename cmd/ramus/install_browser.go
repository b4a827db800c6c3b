package main

import (
	"os"
	"path/filepath"
	"time"

	"github.com/ramus-dev/ramus/containers"
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
