package executor_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor"
)

// TestDependenciesInstalled checks that a new caller finds the dependencies of its lock file installed: from a layer
// where work trees are bound from outside, and otherwise by a command before its first one.
func TestDependenciesInstalled(t *testing.T) {
	prepareBase := func(t *testing.T, w *world, r *registry) {
		if res := w.result("look", "npm --version"); res.ExitCode != 0 {
			t.Skip("cannot run here: containers have no npm")
		}
		lock := fmt.Sprintf(`{"name": "app", "version": "1.0.0", "lockfileVersion": 3, "requires": true, "packages": {
			"": {"name": "app", "version": "1.0.0", "dependencies": {"dep": "1.0.0"}},
			"node_modules/dep": {"version": "1.0.0", "resolved": "%s/dep/-/dep-1.0.0.tgz", "integrity": %q, "hasInstallScript": true}}}`, r.URL, r.integrity)
		pkg := `{"name": "app", "version": "1.0.0", "dependencies": {"dep": "1.0.0"}}`
		repo, commit := w.onBase(map[string]string{"web/package-lock.json": lock, ".gitignore": "node_modules/\n", "web/package.json": pkg, "web/index.js": "require('dep')\n"})
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
		if res := w.result("one", "rm -rf web/node_modules && mkdir web/node_modules && echo own >web/node_modules/own && echo x >web/new"); res.ExitCode != 0 || res.Commit == "" {
			t.Fatalf("%+v", res)
		}
		if res, out, _ := w.exec("run:one", "ls web/node_modules; git status --porcelain; git show --name-only --format= HEAD"); out != "own\nweb/new\n" {
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
