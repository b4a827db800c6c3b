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
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway"
)

// depsFiles is the number of files of the dependencies. It is that of a middle-sized web application.
const depsFiles = 20_000

// depending is a small repository with one dependency. The dependency is in a folder next to the repository, so that
// nothing is fetched. pnpm stores each of its files separately.
var depending = shape{name: "depending", files: 437, commits: 100, depends: true}

// dependency returns the files that give a repository a dependency of depsFiles files.
func dependency() (map[string]string, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	put := func(name, text string) error {
		err := w.WriteHeader(&tar.Header{Name: "package/" + name, Mode: 0o644, Size: int64(len(text)), ModTime: time.Unix(1_700_000_000, 0)})
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		return err
	}
	err := put("package.json", `{"name": "dep", "version": "1.0.0"}`)
	for i := 0; i < depsFiles && err == nil; i++ {
		err = put(fmt.Sprintf("%03d/%d.js", i/100, i), prose(uint64(i), 2, 1))
	}
	if err := errors.Join(err, w.Close(), z.Close()); err != nil {
		return nil, fmt.Errorf("cannot make a dependency: %w", err)
	}
	sum := sha512.Sum512(b.Bytes())
	return map[string]string{
		"dep.tgz":      b.String(),
		"package.json": `{"name": "app", "version": "1.0.0", "dependencies": {"dep": "file:dep.tgz"}}` + "\n",
		"pnpm-lock.yaml": "lockfileVersion: '9.0'\n\nsettings:\n  autoInstallPeers: true\n  excludeLinksFromLockfile: false\n\n" +
			"importers:\n\n  .:\n    dependencies:\n      dep:\n        specifier: file:dep.tgz\n        version: file:dep.tgz\n\n" +
			"packages:\n\n  dep@file:dep.tgz:\n    resolution: {integrity: sha512-" + base64.StdEncoding.EncodeToString(sum[:]) + ", tarball: file:dep.tgz}\n    version: 1.0.0\n\n" +
			"snapshots:\n\n  dep@file:dep.tgz: {}\n",
	}, nil
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
	for begin = time.Now(); ; {
		made, err := filepath.Glob(filepath.Join(h.data, "layers", r.name, "pnpm-*"))
		if err != nil {
			return err
		}
		if len(made) > 0 {
			b.tell("20,000 files, layer made", "ms", ms(time.Since(begin)), target{}, "once a lock file, in the background")
			break
		}
		if time.Since(begin) > time.Minute {
			b.sayf("there is no layer of dependencies: new callers unpack")
			break
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
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
	b.addPair(m, "20,000 files of dependencies", firstOutput.what, mounted.name, none.name, atMost(1.5)).note("beside a caller without any")
	b.addPair(m, "20,000 files of dependencies", firstOutput.what, mounted.name, unpacked.name, target{}).note("a container that unpacks them")
	return nil
}

// coldSeeing returns a side whose rounds are new callers that check whether dependencies are present.
func (h *house) coldSeeing(name string, r *repository, want string) side {
	const look = `[ -e /cache/deps/pnpm/*/file+dep.tgz/tarball-integrity ] && echo yes || echo no`
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
		first, out, err := h.api.run(ctx, []string{found[0] + ":/deps.tgz:ro"}, "sh", "-c", "mkdir /tmp/deps && tar -xzf /deps.tgz -C /tmp/deps && ls /tmp/deps")
		if err == nil && out != "pnpm\n" {
			err = fmt.Errorf("it printed %q", out)
		}
		return []float64{ms(first)}, err
	}}, err
}
