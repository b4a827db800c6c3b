package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gateway"
)

// A repository that depends has depsPackages packages, with depsFiles files together. That is a middle-sized web application.
const (
	depsFiles    = 20_000
	depsPackages = 400
)

// depending is a small repository with dependencies. They are in a folder of the repository, so that nothing is fetched. pnpm
// stores each of their files separately.
var depending = shape{name: "depending", files: 437, commits: 100, depends: true}

// depsTest is the test of the repository. It fails if a package is missing.
const (
	depsTest = "let n = 0\nfor (const name of Object.keys(require('./package.json').dependencies)) n += require(name)\nconsole.log(n + ' files')\n"
	depsSaid = "20000 files\n" // by depsTest
)

// dependency returns the files that give a repository dependencies of depsFiles files.
func dependency() (map[string]string, error) {
	var app, locked, packages, snapshots strings.Builder
	files := map[string]string{"test.js": depsTest}
	for i := range depsPackages {
		name := fmt.Sprintf("dep-%03d", i)
		tarball, err := packaged(i)
		if err != nil {
			return nil, fmt.Errorf("cannot make a dependency: %w", err)
		}
		from := "packages/" + name + ".tgz"
		files[from] = string(tarball)
		sum := sha512.Sum512(tarball)
		if i > 0 {
			app.WriteString(", ")
		}
		fmt.Fprintf(&app, "%q: %q", name, "file:"+from)
		fmt.Fprintf(&locked, "      %s:\n        specifier: file:%s\n        version: file:%[2]s\n", name, from)
		fmt.Fprintf(&packages, "  %s@file:%s:\n    resolution: {integrity: sha512-%s, tarball: file:%[2]s}\n    version: 1.0.0\n\n", name, from,
			base64.StdEncoding.EncodeToString(sum[:]))
		fmt.Fprintf(&snapshots, "  %s@file:%s: {}\n\n", name, from)
	}
	files["package.json"] = `{"name": "app", "version": "1.0.0", "scripts": {"test": "node test.js"}, "dependencies": {` + app.String() + "}}\n"
	files["pnpm-lock.yaml"] = "lockfileVersion: '9.0'\n\nsettings:\n  autoInstallPeers: true\n  excludeLinksFromLockfile: false\n\n" +
		"importers:\n\n  .:\n    dependencies:\n" + locked.String() + "\npackages:\n\n" + packages.String() +
		"snapshots:\n\n" + snapshots.String()
	return files, nil
}

// packaged returns the tarball of the i-th package. Its main file exports the number of its files.
func packaged(i int) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	put := func(name, text string) error {
		err := w.WriteHeader(&tar.Header{Name: "package/" + name, Mode: 0o644, Size: int64(len(text)),
			ModTime: time.Unix(1_700_000_000, 0)})
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		return err
	}
	const each = depsFiles / depsPackages
	err := put("package.json", fmt.Sprintf(`{"name": "dep-%03d", "version": "1.0.0", "main": "index.js"}`, i))
	err = joined(err, put("index.js", fmt.Sprintf("module.exports = %d\n", each)))
	for n := 2; n < each && err == nil; n++ {
		err = put(fmt.Sprintf("lib/%d.js", n), prose(uint64(i*each+n), 2, 1))
	}
	err = errors.Join(err, w.Close(), z.Close())
	return b.Bytes(), err
}

