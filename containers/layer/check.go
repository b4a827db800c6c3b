package layer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers/proc"
)

// Check binds a tree of two files in a mount namespace of its own. See [Keeper].
func (l *Local) Check(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: ramus does not run as root", ErrUnable)
	}
	if err := l.try(ctx); err != nil {
		if errors.Is(err, ErrUnable) || ctx.Err() != nil {
			return err
		}
		return fmt.Errorf("%w: %w", ErrUnable, err)
	}
	return nil
}

func (l *Local) try(ctx context.Context) (err error) {
	if err := os.MkdirAll(l.root, 0o700); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp(l.root, ".layers-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, RemoveTree(scratch)) }()
	base, target := filepath.Join(scratch, "base"), filepath.Join(scratch, "target")
	if err := errors.Join(os.MkdirAll(base+"/old", 0o755), os.Mkdir(target, 0o755),
		os.WriteFile(base+"/old/file", []byte("kept"), 0o644)); err != nil {
		return err
	}
	b := Binding{Dir: filepath.Join(scratch, "caller"), Lowers: []string{base}, Target: target,
		Fill: []File{{Path: "added/file", Kind: KindFile, Data: []byte("new")}}}
	tree, err := l.make(b, nil)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	done := make(chan error, 1)
	go proc.OnThread(func() { done <- useElsewhere(tree, target) })
	if err := <-done; err != nil {
		return err
	}
	list, err := l.Changes(ctx, b.Upper(), 10)
	if err != nil {
		return err
	}
	for _, c := range list {
		if c.Path == "new" && c.Redirect == "old" {
			return nil
		}
	}
	return fmt.Errorf("%w: an overlay keeps a renamed folder as %+v", ErrUnable, list)
}

// useElsewhere moves the calling thread to a new mount namespace, in which the tree is mounted at target. It renames a
// folder there, which not every overlay supports.
func useElsewhere(tree int, target string) error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return unable(fmt.Errorf("cannot make a mount namespace: %w", err))
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return unable(fmt.Errorf("cannot separate a mount namespace from the host's: %w", err))
	}
	ns, err := unix.Open("/proc/thread-self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(ns)
	onto, err := unix.Open(target, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(onto)
	if err := mountIn(ns, tree, onto); err != nil {
		return err
	}
	if err := os.Rename(target+"/old", target+"/new"); err != nil {
		return unable(err)
	}
	for name, want := range map[string]string{"/new/file": "kept", "/added/file": "new"} {
		if got, err := os.ReadFile(target + name); err != nil || string(got) != want {
			return fmt.Errorf("an overlay shows %q where %q was written: %w", got, want, err)
		}
	}
	return nil
}
