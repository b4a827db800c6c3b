package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// playwrightStand is a folder with projects in the layouts of package managers, and a browser.
type playwrightStand struct {
	t       *testing.T
	dir     string
	local   localBrowsers
	environ []string
}

func newPlaywrightStand(t *testing.T) *playwrightStand {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &playwrightStand{t: t, dir: dir, environ: []string{"PLAYWRIGHT_BROWSERS_PATH=" + filepath.Join(dir, "browsers")}}
	s.write("bin/shell", "")
	s.write("bin/ffmpeg", "")
	s.local = localBrowsers{
		shell:    []string{filepath.Join(dir, "bin/none"), filepath.Join(dir, "bin/shell")},
		chromium: []string{filepath.Join(dir, "bin/shell")},
		ffmpeg:   []string{filepath.Join(dir, "bin/ffmpeg")},
	}
	return s
}

func (s *playwrightStand) write(name, text string) {
	s.t.Helper()
	name = filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
		s.t.Fatal(err)
	}
}

func (s *playwrightStand) link(target, name string) {
	s.t.Helper()
	name = filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Symlink(target, name); err != nil {
		s.t.Fatal(err)
	}
}

// core installs a playwright-core with one revision.
func (s *playwrightStand) core(p, version, revision string) {
	s.write(p+"/package.json", `{"version": "`+version+`"}`)
	s.write(p+"/browsers.json", `{"browsers": [{"name": "chromium", "revision": "`+revision+`"},
		{"name": "chromium-headless-shell", "revision": "`+revision+`"}, {"name": "ffmpeg", "revision": "1011"},
		{"name": "webkit", "revision": "2311", "revisionOverrides": {"mac14": "2251"}}]}`)
}

func (s *playwrightStand) run(project string) (string, error) {
	var out bytes.Buffer
	e := newEnv(stdio{out: &out, err: &out}, s.environ)
	err := linkBrowsers(s.t.Context(), e, filepath.Join(s.dir, project), s.local)
	return out.String(), err
}