// dependencies measures what a new caller's dependencies add to the time of its first output.
func dependencies(ctx context.Context, b *bench) error {
	r, err := b.repository(ctx, depending)
	if err != nil {
		return err
	}
	without, err := b.repository(ctx, small)
	if err != nil {
		return err
	}
	// ramus fetches dependencies only if some host is allowed. No request reaches this one.
	h, err := b.house(ctx, "deps", 2, "RAMUS_EGRESS=localhost:9")
	if err != nil {
		return err
	}
	if h.api == nil {
		return unable("only the image has a package manager that is known here")
	}
	for _, r := range []*repository{r, without} {
		if _, err := h.take(ctx, r); err != nil {
			return err
		}
	}
	begin := time.Now()
	done, err := h.client.RefreshRepo(ctx, r.name, gateway.RefreshRepo{Wait: true}, func(string) {})
	if err == nil && done.Cold != "" {
		err = errors.New(done.Cold)
	}
	if err != nil {
		return fmt.Errorf("cannot fetch dependencies: %w", err)
	}
	b.tell("20,000 files fetched and kept", "ms", ms(time.Since(begin)), target{}, "once a lock file, in the background")
	for _, kind := range []struct{ glob, what string }{
		{"pnpm-" + worktree.Platform + "-*", "20,000 files, layer made"},
		{"pnpm" + worktree.InstalledSuffix + "-*", "20,000 files, installed for all callers"},
	} {
		if err := h.untilLayer(ctx, r, kind.glob, kind.what); err != nil {
			return err
		}
	}
	mounted, none := h.coldSeeing("20,000 files", r, "yes\n"), h.coldSeeing("none", without, "no\n")
	unpacked, err := h.unpackRun(r)
	if err != nil {
		return err
	}
	m, err := b.compare(ctx, comparison{metrics: []metric{firstOutput}, sides: []side{mounted, none, unpacked}})
	if err != nil {
		return err
	}
	b.addPair(m, "20,000 files of dependencies", firstOutput.what, mounted.name, none.name,
		atMost(1.5)).note("against a caller without any")
	b.addPair(m, "20,000 files of dependencies", firstOutput.what, mounted.name, unpacked.name,
		target{}).note("a container that unpacks them")
	return dependenciesUsed(ctx, b, h, r)
}

