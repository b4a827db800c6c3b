package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/internal/pattern"
)

func linkBrowsersCommand() command {
	return command{
		name: "link-browsers", args: "[DIR]",
		short: "link the installed browser for a project's own Playwright tests",
		long: `
Every release of Playwright needs a browser of its own revision, and would download
it. This command finds the releases that a project has installed (below DIR, default
the current folder). It links the paths of their browsers to the Chromium of this
container or machine, and for films to its ffmpeg. In a container it is called as
"/ramus link-browsers", after the dependencies are installed and before the tests.
The image ramus/task-browser has the browser (make task-browser).

The links are made in $PLAYWRIGHT_BROWSERS_PATH, default ~/.cache/ms-playwright.
An existing browser is not changed. Firefox and WebKit are not supported.`,
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 0, 1, ""); err != nil {
				return err
			}
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}
			return linkBrowsers(ctx, e, dir, installedBrowsers)
		},
	}
}

// localBrowsers are the programs that links may point to. The first that exists is used.
type localBrowsers struct{ shell, chromium, ffmpeg []string }

// installedBrowsers are the paths that distributions use. /usr/bin/chromium of Debian is a script for people. A browser
// without a window supports nearly everything that one with a window does, and replaces it.
var installedBrowsers = localBrowsers{
	shell: []string{"/usr/lib/chromium/chromium-headless-shell", "/usr/lib/chromium/chromium",
		"/usr/lib64/chromium-browser/headless_shell", "/usr/bin/chromium"},
	chromium: []string{"/usr/lib/chromium/chromium", "/usr/lib/chromium/chromium-headless-shell", "/usr/bin/chromium"},
	ffmpeg:   []string{"/usr/bin/ffmpeg", "/usr/local/bin/ffmpeg"},
}

// browserLayouts are the paths inside a browser's folder that releases of Playwright use: up to 1.48, from 1.49, from
// 1.57, on arm64.
var browserLayouts = map[string][]string{
	"chromium": {"chrome-linux/chrome", "chrome-linux64/chrome", "chrome-linux-arm64/chrome"},
	"chromium-headless-shell": {"chrome-linux/headless_shell", "chrome-headless-shell-linux64/chrome-headless-shell",
		"chrome-headless-shell-linux-arm64/chrome-headless-shell"},
	"ffmpeg": {"ffmpeg-linux"},
}

func linkBrowsers(ctx context.Context, e *env, dir string, local localBrowsers) error {
	packages, err := findPlaywright(ctx, dir)
	if err != nil {
		return fmt.Errorf("cannot search for Playwright: %w", err)
	}
	if len(packages) == 0 {
		return fmt.Errorf("cannot find Playwright in %s: install the project's dependencies first", dir)
	}
	programs := map[string]string{
		"chromium":                firstProgram(local.chromium),
		"chromium-headless-shell": firstProgram(local.shell),
		"ffmpeg":                  firstProgram(local.ffmpeg),
	}
	if programs["chromium"] == "" || programs["chromium-headless-shell"] == "" {
		return errors.New("cannot link a browser: no Chromium is installed here; the image ramus/task-browser has one, or install chromium-headless-shell")
	}
	for _, p := range packages {
		release, err := readPlaywright(p)
		if err != nil {
			return err
		}
		root, err := browsersPath(e, p)
		if err != nil {
			return err
		}
		for _, b := range release.browsers {
			program := programs[b.Name]
			if program == "" {
				continue
			}
			folder := filepath.Join(root, strings.ReplaceAll(b.Name, "-", "_")+"-"+b.Revision)
			linked, err := linkBrowser(folder, browserLayouts[b.Name], program)
			if err != nil {
				return fmt.Errorf("cannot link %s for Playwright %s: %w", b.Name, release.version, err)
			}
			if !linked {
				program = "exists already"
			}
			fmt.Fprintf(e.out, "Playwright %s: %s %s → %s\n", e.oneLine(release.version, 40), e.safe(folder),
				b.Name, program)
		}
	}
	return nil
}

// browsersPath returns the folder in which Playwright's package p looks for browsers. If it is a link to a missing
// folder, that folder is made, because an image may link to a folder of a volume.
func browsersPath(e *env, p string) (string, error) {
	path := e.getenv("PLAYWRIGHT_BROWSERS_PATH")
	switch path {
	case "0": // Playwright's own value for a folder inside the package
		path = filepath.Join(p, ".local-browsers")
	case "":
		cache := e.getenv("XDG_CACHE_HOME")
		if cache == "" {
			home := e.getenv("HOME")
			if home == "" {
				return "", errors.New("cannot find the folder of browsers: neither PLAYWRIGHT_BROWSERS_PATH nor HOME is set")
			}
			cache = filepath.Join(home, ".cache")
		}
		path = filepath.Join(cache, "ms-playwright")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if end, err := os.Readlink(path); err == nil {
		if !filepath.IsAbs(end) {
			end = filepath.Join(filepath.Dir(path), end)
		}
		if err := os.MkdirAll(end, 0o755); err != nil {
			return "", fmt.Errorf("cannot make the folder of browsers: %w", err)
		}
	}
	return path, nil
}

// linkBrowser makes folder look like one that Playwright has installed. It reports whether program is used there. A
// browser that is not a link stays.
func linkBrowser(folder string, layouts []string, program string) (bool, error) {
	for _, layout := range layouts {
		if info, err := os.Lstat(filepath.Join(folder, layout)); err == nil && info.Mode().IsRegular() {
			return false, nil
		}
	}
	for _, layout := range layouts {
		link := filepath.Join(folder, layout)
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			return false, err
		}
		if end, err := os.Readlink(link); err == nil {
			if end == program {
				continue
			}
			if err := os.Remove(link); err != nil {
				return false, err
			}
		}
		if err := os.Symlink(program, link); err != nil {
			return false, err
		}
	}
	// `playwright install` downloads nothing into a folder with the first file. The second prevents it from asking for
	// libraries that a browser with a window needs.
	for _, marker := range []string{"INSTALLATION_COMPLETE", "DEPENDENCIES_VALIDATED"} {
		if err := os.WriteFile(filepath.Join(folder, marker), nil, 0o644); err != nil {
			return false, err
		}
	}
	return true, nil
}

