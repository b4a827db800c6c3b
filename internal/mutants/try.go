package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// goPackage is the description of a package by go list.
type goPackage struct {
	Dir, ImportPath           string
	GoFiles                   []string
	TestGoFiles, XTestGoFiles []string
	Module                    struct{ Path, Dir string }
}

// listPackages resolves patterns. Packages without tests are left out.
func listPackages(ctx context.Context, patterns []string) ([]goPackage, error) {
	cmd := exec.CommandContext(ctx, "go",
		append([]string{"list", "-json=Dir,ImportPath,GoFiles,TestGoFiles,XTestGoFiles,Module"}, patterns...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("cannot list packages: %w", err)
	}
	var packages []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p goPackage
		if err := d.Decode(&p); err != nil {
			return nil, fmt.Errorf("cannot list packages: %w", err)
		}
		if len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 {
			packages = append(packages, p)
		}
	}
	return packages, nil
}

// tally counts faults by how the tests took them.
type tally struct{ noticed, missed, equivalent int }

func (t *tally) add(other tally) {
	t.noticed += other.noticed
	t.missed += other.missed
	t.equivalent += other.equivalent
}

// share is the part of the faults that was noticed; 1 if there were none.
func (t tally) share() float64 {
	if t.noticed+t.missed == 0 {
		return 1
	}
	return float64(t.noticed) / float64(t.noticed+t.missed)
}

func (t tally) aside() string {
	if t.equivalent == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d more change nothing)", t.equivalent)
}

// outcome is how one package's tests did.
type outcome struct {
	tally
	survivors []fault
}

// verdict is the outcome of one fault.
type verdict int

const (
	noticed  verdict = iota // a test failed, or ran out of time
	missed                  // all tests passed
	unusable                // the fault does not compile
)

// slack is the least time that tests with a fault get. A fault that makes a loop endless is noticed by it.
const slack = 20 * time.Second

// tryPackage plants n faults in a package, or all if n is 0.
func tryPackage(ctx context.Context, pkg goPackage, n int, seed uint64, parallel int, equivalent map[string]bool) (outcome, error) {
	faults, err := findFaults(pkg.Dir, pkg.GoFiles, pkg.Module.Dir)
	if err != nil {
		return outcome{}, err
	}
	shuffle(faults, seed)
	if n == 0 {
		n = len(faults)
	}

	// The tests have to pass without a fault, and their time tells how long they may take with one.
	begin := time.Now()
	if out, err := goTest(ctx, pkg.ImportPath, "", 15*time.Minute); err != nil {
		return outcome{}, fmt.Errorf("the tests of %s fail without a fault: %w\n%s", pkg.ImportPath, err, out)
	}
	limit := max(slack, 5*time.Since(begin))

	var (
		mu   sync.Mutex
		got  outcome
		next int
		bad  error
	)
	// take returns the next fault, and false if there are enough. A fault that turns out not to compile is not
	// counted, so that another one takes its place.
	taken := 0
	take := func() (fault, bool) {
		mu.Lock()
		defer mu.Unlock()
		for next < len(faults) && taken < n && bad == nil {
			f := faults[next]
			next++
			if equivalent[f.key()] {
				got.equivalent++
				continue
			}
			taken++
			return f, true
		}
		return fault{}, false
	}

	var workers sync.WaitGroup
	for range max(1, parallel) {
		workers.Go(func() {
			for f, ok := take(); ok; f, ok = take() {
				v, err := try(ctx, pkg.ImportPath, f, limit)
				mu.Lock()
				switch {
				case err != nil:
					bad = err
				case v == noticed:
					got.noticed++
				case v == missed:
					got.missed++
					got.survivors = append(got.survivors, f)
				case v == unusable:
					taken--
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()

	slices.SortFunc(got.survivors, func(a, b fault) int {
		if c := strings.Compare(a.name, b.name); c != 0 {
			return c
		}
		return a.offset - b.offset
	})
	return got, bad
}

// try runs the tests with one fault in place.
func try(ctx context.Context, pkg string, f fault, limit time.Duration) (verdict, error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)

	text, err := f.plant()
	if err != nil {
		return 0, err
	}
	file := filepath.Join(dir, filepath.Base(f.path))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return 0, err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{f.path: file}})
	if err != nil {
		return 0, err
	}
	overlayFile := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		return 0, err
	}

	out, err := goTest(ctx, pkg, overlayFile, limit)
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case err == nil:
		return missed, nil
	case !errors.As(err, &exit):
		return 0, err
	case strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]"):
		return unusable, nil
	}
	return noticed, nil
}

// goTest runs the short tests of a package. An empty overlay means the files as they are.
func goTest(ctx context.Context, pkg, overlay string, limit time.Duration) (string, error) {
	args := []string{"test", "-short", "-count=1", "-vet=off", "-timeout", limit.String()}
	if overlay != "" {
		args = append(args, "-failfast", "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// readEquivalent reads the faults that change nothing, one a line as [fault.key] has them. Lines that
// begin with # say why.
func readEquivalent(path string) (map[string]bool, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer file.Close()
	known := map[string]bool{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); line != "" && !strings.HasPrefix(line, "#") {
			known[line] = true
		}
	}
	return known, lines.Err()
}
