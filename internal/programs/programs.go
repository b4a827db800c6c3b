// Package programs builds this project's programs for tests that run them.
//
// A program is linked once for all packages, in bin/test of the checkout, because linking takes seconds, and finding
// that nothing has changed a fraction of one. Each test gets a name of its own for the program, which stays the same
// when the checkout's is built again.
package programs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// module is the path of this project's module.
const module = "github.com/ramus-dev/ramus"

// Into puts the programs of packages, such as "cmd/ramus", into a folder. Each has the name of its package's folder. A
// missing folder is made. The programs are static, so they start in every container. All users may access the folder
// and the programs, because containers run as another one. Into is safe for concurrent use, also by several processes.
func Into(dir string, packages ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot put programs for tests: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // the folder of t.TempDir is private
		return fmt.Errorf("cannot put programs for tests: %w", err)
	}
	for _, pkg := range packages {
		if err := put(filepath.Join(dir, filepath.Base(pkg)), pkg); err != nil {
			return fmt.Errorf("cannot build %s: %w", pkg, err)
		}
	}
	return nil
}

// once has a function for each package that this process builds.
var once sync.Map

// put builds a package, at the first call of this process, and gives the program another name.
func put(path, pkg string) error {
	build, _ := once.LoadOrStore(pkg, sync.OnceValues(func() (string, error) { return build(pkg) }))
	program, err := build.(func() (string, error))()
	if err != nil {
		return err
	}
	// The tests of another package may be building it again after a change of the checkout.
	lock, err := locked(program, syscall.LOCK_SH)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := os.Link(program, path); !errors.Is(err, syscall.EXDEV) {
		return err
	}
	return clone(program, path)
}

// build returns the path of the program.
func build(pkg string) (string, error) {
	root, err := checkout()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "bin", "test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	program := filepath.Join(dir, strings.ReplaceAll(pkg, "/", "-"))
	lock, err := locked(program, syscall.LOCK_EX)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := Build(program, module+"/"+pkg); err != nil {
		return "", err
	}
	return program, os.Chmod(program, 0o755)
}

// Build builds a package as a static program, with further flags of `go build`. The other flags are those of the
// Makefile's programs, so that all have their compiled packages in common.
func Build(path, pkg string, flags ...string) error {
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", path}, flags...)
	cmd := exec.Command("go", append(args, pkg)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, said)
	}
	return nil
}

// locked waits for a program's lock. Closing the file releases it.
func locked(program string, how int) (*os.File, error) {
	lock, err := os.OpenFile(program+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), how); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// checkout returns the folder of go.mod, which is above that of every package's tests.
func checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		above := filepath.Dir(dir)
		if above == dir {
			return "", errors.New("no go.mod is above the tests")
		}
		dir = above
	}
}

// clone copies a program if it cannot have two names.
func clone(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	err = errors.Join(err, out.Close())
	if err == nil {
		err = os.Chmod(to, 0o755)
	}
	return err
}
