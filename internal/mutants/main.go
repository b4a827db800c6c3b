// Command mutants plants faults in packages, one at a time, and reports those that
// the package's own short tests do not notice.
//
//	go run ./internal/mutants [-n 30] [-seed 1] [-least 0.9] [packages]
//
// A fault is one token: == for !=, < for <=, && for ||, + for -, true for false,
// continue for break, a condition negated. mutants samples n faults of each package, the same ones for
// the same seed. It never writes to the checkout: the go command compiles each fault by its -overlay flag.
//
// Faults that change nothing a caller can observe are listed in equivalent.txt, with the reason.
// They count neither as noticed nor as missed. A fault that does not compile is replaced by another one.
//
// The exit status is 0 if the tests of each package notice at least the given share of its faults, 1 if one does
// not, and 2 if the faults could not be tried.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
)

// memory is the most address space in bytes that a test process may have.
const memory = 16 << 30

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
	}
	os.Exit(code)
}

// run returns the exit status.
func run(ctx context.Context, args []string, out io.Writer) (int, error) {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	n := flags.Int("n", 30, "faults in each package; 0 is all")
	seed := flags.Uint64("seed", 1, "chooses the faults")
	least := flags.Float64("least", 0.9, "the share of faults that a package's tests must notice")
	parallel := flags.Int("p", runtime.NumCPU(), "faults tried at once")
	known := flags.String("equivalent", "internal/mutants/equivalent.txt", "file of faults that change nothing")
	if err := flags.Parse(args); err != nil {
		return 2, err
	}

	equivalent, err := readEquivalent(*known)
	if err != nil {
		return 2, err
	}
	packages, err := listPackages(ctx, flags.Args())
	if err != nil {
		return 2, err
	}

	// A fault may make a test take memory without end.
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: memory, Max: memory}); err != nil {
		return 2, fmt.Errorf("cannot bound the memory of tests: %w", err)
	}

	code := 0
	var total tally
	for _, pkg := range packages {
		got, err := tryPackage(ctx, pkg, *n, *seed, *parallel, equivalent)
		if err != nil {
			return 2, err
		}
		total.add(got.tally)
		mark := "ok  "
		if got.share() < *least {
			mark, code = "FAIL", 1
		}
		fmt.Fprintf(out, "%s  %-40s noticed %d of %d%s\n", mark, strings.TrimPrefix(pkg.ImportPath, pkg.Module.Path+"/"),
			got.noticed, got.noticed+got.missed, got.aside())
		for _, f := range got.survivors {
			fmt.Fprintf(out, "      %s\n", f)
		}
	}
	fmt.Fprintf(out, "%d of %d faults noticed in %d packages%s\n", total.noticed, total.noticed+total.missed,
		len(packages), total.aside())
	return code, nil
}
