package worktree

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

// A commit with the value of a secret in it never reaches the branch, because gitd refuses the push. The change is not lost. The host
// takes the values out of the work tree, since the container must not learn the values, and the commit is made again.

// cleanings is how often that is tried. A process in the background may write a value again.
const cleanings = 3

// NoteLeaks notes the leaks for which a push of the container was refused.
func (t *Tree) NoteLeaks(leaks []gitd.Leak) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leaks = append(t.leaks[:0:0], leaks...)
}

// takeLeaks returns the leaks of the last refused push, and forgets them.
func (t *Tree) takeLeaks() []gitd.Leak {
	t.mu.Lock()
	defer t.mu.Unlock()
	leaks := t.leaks
	t.leaks = nil
	return leaks
}

// cleanTree takes secrets out of the files with these names, which a commit would change. It cleans their contents, the targets of links,
// and the names. Commits that the command made become one with the change, since their messages and older trees may hold the secret.
func (t *Tree) cleanTree(ctx context.Context, h *containers.Host, names []string, leaks []gitd.Leak) error {
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
			return fmt.Errorf("cannot take secrets out of %q: %w", t.store.Secrets.Name(name), err)
		}
	}
	if t.Hooks.OnLeak == nil {
		return nil
	}
	for _, l := range leaks {
		l.Object = "" // the object is gone, so its name has no meaning
		if err := t.Hooks.OnLeak(l); err != nil {
			return err
		}
	}
	return nil
}

// cleanFile takes secrets out of one file of the work tree and out of its name.
func (t *Tree) cleanFile(files *sftp.Client, name string) error {
	at := path.Join(t.dir(), name)
	info, err := files.Lstat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the change removes it
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

func (t *Tree) cleanContent(files *sftp.Client, at string, info os.FileInfo) error {
	from, err := files.Open(at)
	if err != nil {
		return err
	}
	defer from.Close()
	// Most files hold no secret. They are read once and not changed.
	found, err := t.store.Secrets.Find(from)
	if err != nil || len(found) == 0 {
		return err
	}
	if _, err := from.Seek(0, io.SeekStart); err != nil {
		return err
	}
	clean := path.Join(path.Dir(at), ".ramus-"+record.NewToken())
	to, err := files.OpenFile(clean, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	// No more than there was, however fast it grows.
	_, err = t.store.Secrets.Copy(to, io.LimitReader(from, info.Size()))
	err = errors.Join(err, to.Close())
	if err == nil {
		err = files.Chmod(clean, info.Mode().Perm())
	}
	if err == nil {
		err = files.PosixRename(clean, at)
	}
	if err != nil {
		_ = files.Remove(clean) // it is not needed if the commit fails
	}
	return err
}

func (t *Tree) cleanLink(files *sftp.Client, at string) error {
	to, err := files.ReadLink(at)
	if err != nil {
		return err
	}
	clean := t.store.Secrets.Name(to)
	if clean == to {
		return nil
	}
	if err := files.Remove(at); err != nil {
		return err
	}
	return files.Symlink(clean, at)
}

// cleanPath renames a file with a secret in its name, or in the name of a folder above it.
func (t *Tree) cleanPath(files *sftp.Client, name string) error {
	clean := t.store.Secrets.Name(name)
	if clean == name {
		return nil
	}
	free := clean
	for n := 2; ; n++ {
		_, err := files.Lstat(path.Join(t.dir(), free))
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
	if err := files.MkdirAll(path.Dir(path.Join(t.dir(), free))); err != nil {
		return err
	}
	if err := files.PosixRename(path.Join(t.dir(), name), path.Join(t.dir(), free)); err != nil {
		return err
	}
	// Remove folders that are empty now. git does not track them.
	for dir := path.Dir(name); dir != "." && t.store.Secrets.Name(dir) != dir; dir = path.Dir(dir) {
		if files.RemoveDirectory(path.Join(t.dir(), dir)) != nil {
			break
		}
	}
	return nil
}

// leakNote returns a sentence for people about a change that secrets were taken out of.
func leakNote(leaks []gitd.Leak) string {
	var names []string
	for _, l := range leaks {
		if !slices.Contains(names, l.Secret) {
			names = append(names, l.Secret)
		}
	}
	slices.Sort(names)
	return "the value of a secret (" + strings.Join(names, ", ") +
		") was taken out before the change was committed; commits of its own became one with it\n"
}
