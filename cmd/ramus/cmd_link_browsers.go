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
	"regexp"
	"slices"
	"strings"
)

func linkBrowsersCommand() command {
	return command{
		name: "link-browsers", args: "[DIR]",
		short: "let a project's own Playwright tests use the browser that is installed",
		long: `
Every release of Playwright looks for a browser of its own revision, and would
download it. This finds the releases that a project has installed (below DIR,
default the current folder), and links what each looks for to the Chromium of
this container or machine, for films to its ffmpeg too. In a container it is run
as "/ramus link-browsers", after the dependencies are installed and before the
tests; the image ramus/task-browser has the browser (make task-browser).

The links are made in $PLAYWRIGHT_BROWSERS_PATH, default ~/.cache/ms-playwright.
A browser that is there is left as it is. There is no Firefox and no WebKit.`,
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

// localBrowsers are the programs that links lead to, each the first that is there.
type localBrowsers struct{ shell, chromium, ffmpeg []string }

// installedBrowsers is where distributions put them. /usr/bin/chromium of Debian is a
// script that means to be called by people. A browser without a window does nearly all that one
// with a window does, so it takes its place.
var installedBrowsers = localBrowsers{
	shell:    []string{"/usr/lib/chromium/chromium-headless-shell", "/usr/lib/chromium/chromium", "/usr/lib64/chromium-browser/headless_shell", "/usr/bin/chromium"},
	chromium: []string{"/usr/lib/chromium/chromium", "/usr/lib/chromium/chromium-headless-shell", "/usr/bin/chromium"},
	ffmpeg:   []string{"/usr/bin/ffmpeg", "/usr/local/bin/ffmpeg"},
}

// browserLayouts are the paths inside a browser's folder that releases of Playwright
// have looked at: up to 1.48, from 1.49, from 1.57, on arm64.
var browserLayouts = map[string][]string{
	"chromium":                {"chrome-linux/chrome", "chrome-linux64/chrome", "chrome-linux-arm64/chrome"},
	"chromium-headless-shell": {"chrome-linux/headless_shell", "chrome-headless-shell-linux64/chrome-headless-shell", "chrome-headless-shell-linux-arm64/chrome-headless-shell"},
	"ffmpeg":                  {"ffmpeg-linux"},
}

func linkBrowsers(ctx context.Context, e *env, dir string, local localBrowsers) error {
	packages, err := findPlaywright(ctx, dir)
	if err != nil {
		return fmt.Errorf("cannot look for Playwright: %w", err)
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
				program = "is there already"
			}
			fmt.Fprintf(e.out, "Playwright %s: %s %s → %s\n", e.oneLine(release.version, 40), e.safe(folder), b.Name, program)
		}
	}
	return nil
}

// browsersPath is the folder where Playwright's package p looks for browsers. The end of a link
// that leads nowhere yet is made: an image may have linked to a folder of a volume.
func browsersPath(e *env, p string) (string, error) {
	path := e.getenv("PLAYWRIGHT_BROWSERS_PATH")
	switch path {
	case "0": // its own way to say: inside of the package
		path = filepath.Join(p, ".local-browsers")
	case "":
		cache := e.getenv("XDG_CACHE_HOME")
		if cache == "" {
			home := e.getenv("HOME")
			if home == "" {
				return "", errors.New("cannot tell where browsers are: neither PLAYWRIGHT_BROWSERS_PATH nor HOME is set")
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

// linkBrowser makes folder look like one that Playwright has installed. It
// reports whether program is what is used there; a browser that is no link stays.
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
	// `playwright install` downloads nothing into a folder that has this, and the other keeps it from
	// asking the machine for libraries that a browser with a window needs.
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

// playwrightRelease is what one installed playwright-core says of itself.
type playwrightRelease struct {
	version  string
	browsers []playwrightBrowser // those of browserLayouts
}

type playwrightBrowser struct {
	Name     string `json:"name"`
	Revision string `json:"revision"`
}

// browserRevision is part of a folder's name.
var browserRevision = regexp.MustCompile(`^[0-9A-Za-z_]{1,40}$`)

// readPlaywright reads the package's browsers.json. A revision that could leave the folder of browsers is refused.
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
			return playwrightRelease{}, fmt.Errorf("cannot read %s: %q is no revision", name, b.Revision)
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

// playwrightNames are the packages that lead to playwright-core, and that one.
var playwrightNames = []string{"playwright-core", "playwright", "@playwright/test"}

// findPlaywright returns the real folders of every playwright-core that a
// project in dir can load: those in its node_modules folders at any depth, and those
// that their links, and Node's way of looking in the folders above, lead to.
func findPlaywright(ctx context.Context, dir string) ([]string, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, err
	}
	found := make(map[string]bool) // by real folder, also of packages that are not playwright-core
	// follow takes a package's folder, which may be a link into a package manager's store, and
	// what that package itself would load.
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
			return nil // a folder of somebody else's, or one that just went
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

// moduleName is the name of the package that lies at p, "@playwright/test"; empty: none does.
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

// nodeModule is where Node finds the package name for a file in dir; empty: nowhere.
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
