package executor_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// registry is an npm registry with one package.
type registry struct {
	*httptest.Server
	tarball   []byte
	integrity string

	mu    sync.Mutex // guards asked
	asked int
}

func newRegistry(t *testing.T) *registry {
	r := &registry{}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range map[string]string{
		"package/package.json": `{"name": "dep", "version": "1.0.0", "scripts": {"install": "touch ` +
			containers.WorkDir + `/script-was-run"}}`,
		"package/index.js": "module.exports = 'of the registry'\n",
	} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	r.tarball = b.Bytes()
	sum := sha512.Sum512(r.tarball)
	r.integrity = "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		r.asked++
		r.mu.Unlock()
		switch q.URL.Path {
		case "/dep":
			_ = json.NewEncoder(w).Encode(map[string]any{"name": "dep",
				"dist-tags": map[string]string{"latest": "1.0.0"}, "versions": map[string]any{
					"1.0.0": map[string]any{"name": "dep", "version": "1.0.0", "hasInstallScript": true,
						"dist": map[string]string{
							"tarball": r.URL + "/dep/-/dep-1.0.0.tgz", "integrity": r.integrity}}}})
		case "/dep/-/dep-1.0.0.tgz":
			_, _ = w.Write(r.tarball)
		default:
			http.NotFound(w, q)
		}
	}))
	// Containers connect to this address through the proxy. 127.0.0.1 is their own.
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Skipf("cannot run here: %v", err)
	}
	r.Listener.Close()
	r.Listener = l
	r.Start()
	t.Cleanup(r.Close)
	return r
}

func (r *registry) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

// env makes package managers use the registry, through the door.
func (r *registry) env(x *executor.Executor) {
	x.Options.Egress = []string{strings.TrimPrefix(r.URL, "http://")}
	x.Options.Env = []string{"npm_config_registry=" + r.URL + "/", "npm_config_fetch_retries=0"}
}

// TestDependenciesFromTheCache installs dependencies that a warm-up fetched in a second
// container, without a request to the registry.
func TestDependenciesFromTheCache(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ engine, manager, lock, install string }{
		{"sandbox", "npm", "package-lock.json", "npm ci --ignore-scripts --no-audit --no-fund"},
		{"docker", "npm", "package-lock.json", "npm ci --ignore-scripts --no-audit --no-fund"},
		{"docker", "pnpm", "pnpm-lock.yaml", "pnpm install --frozen-lockfile --ignore-scripts"},
	} {
		t.Run(c.engine+"/"+c.manager, func(t *testing.T) {
			r := newRegistry(t)
			w := newWorldOn(t, c.engine, r.env)
			if res := w.result("look", c.manager+" --version"); res.ExitCode != 0 {
				t.Skipf("cannot run here: containers have no %s", c.manager)
			}
			text := fmt.Sprintf(`{"name": "app", "version": "1.0.0", "lockfileVersion": 3, "requires": true, "packages": {
				"": {"name": "app", "version": "1.0.0", "dependencies": {"dep": "1.0.0"}},
				"node_modules/dep": {"version": "1.0.0", "resolved": "%s/dep/-/dep-1.0.0.tgz", "integrity": %q, "hasInstallScript": true}}}`, r.URL, r.integrity)
			if c.manager == "pnpm" {
				text = "lockfileVersion: '9.0'\n\nimporters:\n\n  .:\n    dependencies:\n      dep:\n        specifier: 1.0.0\n        version: 1.0.0\n\n" +
					"packages:\n\n  dep@1.0.0:\n    resolution: {integrity: " + r.integrity +
					"}\n\nsnapshots:\n\n  dep@1.0.0: {}\n"
			}
			repo, commit := w.onBase(map[string]string{c.lock: text, ".gitignore": "node_modules\n",
				"package.json": `{"name": "app", "version": "1.0.0", "dependencies": {"dep": "1.0.0"}}`})
			w.record(repo, commit)
			var said strings.Builder
			if err := w.x.Warm(t.Context(), "demo", commit, &said); err != nil {
				t.Fatal(err)
			}
			if r.count() == 0 || !strings.Contains(said.String(), "in the cache now") {
				t.Fatalf("the registry was asked %d times: %s", r.count(), said.String())
			}
			before := r.count()
			if err := w.x.Warm(t.Context(), "demo", commit, &said); err != nil || r.count() != before {
				t.Error("what is in the cache was fetched again", err)
			}
			w.layer()
			res := w.result("second", c.install+` && node -e 'console.log(require("dep"))'`)
			if res.ExitCode != 0 || !strings.Contains(res.Stdout.Tail, "of the registry") {
				t.Fatalf("%+v", res)
			}
			if n := r.count(); n != before {
				t.Errorf("the registry was asked %d more times", n-before)
			}
			if s := w.x.Stats(); w.x.Fleet.Keeper != nil && (s.Mounted != 1 || s.Unpacked > 1) { // the first is the layer's
				t.Errorf("%+v", s)
			}
			if strings.Contains(res.Stderr.Tail, "Unknown") {
				t.Errorf("the package manager complains: %s", res.Stderr.Tail)
			}
			if _, err := repo.ReadFile(t.Context(), "ramus/run-second", "script-was-run", 0); err == nil {
				t.Error("the script of a dependency was run")
			}
			if hosts := w.x.Fleet.List(t.Context()); len(hosts) > 2 {
				t.Errorf("the container of the warm-up is left: %+v", hosts)
			}
		})
	}
}

