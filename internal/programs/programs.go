// Package programs has this project's programs ready for tests that run them for real.
//
// A program is linked once for all packages, in bin/test of the checkout: linking
// takes seconds, and finding that nothing has changed a fraction of one. Each test
// gets a name of its own for it, which stays what it is when the checkout's is built anew.
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

// module is what programs are built from.
const module = "github.com/ramus-dev/ramus"

// Into puts the programs of these packages, such as "cmd/ramus", into a folder, which is
// made when missing; each is named as its package's folder. They are static, so they start in
// every container. The folder, and the programs, are open to every user: containers run as
// another one. Safe for concurrent use, also by several processes.
func Into(dir string, packages ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot put programs for tests: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // t.TempDir's is closed
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

// put builds a package, at the first call of this process, and gives it another name.
func put(path, pkg string) error {
	build, _ := once.LoadOrStore(pkg, sync.OnceValues(func() (string, error) { return build(pkg) }))
	program, err := build.(func() (string, error))()
	if err != nil {
		return err
	}
	// Another package's tests may just be building it anew: the checkout has changed.
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

// build returns where the program lies.
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
	cmd := exec.Command("go", "build", "-o", program, module+"/"+pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, said)
	}
	return program, os.Chmod(program, 0o755)
}

// locked waits for a program's lock; closing it gives it back.
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

// checkout is the folder of go.mod, which is above that of every package's tests.
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

// clone copies a program where it cannot have two names.
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
