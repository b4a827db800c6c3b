package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/sftp"
	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// A commit with the value of a secret in it never reaches the branch: gitd
// refuses the push. The change is not lost for that: the values are taken out of
// the work tree, from outside, because the container must not be told what to
// look for, and the commit is made again.

// cleanings is how often that is tried: a process in the background may go on
// writing what is taken out.
const cleanings = 3

// heardLeaks is told by the door of a push that was refused.
func (t *target) heardLeaks(leaks []gitd.Leak) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leaks = append(t.leaks[:0:0], leaks...)
}

// takeLeaks gives what was refused last, and forgets it.
func (t *target) takeLeaks() []gitd.Leak {
	t.mu.Lock()
	defer t.mu.Unlock()
	leaks := t.leaks
	t.leaks = nil
	return leaks
}

// cleanTree takes secrets out of the files of the work tree that a commit would change, with
// these names: their contents, the targets of links, and the names. Commits that the command made
// itself become one with the change, since their messages and older trees may hold the secret.
func (t *target) cleanTree(ctx context.Context, h *containers.Host, names []string, leaks []gitd.Leak) error {
	files, err := h.Files(ctx)
	if err != nil {
		return fmt.Errorf("cannot take secrets out of the work tree: %w", err)
	}
	defer files.Close()
	// A call that hangs in a container that is going away ends with the context.
	defer context.AfterFunc(ctx, func() { files.Close() })()
	for _, name := range names {
		if !filepath.IsLocal(name) {
			continue
		}
		if err := t.cleanFile(files, path.Clean(name)); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return fmt.Errorf("cannot take secrets out of %q: %w", t.x.Secrets.Name(name), err)
		}
	}
	w := t.atWork()
	for _, l := range leaks {
		if w == nil {
			break
		}
		l.Object = "" // it is gone, so its name tells nobody anything
		if err := w.l.removed(w.s.ID, record.SecretInCommit, []string{l.Secret}, l.Where()); err != nil {
			return err
		}
	}
	return nil
}

// cleanFile takes secrets out of one file of the work tree and out of its name.
func (t *target) cleanFile(files *sftp.Client, name string) error {
	at := path.Join(containers.WorkDir, name)
	info, err := files.Lstat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed: that is the change
	}
	if err != nil {
		return err
	}
	switch {
	case info.Mode().IsRegular():
		err = t.cleanContent(files, at, info)
	case info.Mode()&fs.ModeSymlink != 0:
		err = t.cleanLink(files, at)
	}
	if err != nil {
		return err
	}
	return t.cleanPath(files, name)
}

func (t *target) cleanContent(files *sftp.Client, at string, info os.FileInfo) error {
	from, err := files.Open(at)
	if err != nil {
		return err
	}
	defer from.Close()
	// Most files hold none: they are read once and not touched.
	found, err := t.x.Secrets.Find(from)
	if err != nil || len(found) == 0 {
		return err
	}
	if _, err := from.Seek(0, io.SeekStart); err != nil {
		return err
	}
	beside := path.Join(path.Dir(at), ".ramus-"+record.NewToken())
	to, err := files.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	// No more than there was, however fast it grows.
	_, err = t.x.Secrets.Copy(to, io.LimitReader(from, info.Size()))
	err = errors.Join(err, to.Close())
	if err == nil {
		err = files.Chmod(beside, info.Mode().Perm())
	}
	if err == nil {
		err = files.PosixRename(beside, at)
	}
	if err != nil {
		_ = files.Remove(beside) // the commit that is thrown away for it takes it along
	}
	return err
}

func (t *target) cleanLink(files *sftp.Client, at string) error {
	to, err := files.ReadLink(at)
	if err != nil {
		return err
	}
	clean := t.x.Secrets.Name(to)
	if clean == to {
		return nil
	}
	if err := files.Remove(at); err != nil {
		return err
	}
	return files.Symlink(clean, at)
}

// cleanPath renames what has a secret in its name, or lies in a folder that has.
func (t *target) cleanPath(files *sftp.Client, name string) error {
	clean := t.x.Secrets.Name(name)
	if clean == name {
		return nil
	}
	free := clean
	for n := 2; ; n++ {
		_, err := files.Lstat(path.Join(containers.WorkDir, free))
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return err
		}
		if n > 1000 {
			return fmt.Errorf("%w: %q and a thousand more are taken", record.ErrConflict, clean)
		}
		free = fmt.Sprintf("%s-%d", clean, n)
	}
	if err := files.MkdirAll(path.Dir(path.Join(containers.WorkDir, free))); err != nil {
		return err
	}
	if err := files.PosixRename(path.Join(containers.WorkDir, name), path.Join(containers.WorkDir, free)); err != nil {
		return err
	}
	// Folders that are empty now; git knows nothing of them.
	for dir := path.Dir(name); dir != "." && t.x.Secrets.Name(dir) != dir; dir = path.Dir(dir) {
		if files.RemoveDirectory(path.Join(containers.WorkDir, dir)) != nil {
			break
		}
	}
	return nil
}

// leakNote tells people what became of their change.
func leakNote(leaks []gitd.Leak) string {
	var names []string
	for _, l := range leaks {
		if !slices.Contains(names, l.Secret) {
			names = append(names, l.Secret)
		}
	}
	slices.Sort(names)
	return "the value of a secret (" + strings.Join(names, ", ") + ") was taken out before the change was committed; commits of its own became one with it\n"
}