// result runs a shell line for the caller "run:NAME".
func (w *world) result(name, line string) record.Result {
	w.t.Helper()
	res, _, _ := w.exec("run:"+name, line)
	return res
}

// onBase puts files onto the base of demo.
func (w *world) onBase(files map[string]string) (*gitd.Repo, gitd.Hash) {
	w.t.Helper()
	return w.onBaseOf("demo", files)
}

func (w *world) onBaseOf(name string, files map[string]string) (*gitd.Repo, gitd.Hash) {
	w.t.Helper()
	repo, err := w.git.Repo(name)
	if err != nil {
		w.t.Fatal(err)
	}
	tip, err := repo.Resolve(w.t.Context(), "main")
	if err != nil {
		w.t.Fatal(err)
	}
	var put []gitd.File
	for name, text := range files {
		put = append(put, gitd.File{Path: name, Content: []byte(text)})
	}
	commit, err := repo.WriteCommit(w.t.Context(), gitd.NewCommit{From: tip, Parents: []gitd.Hash{tip}, Put: put,
		Author: gitd.Person{Name: "T", Email: "t@example.org"}, Message: "base"})
	if err == nil {
		err = repo.Update(w.t.Context(), gitd.RefUpdate{Name: "refs/heads/main", New: commit})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return repo, commit
}

// record makes the manifest of a base that needs no upstream.
func (w *world) record(repo *gitd.Repo, commit gitd.Hash) {
	w.t.Helper()
	locks, err := repo.Lockfiles(w.t.Context(), commit)
	if err == nil {
		_, err = repo.PutBase(w.t.Context(), gitd.Base{Branch: "main", Commit: commit, Head: commit, Lockfiles: locks},
			gitd.Person{Name: "T", Email: "t@example.org"})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// TestModulesFromTheCache finds Go modules without a proxy, also on a branch with another
// go.sum.
func TestModulesFromTheCache(t *testing.T) {
	t.Parallel()
	proxy := t.TempDir()
	dir := filepath.Join(proxy, "example.org", "dep", "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range map[string]string{"go.mod": "module example.org/dep\n",
		"dep.go": "package dep\n\nconst Word = \"of the proxy\"\n"} {
		f, err := z.Create("example.org/dep@v1.0.0/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"v1.0.0.info": `{"Version": "v1.0.0", "Time": "2024-01-01T00:00:00Z"}`,
		"v1.0.0.mod":  "module example.org/dep\n", "v1.0.0.zip": b.String(), "list": "v1.0.0\n",
	}
	base := map[string]string{
		"go.mod":  "module example.org/app\n\ngo 1.21\n\nrequire example.org/dep v1.0.0\n",
		"main.go": "package main\n\nimport \"example.org/dep\"\n\nfunc main() { println(dep.Word) }\n",
	}
	for name, text := range files {
		base["proxy/example.org/dep/@v/"+name] = text
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	app := t.TempDir()
	for _, name := range []string{"go.mod", "main.go"} {
		if err := os.WriteFile(filepath.Join(app, name), []byte(base[name]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tidy := exec.Command("go", "mod", "download", "-modcacherw", "all")
	tidy.Dir = app
	tidy.Env = append(os.Environ(), "GOPROXY=file://"+proxy, "GOSUMDB=off", "GOMODCACHE="+t.TempDir(),
		"GOFLAGS=-mod=mod", "GOTOOLCHAIN=local")
	if out, err := tidy.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	sum, err := os.ReadFile(filepath.Join(app, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	base["go.sum"] = string(sum)

	w := newWorld(t, func(x *executor.Executor) {
		x.Options.Env = []string{"GOPROXY=file://" + containers.WorkDir + "/proxy", "GOSUMDB=off", "GOTOOLCHAIN=local"}
	})
	if res := w.result("look", "go version"); res.ExitCode != 0 {
		t.Skip("cannot run here: sandboxes have no go")
	}
	repo, commit := w.onBase(base)
	w.record(repo, commit)
	if err := w.x.Warm(t.Context(), "demo", commit, nil); err == nil || !strings.Contains(err.Error(), "egress") {
		t.Errorf("without a host to fetch from: %v", err)
	}
	w.stop(false)
	opts := w.opts
	w.opts = func(x *executor.Executor) { opts(x); x.Options.Egress = []string{"localhost:9"} }
	w.start()
	const offline = `export GOPROXY=off GOFLAGS=-mod=mod && dir=$(go list -f '{{.Dir}}' example.org/dep) && cat "$dir/dep.go"`
	if res := w.result("cold", offline); res.ExitCode == 0 {
		t.Fatalf("there is nothing to save: %+v", res)
	}
	if err := w.x.Warm(t.Context(), "demo", commit, nil); err != nil {
		t.Fatal(err)
	}
	w.layer()
	res := w.result("warm", offline)
	if res.ExitCode != 0 || !strings.Contains(res.Stdout.Tail, "of the proxy") {
		t.Fatalf("%+v", res)
	}
	if events := w.journal(res.Run); !strings.Contains(events, "dependencies from the cache: go") {
		t.Errorf("the journal does not tell: %s", events)
	}
	w.onBase(map[string]string{"go.sum": string(sum) +
		"example.org/other v1.0.0 h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"})
	if res := w.result("changed", offline); res.ExitCode != 0 {
		t.Fatalf("%+v", res)
	}

	if res := w.result("warm", "go clean -modcache && "+offline); res.ExitCode == 0 || strings.Contains(res.Stderr.Tail, "busy") {
		t.Errorf("a cache cannot be emptied: %+v", res)
	}

	// A tarball that is damaged or wrong costs only time.
	w.stop(false)
	w.opts = func(x *executor.Executor) { opts(x); x.Fleet.Keeper = nil }
	w.start()
	tarballs, err := filepath.Glob(filepath.Join(w.data, "artifacts", "cache", "*", "go", "demo", "*"))
	if err != nil || len(tarballs) != 1 {
		t.Fatal(tarballs, err)
	}
	for name, text := range map[string][]byte{"empty": nil, "none": []byte("hello"), "cut": truncated(t, tarballs[0]),
		"hostile": hostileTarball(t)} {
		if err := os.WriteFile(tarballs[0], text, 0o600); err != nil {
			t.Fatal(err)
		}
		res := w.result(name, "test ! -e evil && test ! -e /tmp/evil && test ! -e ~/.profile && cat greeting.txt")
		if res.ExitCode != 0 || res.Commit != "" || strings.Contains(w.journal(res.Run), "from the cache") {
			t.Errorf("%s: %+v", name, res)
		}
	}
}

func truncated(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b[:len(b)/2]
}

// hostileTarball tries to leave the folder of its ecosystem.
func hostileTarball(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, h := range []tar.Header{
		{Name: "home/.profile", Size: 4}, {Name: "go/../.." + containers.WorkDir + "/evil", Size: 4},
		{Name: containers.WorkDir + "/evil", Size: 4},
		{Name: "go/link", Typeflag: tar.TypeSymlink, Linkname: "/tmp"}, {Name: "go/link/evil", Size: 4},
	} {
		h.Mode = 0o644
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write([]byte("evil")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
