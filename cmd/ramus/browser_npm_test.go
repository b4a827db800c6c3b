package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/programs"
)

// npmRegistry returns the registry that npm is configured for. It skips the test if nothing
// answers there.
func npmRegistry(t *testing.T) *url.URL {
	t.Helper()
	if os.Getenv("RAMUS_TEST") != "npm" {
		t.Skip("only with RAMUS_TEST=npm: downloads packages, for some minutes")
	}
	out, err := exec.CommandContext(t.Context(), "npm", "config", "get", "registry").Output()
	if err != nil {
		t.Skipf("cannot run here: no npm: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := exec.CommandContext(ctx, "npm", "ping").Run(); err != nil {
		t.Skipf("cannot run here: npm's registry cannot be reached: %v", err)
	}
	u, err := url.Parse(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatalf("npm's registry: %v", err)
	}
	u.User = nil
	return u
}

// buildRamus builds the program into a folder with the browser's programs.
func buildRamus(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "ramus")
	if err := programs.Into(filepath.Dir(binary), "cmd/ramus"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(abs(t, "../../bin/browser"), filepath.Join(filepath.Dir(binary), "browser")); err != nil {
		t.Fatal(err)
	}
	return binary
}

// TestDemoBrowser runs make demo-browser, which checks its own result.
func TestDemoBrowser(t *testing.T) {
	npmRegistry(t)
	if _, err := os.Stat("../../bin/browser/ramus-browser"); err != nil {
		t.Skipf("cannot run here: the browser's programs are not there (make browser): %v", err)
	}
	demo := exec.CommandContext(t.Context(), abs(t, "../../scripts/demo-browser.sh"))
	demo.Env = append(os.Environ(), "RAMUS="+buildRamus(t), "TMPDIR="+t.TempDir())
	out, err := demo.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// TestPlaywrightFromNPM runs a project's own tests with the browser of the image
// ramus/task-browser. They pass in the newest release of Playwright and in older ones of each
// layout. All requests go to npm.
func TestPlaywrightFromNPM(t *testing.T) {
	registry := npmRegistry(t)
	const image = "ramus/task-browser:latest"
	if out, err := exec.CommandContext(t.Context(), "docker", "image", "inspect", image).CombinedOutput(); err != nil {
		t.Skipf("cannot run here: no image %s (make task-browser): %v: %.200s", image, err, out)
	}
	binary := buildRamus(t)
	for _, version := range []string{"latest", "1.57.0", "1.49.1", "1.48.2"} {
		t.Run(version, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "playwright") // a short path, because sockets are below it
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			s := &agentSite{t: t, binary: binary, data: filepath.Join(dir, "data")}
			if err := os.Mkdir(s.data, 0o700); err != nil {
				t.Fatal(err)
			}
			s.config = fmt.Sprintf("engine: docker\nimage: %s\negress: [%q]\nenv: {NPM_CONFIG_REGISTRY: %q}\n", image,
				registry.Host, registry)
			s.configure("\x00", "")
			s.environ = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "RAMUS_DATA=" + s.data, "NO_COLOR=1",
				"GIT_CONFIG_NOSYSTEM=1"}
			if docker := os.Getenv("DOCKER_HOST"); docker != "" {
				s.environ = append(s.environ, "DOCKER_HOST="+docker)
			}
			src := filepath.Join(dir, "app")
			if err := os.CopyFS(src, os.DirFS("testdata/playwright")); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"},
				{"-c", "user.name=T", "-c", "user.email=t@example.org", "commit", "-qm", "begin"}} {
				cmd := exec.CommandContext(t.Context(), "git", args...)
				cmd.Dir, cmd.Env = src, s.environ
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("git %q: %v\n%s", args, err, out)
				}
			}
			s.ramus("repo", "import", "app", src)
			out := s.ramus("exec", "conv:one", "--repo", "app", "--", "sh", "-euc",
				`npm install --no-save --no-package-lock --no-fund --no-audit "@playwright/test@$1"; /ramus link-browsers; npx playwright test`, "sh", version)
			for _, want := range []string{"/ms-playwright/chromium", "→ /usr/lib/chromium/chromium-headless-shell", "2 passed"} {
				if !strings.Contains(out, want) {
					t.Errorf("it does not say %q:\n%s", want, out)
				}
			}
			var m record.Manifest
			text := s.ramus("evidence", "conv:one", "--json")
			if err := json.NewDecoder(bytes.NewReader([]byte(text))).Decode(&m); err != nil {
				t.Fatalf("cannot read the manifest: %v\n%s", err, text)
			}
			for _, e := range m.Egress {
				if name, _, err := net.SplitHostPort(e.Host); err != nil || name != registry.Hostname() {
					t.Errorf("it asked for %s: %s", e.Host, e.Verdict)
				}
			}
		})
	}
}