func firstProgram(paths []string) string {
	for _, p := range paths {
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return p
		}
	}
	return ""
}

// playwrightRelease describes one installed playwright-core.
type playwrightRelease struct {
	version  string
	browsers []playwrightBrowser // those in browserLayouts
}

type playwrightBrowser struct {
	Name     string `json:"name"`
	Revision string `json:"revision"`
}

// browserRevision is part of a folder's name.
var browserRevision = pattern.New(`^[0-9A-Za-z_]{1,40}$`)

// readPlaywright reads the package's browsers.json. It refuses a revision that could leave the folder of browsers.
func readPlaywright(p string) (playwrightRelease, error) {
	var about struct {
		Version string `json:"version"`
	}
	if err := readPackageFile(filepath.Join(p, "package.json"), &about); err != nil {
		return playwrightRelease{}, err
	}
	var list struct {
		Browsers []playwrightBrowser `json:"browsers"`
	}
	name := filepath.Join(p, "browsers.json")
	if err := readPackageFile(name, &list); err != nil {
		return playwrightRelease{}, err
	}
	r := playwrightRelease{version: about.Version}
	for _, b := range list.Browsers {
		if browserLayouts[b.Name] == nil {
			continue
		}
		if !browserRevision.MatchString(b.Revision) {
			return playwrightRelease{}, fmt.Errorf("cannot read %s: %q is not a revision", name, b.Revision)
		}
		r.browsers = append(r.browsers, b)
	}
	return r, nil
}

// readPackageFile reads JSON of at most 1 MiB.
func readPackageFile(name string, v any) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", name, err)
	}
	return nil
}

// playwrightNames are playwright-core and the packages that depend on it.
var playwrightNames = []string{"playwright-core", "playwright", "@playwright/test"}

// findPlaywright returns the real folders of every playwright-core that a project in dir can load. It follows the
// node_modules folders of the project at any depth, their links, and Node's search in the folders above.
func findPlaywright(ctx context.Context, dir string) ([]string, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, err
	}
	found := make(map[string]bool) // by real folder, including packages other than playwright-core
	// follow adds a package and the packages that it would load. Its folder may be a link into a package manager's
	// store.
	var follow func(p string)
	follow = func(p string) {
		real, err := filepath.EvalSymlinks(p)
		if err != nil || found[real] {
			return
		}
		found[real] = true
		for _, name := range playwrightNames {
			if p := nodeModule(real, name); p != "" {
				follow(p)
			}
		}
	}
	for _, name := range playwrightNames {
		if p := nodeModule(dir, name); p != "" {
			follow(p)
		}
	}
	seen := 0
	err = filepath.WalkDir(dir, func(p string, entry fs.DirEntry, err error) error {
		if seen++; seen > 4_000_000 {
			return fmt.Errorf("%s has more than 4 million files", dir)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist):
			return nil // a folder of another user, or one that was removed meanwhile
		case err != nil:
			return err
		case entry.Name() == ".git":
			return skip(entry)
		}
		if name := moduleName(p); slices.Contains(playwrightNames, name) {
			follow(p)
		}
		return nil
	})
	var list []string
	for p := range found {
		if info, err := os.Stat(filepath.Join(p, "browsers.json")); err == nil && info.Mode().IsRegular() {
			list = append(list, p)
		}
	}
	slices.Sort(list)
	return list, err
}

func skip(entry fs.DirEntry) error {
	if entry.IsDir() {
		return fs.SkipDir
	}
	return nil
}

// moduleName returns the name of the package at p, as "@playwright/test". Returns "" if p is not a package.
func moduleName(p string) string {
	parent, name := filepath.Split(p)
	parent = filepath.Clean(parent)
	if scope := filepath.Base(parent); strings.HasPrefix(scope, "@") {
		name, parent = scope+"/"+name, filepath.Dir(parent)
	}
	if filepath.Base(parent) != "node_modules" {
		return ""
	}
	return name
}

// nodeModule returns the folder in which Node finds a package for a file in dir. Returns "" if there is none.
func nodeModule(dir, name string) string {
	for {
		p := filepath.Join(dir, "node_modules", name)
		if _, err := os.Stat(p); err == nil {
			return p
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}