// untilLayer waits for a layer of dependencies, and records the time.
func (h *house) untilLayer(ctx context.Context, r *repository, glob, what string) error {
	for begin := time.Now(); ; {
		made, err := filepath.Glob(filepath.Join(h.data, "layers", r.name, glob))
		if err != nil {
			return err
		}
		if len(made) > 0 {
			h.b.tell(what, "ms", ms(time.Since(begin)), target{}, "once a lock file, in the background")
			return h.settled(ctx)
		}
		if time.Since(begin) > time.Minute {
			h.b.sayf("%s: there is no layer %s after a minute", r.name, glob)
			return h.settled(ctx)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// answered is the metric of whole commands.
var answered = metric{"wall", "ms"}

// dependenciesUsed measures a test that needs all the dependencies, by a new caller and without ramus.
func dependenciesUsed(ctx context.Context, b *bench, h *house, r *repository) error {
	const label = "pnpm test, 20,000 files of dependencies"
	shelf, err := b.shelf(ctx, h.api, r)
	if err != nil {
		return err
	}
	mine := side{name: sideRamus, settle: h.settled, round: func(ctx context.Context, _ int) ([]float64, error) {
		x, err := h.exec(ctx, h.name(), r.name, record.Command{Args: []string{"pnpm", "--silent", "test"}})
		if err == nil {
			err = x.printed(depsSaid)
		}
		if err != nil {
			return nil, err
		}
		_, err = h.client.StopCaller(ctx, x.caller)
		return []float64{ms(x.all)}, err
	}}
	install, installed := shelf.install(), shelf.installed()
	m, err := b.compare(ctx, comparison{metrics: []metric{answered}, sides: []side{mine, install, installed}})
	if err != nil {
		return err
	}
	b.addPair(m, label, answered.what, mine.name, install.name, atMost(0.5))
	b.addPair(m, label, answered.what, mine.name, installed.name,
		target{}).note("a container that finds a work tree and node_modules")
	return nil
}

// shelf is a folder of this machine with a clone of the repository, and with a pnpm store that has all its dependencies. Containers
// of the engine have it bound at one place, so that pnpm makes hard links from its store to a work tree.
type shelf struct {
	dir string
	api *engineAPI
	r   *repository
}

// Scripts of containers with a shelf. Each prints something.
const (
	shelfFill = `cd /shelf && git clone -q file:///repo.git ready 2>/dev/null && cd ready &&
pnpm install --silent --frozen-lockfile --ignore-scripts --store-dir /shelf/store && echo filled`
	shelfInstall = `cd /shelf && git clone -q file:///repo.git tree 2>/dev/null && cd tree &&
pnpm install --silent --offline --frozen-lockfile --ignore-scripts --store-dir /shelf/store && exec pnpm --silent test`
	shelfTest  = `cd /shelf/ready && exec pnpm --silent test`
	shelfClear = `rm -rf /shelf/tree && echo clear`
	shelfEmpty = `rm -rf /shelf/* && echo empty`
)

// shelf makes a shelf, until the scenario ends.
func (b *bench) shelf(ctx context.Context, e *engineAPI, r *repository) (shelf, error) {
	s := shelf{filepath.Join(b.dir, "shelf"), e, r}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return s, err
	}
	// The files belong to the user of the containers.
	b.onExit(func(ctx context.Context) error { return s.tidy(ctx, shelfEmpty, "empty\n") })
	return s, s.tidy(ctx, shelfFill, "filled\n")
}

// tidy runs a script in a container, and checks its output.
func (s shelf) tidy(ctx context.Context, script, want string) error {
	_, err := s.run(ctx, script, want)
	return err
}

// run runs a script in a container, and returns the time until its last output.
func (s shelf) run(ctx context.Context, script, want string) (time.Duration, error) {
	last, out, err := s.api.runToEnd(ctx, []string{s.dir + ":/shelf", s.r.dir + ":/repo.git:ro"}, "sh", "-c", script)
	if err == nil && out != want {
		err = fmt.Errorf("it printed %q", out)
	}
	return last, err
}

// install returns a side that clones the repository, installs its dependencies from the store, and tests.
func (s shelf) install() side {
	return side{name: "docker run, pnpm install --offline",
		settle: func(ctx context.Context) error { return s.tidy(ctx, shelfClear, "clear\n") },
		round: func(ctx context.Context, _ int) ([]float64, error) {
			took, err := s.run(ctx, shelfInstall, depsSaid)
			return []float64{ms(took)}, err
		}}
}

// installed returns a side that tests in a work tree where everything is installed, which all rounds share.
func (s shelf) installed() side {
	return side{name: "docker run, installed", round: func(ctx context.Context, _ int) ([]float64, error) {
		took, err := s.run(ctx, shelfTest, depsSaid)
		return []float64{ms(took)}, err
	}}
}

// coldSeeing returns a side whose rounds are new callers that check whether dependencies are present.
func (h *house) coldSeeing(name string, r *repository, want string) side {
	const look = `[ -e /cache/deps/pnpm/*/*dep-000.tgz/tarball-integrity ] && echo yes || echo no`
	return side{name: name, settle: h.settled, round: func(ctx context.Context, _ int) ([]float64, error) {
		x, err := h.exec(ctx, h.name(), r.name, record.Command{Shell: look})
		if err == nil {
			err = x.printed(want)
		}
		if err != nil {
			return nil, err
		}
		_, err = h.client.StopCaller(ctx, x.caller)
		return []float64{ms(x.first)}, err
	}}
}

// unpackRun returns a side without a layer, a container that unpacks the same dependencies.
func (h *house) unpackRun(r *repository) (side, error) {
	found, err := filepath.Glob(filepath.Join(h.data, "artifacts", "cache", "*", "pnpm", r.name, "*"))
	found = slices.DeleteFunc(found, func(name string) bool { return strings.HasSuffix(name, ".attrs") })
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("%d tarballs of dependencies are kept, not one", len(found))
	}
	return side{name: "docker run, unpack", every: 3, round: func(ctx context.Context, _ int) ([]float64, error) {
		first, out, err := h.api.run(ctx, []string{found[0] + ":/deps.tgz:ro"}, "sh", "-c",
			"mkdir /tmp/deps && tar -xzf /deps.tgz -C /tmp/deps && ls /tmp/deps")
		if err == nil && out != "pnpm\n" {
			err = fmt.Errorf("it printed %q", out)
		}
		return []float64{ms(first)}, err
	}}, err
}
