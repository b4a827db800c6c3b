package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/internal/durable"
	"golang.org/x/sys/unix"
)

// restoreName is the folder of a data folder in which a snapshot is restored. A data folder that has it is not complete.
const restoreName = ".restore"

// wholeName marks a restored snapshot all of which was checked.
const wholeName = "whole"

// kept are the entries of a data folder that may be there before a snapshot is restored.
var kept = []string{"ramus.lock", "ramus.yaml", "keys", "replica.json", restoreName}

// Restored describes a snapshot that was restored or checked.
type Restored struct {
	Snapshot string    `json:"snapshot"`
	Manifest *Manifest `json:"-"`
	Repos    int       `json:"repos"`
	Files    int       `json:"files"`
	Bytes    int64     `json:"bytes"`
	// Keys reports whether the data folder has the keys with which tokens and links of the backup were signed.
	Keys bool `json:"keys"`
}

// ErrUnfinished means that a restoration of the data folder was interrupted.
var ErrUnfinished = fmt.Errorf("%w: a backup was not restored to its end; run `ramus restore` again", record.ErrConflict)

// CheckFinished returns [ErrUnfinished] if a restoration of a data folder was interrupted.
func CheckFinished(data string) error {
	if _, err := os.Lstat(filepath.Join(data, restoreName)); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(ErrUnfinished, err)
	}
	return nil
}

// Find returns the snapshot that a path names. The path is a snapshot, or a backup, which means its newest snapshot.
func Find(dir string) (string, error) {
	if _, err := os.Lstat(filepath.Join(dir, manifestName)); err == nil {
		return dir, nil
	}
	last, err := lastSnapshot(dir)
	if err == nil && last == "" {
		err = fmt.Errorf("%w: it has no snapshot", record.ErrNotFound)
	}
	if err != nil {
		return "", fmt.Errorf("cannot find a snapshot in %s: %w", dir, err)
	}
	return last, nil
}

// Check reads all files of a snapshot, compares them with the manifest, and runs git fsck on every repository.
func Check(ctx context.Context, snapshot string) (Restored, error) {
	r := Restored{Snapshot: snapshot}
	m, err := ReadManifest(snapshot)
	if err != nil {
		return r, err
	}
	r.Manifest, r.Keys = m, m.Keys
	root := filepath.Join(snapshot, dataName)
	if err := r.eachFile(ctx, root, func(File) (io.WriteCloser, error) { return nopCloser{io.Discard}, nil }); err != nil {
		return r, fmt.Errorf("cannot check %s: %w", snapshot, err)
	}
	return r, r.fsckAll(ctx, root)
}

// Restore makes the content of a snapshot the data folder data, whose lock the caller holds. The folder may have only
// a configuration and keys, which stay. An interrupted Restore is repeated from its beginning.
func Restore(ctx context.Context, snapshot, data string) (Restored, error) {
	r, err := restore(ctx, snapshot, data)
	if err != nil {
		return r, fmt.Errorf("cannot restore %s to %s: %w", snapshot, data, err)
	}
	return r, nil
}

func restore(ctx context.Context, snapshot, data string) (Restored, error) {
	r := Restored{Snapshot: snapshot}
	m, err := ReadManifest(snapshot)
	if err != nil {
		return r, err
	}
	r.Manifest = m
	stage := filepath.Join(data, restoreName)
	if _, err := os.Lstat(filepath.Join(stage, wholeName)); err != nil {
		if err := CheckEmpty(data); err != nil {
			return r, err
		}
		if err := r.stage(ctx, snapshot, stage); err != nil {
			return r, err
		}
	} else {
		r.count()
	}
	if err := moveStaged(stage, data); err != nil {
		return r, err
	}
	_, err = os.Lstat(filepath.Join(data, "keys"))
	r.Keys = err == nil
	return r, nil
}

// CheckEmpty returns an error if a data folder has content that a snapshot would be mixed with.
func CheckEmpty(data string) error {
	entries, err := os.ReadDir(data)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !slices.Contains(kept, e.Name()) {
			return fmt.Errorf("%w: the data folder is not empty, it has %s; name an empty folder by --data",
				record.ErrConflict, e.Name())
		}
	}
	return nil
}

