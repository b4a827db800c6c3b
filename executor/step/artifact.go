package step

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pkg/sftp"
	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/internal/text"
)

// Bounds of the files of a container's /artifacts.
const (
	maxArtifacts     = 1000
	maxArtifactBytes = 1 << 30 // of one run together
)

// collect copies the files in /artifacts to the run's live folder as soon as a command has ended, because the container may be
// gone by the run's end. Their names come from the container. os.Root keeps them inside the folder.
func (w *Work) collect(ctx context.Context) error {
	files, err := w.Host.Files(ctx)
	if err != nil {
		return fmt.Errorf("cannot collect artifacts: %w", err)
	}
	defer files.Close()
	k, err := w.keeper()
	if err != nil {
		return fmt.Errorf("cannot collect artifacts: %w", err)
	}
	defer k.close()
	return k.takeFiles(files, containers.ArtifactsDir, containers.ArtifactsDir, "")
}

// artifactKeeper copies files of a container to the run's live folder, within the bounds of artifacts.
type artifactKeeper struct {
	w     *Work
	root  *os.Root
	count int
	total int64
	taken map[string]bool
}

func (w *Work) keeper() (*artifactKeeper, error) {
	dir := filepath.Join(w.Run.Runner.Folder.Output(w.Run.Initial), "artifacts")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &artifactKeeper{w: w, root: root, taken: make(map[string]bool)}, nil
}

func (k *artifactKeeper) close() { k.root.Close() }

// takeFiles keeps a file, or the regular files of a folder. Their names are those below folder, after prefix.
func (k *artifactKeeper) takeFiles(files *sftp.Client, from, folder, prefix string) error {
	w := k.w
	walk := files.Walk(from)
	for walk.Step() {
		if walk.Err() != nil {
			continue // gone meanwhile, or closed to the task's own user
		}
		info := walk.Stat()
		name := prefix + strings.TrimPrefix(walk.Path(), folder+"/")
		if name == record.BrowserFolder || prefix != "" && path.Base(name) == ".git" {
			// The host's own files of that name are kept. See taskShell.Browse.
			if info.IsDir() {
				walk.SkipDir()
			}
			continue
		}
		if !info.Mode().IsRegular() || !filepath.IsLocal(name) {
			continue
		}
		if k.count++; k.count > maxArtifacts {
			return w.skipped(fmt.Sprintf("more than %d artifacts: the rest is left out", maxArtifacts))
		}
		if k.total+info.Size() > maxArtifactBytes {
			if err := w.skipped(fmt.Sprintf("%s is left out: artifacts may have %d MiB together",
				text.Clip(strconv.Quote(name), 300), maxArtifactBytes>>20)); err != nil {
				return err
			}
			continue
		}
		k.total += info.Size()
		clean := w.CleanName(name, k.taken)
		if have, err := k.root.Stat(clean); err == nil && have.Size() == info.Size() && have.ModTime().Equal(info.ModTime()) {
			continue
		}
		in, err := files.Open(walk.Path())
		if err != nil {
			continue
		}
		found, err := w.keep(k.root, clean, in, info)
		in.Close()
		if err == nil {
			err = w.Run.Removed(w.Info.ID, record.SecretInArtifact, found, "artifacts/"+clean)
		}
		if err != nil {
			return fmt.Errorf("cannot collect artifact %q: %w", clean, err)
		}
	}
	return nil
}

// CleanName returns a file's path without secrets. If two become the same, or one a folder of the other, the second gets a number.
func (w *Work) CleanName(name string, taken map[string]bool) string {
	clean := w.Run.Runner.Secrets.Name(name)
	for dir := path.Dir(clean); dir != "."; dir = path.Dir(dir) {
		if taken[dir] {
			clean = strings.ReplaceAll(clean, "/", "_")
			break
		}
	}
	free := clean
	for n := 2; taken[free] || taken[free+"/"]; n++ {
		free = fmt.Sprintf("%s-%d", clean, n)
	}
	taken[free] = true
	for dir := path.Dir(free); dir != "."; dir = path.Dir(dir) {
		taken[dir+"/"] = true // a folder
	}
	return free
}

// keep copies an artifact, and returns the names of the secrets that it removed.
func (w *Work) keep(root *os.Root, name string, from io.Reader, info os.FileInfo) (found []string, err error) {
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return nil, err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	// No more than was counted, however fast it grows.
	found, err = w.Run.Runner.Secrets.Copy(f, io.LimitReader(from, info.Size()))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return found, root.Chtimes(name, info.ModTime(), info.ModTime())
}

func (w *Work) skipped(text string) error {
	return w.Run.Emit(record.Event{Type: record.EventNote, Step: w.Info.ID, Reason: record.NoteLeftOut, Message: text}, false)
}

// KeepLeft keeps files that no commit holds among the run's artifacts, below uncommitted/.
func (w *Work) KeepLeft(ctx context.Context, left []worktree.LeftOut) error {
	if len(left) == 0 {
		return nil
	}
	files, err := w.Host.Files(ctx)
	if err != nil {
		return fmt.Errorf("cannot keep files that are not committed: %w", err)
	}
	defer files.Close()
	defer context.AfterFunc(ctx, func() { files.Close() })()
	k, err := w.keeper()
	if err != nil {
		return fmt.Errorf("cannot keep files that are not committed: %w", err)
	}
	defer k.close()
	for _, f := range left {
		if err := k.takeFiles(files, path.Join(containers.WorkDir, f.Path), containers.WorkDir, uncommittedFolder); err != nil {
			return fmt.Errorf("cannot keep %q: %w", f.Path, err)
		}
	}
	return nil
}

// uncommittedFolder is the folder of artifacts for files that no commit holds.
const uncommittedFolder = "uncommitted/"
