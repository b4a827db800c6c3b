package executor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/gitd"
)

// Outputs up to storeOver bytes are sealed into the run's ref; larger ones go
// to the artifact store and the manifest names them by their hash.
const (
	storeOver   = 8 << 20
	maxDiff     = 32 << 20 // of a diff in a sealed run; the branch has all of it anyway
	maxFileList = 10_000   // changed files named in a manifest
)

// storePath is where the artifact store keeps a file.
func (x *Executor) storePath(sum string) string {
	return filepath.Join(x.Data, "artifacts", "sha256", sum[:2], sum)
}

// seal writes a run's record into one commit and moves the run's ref to it.
// Its parents are the run's record before and the branch's tip: the commits of
// the run stay reachable when the branch is deleted.
func (x *Executor) seal(ctx context.Context, l *liveRun) error {
	r := l.snapshot()
	repo := l.target.repo
	m := x.manifest(r, l.journalled())
	files, stored, err := x.outputFiles(r)
	if err != nil {
		return err
	}
	m.Files = append(m.Files, stored...)
	if r.changed() {
		if m.Changed, err = repo.Changed(ctx, string(r.Start), string(r.Head), false); err != nil {
			return fmt.Errorf("cannot seal %s: %w", r.Name(), err)
		}
	}
	if len(m.Changed) > maxFileList {
		m.Unverified = append(m.Unverified, fmt.Sprintf("only %d of %d changed files are listed", maxFileList, len(m.Changed)))
		m.Changed = m.Changed[:maxFileList]
	}
	diff := filepath.Join(x.outputDir(r), "changes.diff")
	whole, err := x.writeDiff(ctx, repo, r, diff)
	if err != nil {
		return err
	}
	if !whole {
		m.Unverified = append(m.Unverified, fmt.Sprintf("evidence/changes.diff is cut at %d MiB; the branch has everything", maxDiff>>20))
	}
	runText, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot seal %s: %w", r.Name(), err)
	}
	manifest, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot seal %s: %w", r.Name(), err)
	}
	files = append(files,
		gitd.File{Path: "run.json", Content: runText},
		gitd.File{Path: "journal.jsonl", Source: x.journalPath(r)},
		gitd.File{Path: "evidence/manifest.json", Content: manifest},
		gitd.File{Path: "evidence/changes.diff", Source: diff})
	l.mu.Lock()
	ref := l.ref
	l.mu.Unlock()
	parents := []gitd.Hash{ref}
	if r.Head != "" {
		parents = append(parents, r.Head)
	}
	commit, err := repo.WriteCommit(ctx, gitd.NewCommit{From: ref, Put: files, Parents: parents,
		Author: orElse(r.Asker, x.Bot), Committer: x.Bot, When: x.Now(),
		Message: fmt.Sprintf("%s: %s\n\n%s: %s\n%s: %s\n", r.Name(), sealedAs(r), trailerCaller, r.Caller, trailerRun, r.ID)})
	if err != nil {
		return fmt.Errorf("cannot seal %s: %w", r.Name(), err)
	}
	if err := repo.Update(ctx, gitd.RefUpdate{Name: runRef(r.Caller, r.ID), New: commit, Old: &ref}); err != nil {
		return fmt.Errorf("cannot seal %s: %w", r.Name(), err)
	}
	l.mu.Lock()
	l.ref = commit
	l.mu.Unlock()
	return nil
}

func sealedAs(r Run) string {
	if r.Reason != "" {
		return fmt.Sprintf("%s, %s", r.State, r.Reason)
	}
	return string(r.State)
}

// outputFiles lists a run's outputs and artifacts: small ones to be sealed,
// large ones put into the artifact store.
func (x *Executor) outputFiles(r Run) (files []gitd.File, listed []ManifestFile, err error) {
	dir := x.outputDir(r)
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		switch {
		case strings.HasSuffix(name, ".stdout"), strings.HasSuffix(name, ".stderr"):
			name = "output/" + name
		case !strings.HasPrefix(name, "artifacts/"):
			return nil
		}
		size, sum, err := digest(path)
		if err != nil {
			return err
		}
		f := ManifestFile{Name: name, Size: size, SHA256: sum, Stored: size > storeOver}
		switch {
		case size == 0 && strings.HasPrefix(name, "output/"):
			return nil
		case !f.Stored && gitCanHold(name):
			files = append(files, gitd.File{Path: f.Name, Source: path})
		default:
			f.Stored = true
			if err := x.store(path, sum); err != nil {
				return err
			}
		}
		listed = append(listed, f)
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("cannot seal outputs: %w", err)
	}
	return files, listed, nil
}

// gitCanHold tells whether a name chosen in a container may stand in a tree; a
// file with any other name is kept by its hash alone.
func gitCanHold(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(strings.ToLower(part), ".git") || strings.HasPrefix(strings.ToLower(part), "git~") || !utf8.ValidString(part) {
			return false
		}
	}
	return true
}

// store links a file into the artifact store. It is not moved: a seal that
// fails half way is done again from the same files.
func (x *Executor) store(path, sum string) error {
	if err := os.MkdirAll(filepath.Dir(x.storePath(sum)), 0o700); err != nil {
		return err
	}
	if err := os.Link(path, x.storePath(sum)); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

func digest(path string) (size int64, sum string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	h := sha256.New()
	size, err = io.Copy(h, f)
	return size, hex.EncodeToString(h.Sum(nil)), err
}

// writeDiff writes what the run changed to a file; whole is false when it was cut.
func (x *Executor) writeDiff(ctx context.Context, repo *gitd.Repo, r Run, path string) (whole bool, err error) {
	f, err := os.Create(path)
	if err != nil {
		return false, fmt.Errorf("cannot keep the diff: %w", err)
	}
	w := &limitWriter{w: f, left: maxDiff}
	if r.changed() {
		err = repo.Diff(ctx, string(r.Start), string(r.Head), gitd.DiffOptions{}, w)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return false, fmt.Errorf("cannot keep the diff: %w", err)
	}
	return !w.cut, nil
}

// limitWriter passes on so many bytes and swallows the rest.
type limitWriter struct {
	w    io.Writer
	left int64
	cut  bool
}

func (l *limitWriter) Write(p []byte) (int, error) {
	n := len(p)
	if int64(n) > l.left {
		p, l.cut = p[:l.left], true
	}
	l.left -= int64(len(p))
	if _, err := l.w.Write(p); err != nil {
		return 0, err
	}
	return n, nil
}