// stage copies a snapshot, checks it, and marks it as whole when it is on disk.
func (r *Restored) stage(ctx context.Context, snapshot, stage string) error {
	if err := os.RemoveAll(stage); err != nil {
		return err
	}
	root := filepath.Join(stage, dataName)
	if err := os.MkdirAll(root, 0o700); err != nil {
		return err
	}
	err := r.eachFile(ctx, filepath.Join(snapshot, dataName), func(f File) (io.WriteCloser, error) {
		name := filepath.Join(root, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return nil, err
		}
		return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.Mode|0o400)
	})
	if err != nil {
		return err
	}
	for _, repo := range r.Manifest.Repos {
		for _, name := range []string{"refs", "objects/pack", "objects/info"} {
			if err := os.MkdirAll(filepath.Join(repoDir(root, repo), filepath.FromSlash(name)), 0o755); err != nil {
				return err
			}
		}
	}
	if err := r.fsckAll(ctx, root); err != nil {
		return err
	}
	if err := syncAll(stage); err != nil {
		return err
	}
	if err := writeSynced(filepath.Join(stage, wholeName), nil); err != nil {
		return err
	}
	return durable.Folder(stage)
}

// moveStaged moves the staged entries to the data folder. Entries that are there stay, and are those of the data folder or of
// an interrupted call.
func moveStaged(stage, data string) error {
	root := filepath.Join(stage, dataName)
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		to := filepath.Join(data, e.Name())
		if _, err := os.Lstat(to); err == nil {
			continue
		}
		if err := os.Rename(filepath.Join(root, e.Name()), to); err != nil {
			return err
		}
	}
	if err := durable.Folder(data); err != nil {
		return err
	}
	if err := os.RemoveAll(stage); err != nil {
		return err
	}
	return durable.Folder(data)
}

// eachFile copies all files of a snapshot, and compares each with the manifest.
func (r *Restored) eachFile(ctx context.Context, root string, open func(File) (io.WriteCloser, error)) error {
	for _, f := range r.Manifest.Files {
		if err := copyChecked(ctx, filepath.Join(root, filepath.FromSlash(f.Path)), f, open); err != nil {
			return fmt.Errorf("file %s: %w", f.Path, err)
		}
	}
	r.count()
	return nil
}

func (r *Restored) count() {
	r.Repos, r.Files = len(r.Manifest.Repos), len(r.Manifest.Files)
	for _, f := range r.Manifest.Files {
		r.Bytes += f.Size
	}
}

func copyChecked(ctx context.Context, name string, f File, open func(File) (io.WriteCloser, error)) error {
	in, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: it is missing", record.ErrDamaged)
	} else if err != nil {
		return err
	}
	defer in.Close()
	if info, err := in.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, fmt.Errorf("%w: it is no file", record.ErrDamaged))
	}
	to, err := open(f)
	if err != nil {
		return err
	}
	n, sum, err := sumOf(to, io.LimitReader(reader{ctx, in}, f.Size+1))
	if err := errors.Join(err, to.Close()); err != nil {
		return err
	}
	if n != f.Size || sum != f.SHA256 {
		return fmt.Errorf("%w: it does not have the checksum of the manifest", record.ErrDamaged)
	}
	return nil
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func repoDir(root string, repo RepoInfo) string {
	return filepath.Join(root, "repos", filepath.FromSlash(repo.Name)+".git")
}

// fsckAll runs git fsck on every repository, and counts its refs.
func (r *Restored) fsckAll(ctx context.Context, root string) error {
	var git gitcmd.Runner
	defer git.Close()
	for _, repo := range r.Manifest.Repos {
		dir := repoDir(root, repo)
		err := git.Run(ctx, gitcmd.Command{Repo: dir, Args: []string{"fsck", "--full", "--no-dangling", "--no-progress"}})
		if err != nil {
			return fmt.Errorf("repository %s: %w: %w", repo.Name, record.ErrDamaged, err)
		}
		out, err := git.Output(ctx, gitcmd.Command{Repo: dir, Args: []string{"for-each-ref", "--format=."}})
		if err != nil {
			return fmt.Errorf("repository %s: %w", repo.Name, err)
		}
		if n := strings.Count(string(out), "\n"); n != repo.Refs {
			return fmt.Errorf("repository %s: %w: it has %d refs instead of %d", repo.Name, record.ErrDamaged, n, repo.Refs)
		}
	}
	return nil
}

// syncAll returns when everything on the file system of a folder is on disk.
func syncAll(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}
