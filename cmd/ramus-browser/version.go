package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// versions is the output of `ramus-browser version`. Missing parts are empty.
type versions struct {
	Self     string `json:"ramus-browser"`
	Driver   string `json:"driver"`
	Chromium string `json:"chromium"`
	Node     string `json:"node"`
	FFmpeg   bool   `json:"ffmpeg"` // videos are supported
}

// version prints the versions of the programs for checks.
func version(ctx context.Context, w io.Writer) error {
	v := versions{Self: selfVersion()}
	p, err := findPlace()
	if p.driver != "" {
		v.Driver = p.driverVersion()
	}
	v.FFmpeg = p.ffmpeg != ""
	v.Node = programVersion(ctx, p.node)
	v.Chromium = programVersion(ctx, p.chromium)
	text, jerr := json.MarshalIndent(v, "", "  ")
	if jerr != nil {
		return fmt.Errorf("cannot print versions: %w", jerr)
	}
	if _, werr := fmt.Fprintf(w, "%s\n", text); werr != nil {
		return fmt.Errorf("cannot print versions: %w", werr)
	}
	return err
}

// selfVersion returns the module's version or commit, as recorded in the build.
func selfVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "devel"
}

// driverVersion returns the version in the driver's package.json. Returns "" if it cannot be read.
func (p place) driverVersion() string {
	text, err := os.ReadFile(filepath.Join(p.driver, "package", "package.json"))
	if err != nil {
		return ""
	}
	var pkg struct {
		Version string `json:"version"`
	}
	if json.Unmarshal(text, &pkg) != nil {
		return ""
	}
	return pkg.Version
}

// revision returns the revision of one of Playwright's own builds that the driver expects.
func (p place) revision(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(p.driver, "package", "browsers.json"))
	if err != nil {
		return "", fmt.Errorf("cannot read which browsers the driver wants: %w", err)
	}
	var list struct {
		Browsers []struct{ Name, Revision string }
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return "", fmt.Errorf("cannot read which browsers the driver wants: %w", err)
	}
	for _, b := range list.Browsers {
		if b.Name == name {
			return b.Revision, nil
		}
	}
	return "", fmt.Errorf("cannot find %s among the browsers the driver wants", name)
}

// programVersion returns the first line of `program --version`. Returns "" if there is none.
func programVersion(ctx context.Context, program string) string {
	if program == "" {
		return ""
	}
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line)
}