// folders returns the entries of the folder of browsers.
func (s *playwrightStand) folders() []string {
	entries, err := os.ReadDir(filepath.Join(s.dir, "browsers"))
	if err != nil {
		s.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestLinkBrowsers(t *testing.T) {
	t.Parallel()
	s := newPlaywrightStand(t)
	s.core("app/node_modules/playwright-core", "1.65.1", "1255")
	// This one is an older version, which another package depends on.
	s.core("app/tools/e2e/node_modules/old/node_modules/playwright-core", "1.48.2", "1140")
	out, err := s.run("app")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Playwright 1.65.1", "Playwright 1.48.2", "chromium_headless_shell-1255", "→ " + s.local.shell[1]} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	if got, want := s.folders(), []string{"chromium-1140", "chromium-1255", "chromium_headless_shell-1140",
		"chromium_headless_shell-1255", "ffmpeg-1011"}; !slices.Equal(got, want) {
		t.Errorf("browsers are %v, want %v", got, want)
	}
	for name, want := range map[string]string{
		"chromium-1140/chrome-linux/chrome":                                                "bin/shell",
		"chromium-1255/chrome-linux64/chrome":                                              "bin/shell",
		"chromium_headless_shell-1255/chrome-linux/headless_shell":                         "bin/shell",
		"chromium_headless_shell-1255/chrome-headless-shell-linux64/chrome-headless-shell": "bin/shell",
		"ffmpeg-1011/ffmpeg-linux":                                                         "bin/ffmpeg",
		"chromium_headless_shell-1255/INSTALLATION_COMPLETE":                               "browsers/chromium_headless_shell-1255/INSTALLATION_COMPLETE",
	} {
		got, err := filepath.EvalSymlinks(filepath.Join(s.dir, "browsers", name))
		if err != nil || got != filepath.Join(s.dir, want) {
			t.Errorf("%s leads to %s, %v; want %s", name, got, err, want)
		}
	}
	// The command runs once more, also after the browser has moved.
	s.write("bin/newer", "")
	s.local.shell = []string{filepath.Join(s.dir, "bin/newer")}
	if _, err := s.run("app"); err != nil {
		t.Fatal(err)
	}
	got, err := os.Readlink(filepath.Join(s.dir, "browsers/chromium_headless_shell-1255/chrome-linux/headless_shell"))
	if err != nil || got != s.local.shell[0] {
		t.Errorf("the link leads to %s, %v", got, err)
	}
}

// TestLinkBrowsersPNPM uses pnpm's layout. Every package there is a link into one folder, which a workspace's
// packages share.
func TestLinkBrowsersPNPM(t *testing.T) {
	t.Parallel()
	s := newPlaywrightStand(t)
	store := "mono/node_modules/.pnpm/"
	s.core(store+"playwright-core@1.57.0/node_modules/playwright-core", "1.57.0", "1200")
	s.write(store+"playwright@1.57.0/node_modules/playwright/package.json", "{}")
	s.link("../../playwright-core@1.57.0/node_modules/playwright-core",
		store+"playwright@1.57.0/node_modules/playwright-core")
	s.write(store+"@playwright+test@1.57.0/node_modules/@playwright/test/package.json", "{}")
	s.link("../../playwright@1.57.0/node_modules/playwright", store+"@playwright+test@1.57.0/node_modules/playwright")
	s.link("../../../../node_modules/.pnpm/@playwright+test@1.57.0/node_modules/@playwright/test",
		"mono/packages/web/node_modules/@playwright/test")
	for _, project := range []string{"mono", "mono/packages/web", "mono/packages"} {
		out, err := s.run(project)
		if err != nil || strings.Count(out, "\n") != 3 || !strings.Contains(out, "chromium-1200") {
			t.Errorf("%s: %v\n%s", project, err, out)
		}
		if err := os.RemoveAll(filepath.Join(s.dir, "browsers")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLinkBrowsersFolder(t *testing.T) {
	t.Parallel()
	for name, environ := range map[string][]string{
		"browsers":                  {"PLAYWRIGHT_BROWSERS_PATH=link"}, // made below
		"home/.cache/ms-playwright": {"HOME=home"},
		"xdg/ms-playwright":         {"HOME=home", "XDG_CACHE_HOME=xdg"},
		"app/node_modules/playwright-core/.local-browsers": {"PLAYWRIGHT_BROWSERS_PATH=0", "HOME=home"},
	} {
		s := newPlaywrightStand(t)
		s.core("app/node_modules/playwright-core", "1.65.1", "1255")
		s.link("browsers", "link") // leads nowhere yet
		s.environ = nil
		for _, kv := range environ {
			key, value, _ := strings.Cut(kv, "=")
			if value != "0" {
				value = filepath.Join(s.dir, value)
			}
			s.environ = append(s.environ, key+"="+value)
		}
		if _, err := s.run("app"); err != nil {
			t.Errorf("%v: %v", environ, err)
		}
		if _, err := os.Stat(filepath.Join(s.dir, name, "chromium-1255/chrome-linux64/chrome")); err != nil {
			t.Errorf("%v: %v", environ, err)
		}
	}
}

// TestLinkBrowsersLeavesAlone checks that browsers downloaded by Playwright itself are not touched, and that a
// package's metadata cannot lead out of the folder.
func TestLinkBrowsersLeavesAlone(t *testing.T) {
	t.Parallel()
	s := newPlaywrightStand(t)
	s.core("app/node_modules/playwright-core", "1.65.1", "1255")
	s.write("browsers/chromium-1255/chrome-linux64/chrome", "downloaded")
	out, err := s.run("app")
	if err != nil || !strings.Contains(out, "exists already") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := os.Lstat(filepath.Join(s.dir, "browsers/chromium-1255/chrome-linux/chrome")); err == nil {
		t.Error("there are links in a browser's folder that was downloaded")
	}

	for _, revision := range []string{"../../escape", "", "1/2", "1\x1b[2J"} {
		s.write("bad/node_modules/playwright-core/package.json", "{}")
		s.write("bad/node_modules/playwright-core/browsers.json",
			`{"browsers": [{"name": "chromium", "revision": `+quoted(revision)+`}]}`)
		if _, err := s.run("bad"); err == nil || !strings.Contains(err.Error(), "is not a revision") {
			t.Errorf("revision %q: %v", revision, err)
		}
	}
	s.write("bad/node_modules/playwright-core/browsers.json", `[`)
	if _, err := s.run("bad"); err == nil {
		t.Error("a broken browsers.json is taken")
	}
	if _, err := s.run("bin"); err == nil || !strings.Contains(err.Error(), "install the project's dependencies first") {
		t.Errorf("without Playwright: %v", err)
	}
	s.local = localBrowsers{}
	if _, err := s.run("app"); err == nil || !strings.Contains(err.Error(), "ramus/task-browser") {
		t.Errorf("without a browser: %v", err)
	}
}

func quoted(s string) string { return `"` + strings.ReplaceAll(s, "\x1b", `\u001b`) + `"` }
