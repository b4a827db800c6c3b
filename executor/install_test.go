package executor_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/executor"
)

// TestDependenciesInstalled checks that a new caller finds the dependencies of its lock file installed: from a layer
// where work trees are bound from outside, and otherwise by a command before its first one.
func TestDependenciesInstalled(t *testing.T) {
	t.Parallel()
	prepareBase := func(t *testing.T, w *world, r *registry) {
		if res := w.result("look", "npm --version"); res.ExitCode != 0 {
			t.Skip("cannot run here: containers have no npm")
		}
		pkg := `{"name": "app", "version": "1.0.0", "dependencies": {"dep": "1.0.0"}}`
		repo, commit := w.onBase(map[string]string{"web/package-lock.json": npmLock(r), ".gitignore": "node_modules/\n",
			"web/package.json": pkg, "web/index.js": "require('dep')\n"})
		w.record(repo, commit)
		var said strings.Builder
		if err := w.x.Warm(t.Context(), "demo", commit, &said); err != nil {
			t.Fatal(err, said.String())
		}
	}
	use := `node -e 'console.log(require("./web/node_modules/dep"))'; git status --porcelain`
	check := func(t *testing.T, w *world, caller, event string) {
		t.Helper()
		res, out, errs := w.exec("run:"+caller, use)
		if res.ExitCode != 0 || out != "of the registry\n" || res.Commit != "" {
			t.Fatalf("%+v, %q, %s", res, out, errs)
		}
		if events := w.journal(res.Run); strings.Contains(events, "npm ci") != (event != "") {
			t.Errorf("the journal has %s", events)
		}
		if r := w.result(caller, "test ! -e web/script-was-run && test ! -e script-was-run"); r.ExitCode != 0 {
			t.Error("a script of a dependency was run")
		}
	}
	t.Run("portable", func(t *testing.T) {
		r := newRegistry(t)
		w := newWorld(t, func(x *executor.Executor) { r.env(x); x.Fleet.Keeper = nil })
		prepareBase(t, w, r)
		before := r.count()
		check(t, w, "one", "npm ci")
		if r.count() != before {
			t.Error("the registry was asked")
		}
	})
	t.Run("bound", func(t *testing.T) {
		r := newRegistry(t)
		w := boundWorld(t, "sandbox", r.env)
		prepareBase(t, w, r)
		w.layer()
		check(t, w, "one", "")
		// A caller may change what it has, and no other caller sees that. Nothing of it is committed.
		if res := w.result("one",
			"rm -rf web/node_modules && mkdir web/node_modules && echo own >web/node_modules/own && echo x >web/new"); res.ExitCode != 0 || res.Commit == "" {
			t.Fatalf("%+v", res)
		}
		if res, out, _ := w.exec("run:one",
			"ls web/node_modules; git status --porcelain; git show --name-only --format= HEAD"); out != "own\nweb/new\n" {
			t.Errorf("%+v, %q", res, out)
		}
		check(t, w, "two", "")
		if s := w.x.Stats(); len(s.Portable) > 0 {
			t.Errorf("%+v", s)
		}
		// Another lock file is not that of the layer.
		w.result("three", `sed -i 's/"requires": true, //' web/package-lock.json`)
		w.stop(false)
		w.start()
		if res := w.result("three", "test ! -e web/node_modules"); res.ExitCode != 0 {
			t.Error("dependencies of another lock file are installed")
		}
	})
}

// TestYarnInstalled checks that the packages of a yarn.lock are installed once for all callers, with yarn from npm.
func TestYarnInstalled(t *testing.T) {
	t.Parallel()
	if os.Getenv("RAMUS_TEST") != "npm" {
		t.Skip("fetches yarn from npm; RAMUS_TEST=npm runs it")
	}
	for _, c := range []struct{ release, lock string }{
		{"yarn@1.22.22", "# yarn lockfile v1\n\n\ndep@1.0.0:\n  version \"1.0.0\"\n  resolved \"%[1]s/dep/-/dep-1.0.0.tgz\"\n  integrity %[2]s\n"},
	} {
		t.Run(c.release, func(t *testing.T) {
			tools := t.TempDir()
			if err := os.Chmod(filepath.Dir(tools), 0o755); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("npm", "install", "--silent", "--prefix", tools, c.release).CombinedOutput(); err != nil {
				t.Fatalf("npm: %v: %s", err, out)
			}
			r := newRegistry(t)
			w := boundWorld(t, "sandbox", func(x *executor.Executor) {
				r.env(x)
				x.Options.Env = append(x.Options.Env, "PATH="+tools+"/node_modules/.bin:/usr/local/bin:/usr/bin:/bin")
				x.Fleet.Engine.(*sandbox.Engine).ReadOnly = []string{tools}
			})
			files := map[string]string{"yarn.lock": fmt.Sprintf(c.lock, r.URL, r.integrity), ".gitignore": "node_modules\n",
				"package.json": `{"name": "app", "version": "1.0.0", "license": "MIT", "dependencies": {"dep": "1.0.0"}}`}
			repo, commit := w.onBase(files)
			w.record(repo, commit)
			var said strings.Builder
			if err := w.x.Warm(t.Context(), "demo", commit, &said); err != nil {
				t.Fatal(err, said.String())
			}
			w.layer()
			before := r.count()
			res, out, errs := w.exec("run:yarn",
				`node -e 'console.log(require("dep"))'; git status --porcelain; test ! -e script-was-run`)
			if res.ExitCode != 0 || out != "of the registry\n" || r.count() != before {
				t.Errorf("%+v, %q, %s", res, out, errs)
			}
			if events := w.journal(res.Run); strings.Contains(events, "yarn install") {
				t.Errorf("it was installed for this caller alone: %s", events)
			}
		})
	}
}

// TestFetchedTogether fetches the dependencies of one base twice at once. Neither ends the other's container.
func TestFetchedTogether(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	w := newWorld(t, r.env)
	if res := w.result("look", "npm --version"); res.ExitCode != 0 {
		t.Skip("cannot run here: containers have no npm")
	}
	repo, commit := w.onBase(map[string]string{"package-lock.json": npmLock(r),
		"package.json": `{"name": "app", "version": "1.0.0", "dependencies": {"dep": "1.0.0"}}`})
	w.record(repo, commit)
	errs := make(chan error, 3)
	for range cap(errs) {
		go func() { errs <- w.x.Warm(t.Context(), "demo", commit, io.Discard) }()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// npmLock is the lock file of a project with the dependency of the registry.
func npmLock(r *registry) string {
	return fmt.Sprintf(`{"name": "app", "version": "1.0.0", "lockfileVersion": 3, "requires": true, "packages": {
		"": {"name": "app", "version": "1.0.0", "dependencies": {"dep": "1.0.0"}},
		"node_modules/dep": {"version": "1.0.0", "resolved": "%s/dep/-/dep-1.0.0.tgz", "integrity": %q, "hasInstallScript": true}}}`, r.URL, r.integrity)
}
