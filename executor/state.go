package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/sftp"
	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// statePrefix begins the refs that hold agents' own memory, one a caller: a
// folder for each agent, in it what Agent.State names as it lay in the home
// folder. No container's grant reaches them.
const statePrefix = "refs/ramus/state"

func stateRef(c record.Caller) string { return statePrefix + "/" + c.Slug() }

// homeDir is the home folder of every command.
const homeDir = containers.CacheDir + "/home"

// Bounds of an agent's memory. Of one that is larger the newest files are kept.
const (
	maxStateFiles  = 5000
	maxStateBytes  = 256 << 20
	maxStateWalked = 100_000
)

// mark is a file in the container that says that the agent's memory was put
// there. It holds the container's id, so that a copy of it says nothing.
func (a Agent) mark() string { return path.Join(containers.CacheDir, ".ramus-state-"+a.Name) }

// recall puts the agent's memory into a container that does not have it; known
// tells whether there is any.
func (t *turn) recall(ctx context.Context, w *work, files *sftp.Client) (known bool, err error) {
	if len(t.a.State) == 0 {
		return false, nil
	}
	repo, ref := w.t.Repo, stateRef(w.t.Caller)
	entries, err := repo.Tree(ctx, ref, t.a.Name, true)
	if err != nil && !errors.Is(err, gitd.ErrNotFound) {
		return false, fmt.Errorf("cannot read the agent's memory: %w", err)
	}
	id := w.host.Container().ID
	if marked(files, t.a.mark()) == id {
		return len(entries) > 0, nil
	}
	for _, e := range entries {
		name := strings.TrimPrefix(e.Path, t.a.Name+"/")
		if e.Type != "blob" || !filepath.IsLocal(name) || !t.a.owns(name) {
			continue
		}
		known = true
		if err := restore(ctx, repo, ref, e, files, path.Join(homeDir, name)); err != nil {
			return false, fmt.Errorf("cannot put the agent's memory back: %q: %w", name, err)
		}
	}
	if err := put(files, t.a.mark(), strings.NewReader(id), 0o600); err != nil {
		return false, fmt.Errorf("cannot mark the agent's memory: %w", err)
	}
	if !known {
		return false, nil
	}
	return true, t.l.emit(record.Event{Type: record.EventNote, Step: w.s.ID, Message: "the agent's memory was put into a new container"}, false)
}

// owns tells whether a name below the home folder is a part of the agent's memory.
func (a Agent) owns(name string) bool {
	return slices.ContainsFunc(a.State, func(s string) bool { return name == s || strings.HasPrefix(name, s+"/") })
}

func marked(files *sftp.Client, name string) string {
	f, err := files.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, 1024)) // a mark that cannot be read is none
	return string(b)
}

func restore(ctx context.Context, repo *gitd.Repo, ref string, e gitd.TreeEntry, files *sftp.Client, to string) error {
	in, _, err := repo.OpenFile(ctx, ref, e.Path)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := files.MkdirAll(path.Dir(to)); err != nil {
		return err
	}
	mode := os.FileMode(0o600)
	if e.Mode == "100755" {
		mode = 0o700
	}
	return put(files, to, in, mode)
}

// remember commits the agent's memory. It is not worth failing a turn for: what
// is on the branch is what counts.
func (t *turn) remember(ctx context.Context, w *work) {
	if len(t.a.State) == 0 {
		return
	}
	// The turn has happened; that it was stopped is no reason to forget it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), worktree.Housekeeping)
	defer cancel()
	if err := t.keepState(ctx, w); err != nil && !lostHost(w.host) {
		message := fmt.Sprintf("the agent's memory could not be kept: %v", err)
		_ = t.l.emit(record.Event{Type: record.EventNote, Step: w.s.ID, Message: text.Clip(message, 4<<10)}, false) // the step's end follows and meets the same error
	}
}

func (t *turn) keepState(ctx context.Context, w *work) error {
	files, err := w.host.Files(ctx)
	if err != nil {
		return err
	}
	defer files.Close()
	dir := filepath.Join(t.l.x.outputDir(t.l.claim), "state")
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	found, left := t.a.memory(files)
	kept := found[:0]
	var total int64
	for _, f := range found {
		if len(kept) == maxStateFiles || total+f.info.Size() > maxStateBytes {
			left++
			continue
		}
		// By number: the names are the container's, and only git gets them.
		f.source = filepath.Join(dir, fmt.Sprintf("%06d", len(kept)))
		if err := t.fetch(w, files, f); err != nil {
			left++ // gone meanwhile, or closed to the task's own user
			continue
		}
		total += f.info.Size()
		kept = append(kept, f)
	}
	if err := t.commitState(ctx, w, kept); err != nil {
		return err
	}
	if left > 0 {
		return t.l.emit(record.Event{Type: record.EventNote, Step: w.s.ID, Message: fmt.Sprintf("%d files of the agent's memory were left out: too many, too large, or not to be read", left)}, false)
	}
	return nil
}

// stateFile is one file of an agent's memory.
type stateFile struct {
	name   string // below the home folder
	info   os.FileInfo
	source string // where the host keeps it meanwhile
}

// memory lists the files of the agent's memory, the newest first, and how many
// cannot be kept. Symbolic links are not followed.
func (a Agent) memory(files *sftp.Client) (found []stateFile, left int) {
	seen := make(map[string]bool)
	walked := 0
	for _, root := range a.State {
		walk := files.Walk(path.Join(homeDir, root))
		for walk.Step() {
			if walked++; walked > maxStateWalked {
				break
			}
			if walk.Err() != nil {
				continue // not there, or closed to the task's own user
			}
			name := strings.TrimPrefix(walk.Path(), homeDir+"/")
			if !walk.Stat().Mode().IsRegular() || seen[name] {
				continue
			}
			seen[name] = true
			if !filepath.IsLocal(name) || !gitCanHold(name) {
				left++
				continue
			}
			found = append(found, stateFile{name: name, info: walk.Stat()})
		}
	}
	slices.SortStableFunc(found, func(a, b stateFile) int {
		return cmp.Or(b.info.ModTime().Compare(a.info.ModTime()), strings.Compare(a.name, b.name))
	})
	return found, left
}

func (t *turn) fetch(w *work, files *sftp.Client, f stateFile) error {
	from, err := files.Open(path.Join(homeDir, f.name))
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(f.source, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	// No more than was counted, however fast it grows.
	found, err := t.l.x.Secrets.Copy(to, io.LimitReader(from, f.info.Size()))
	return errors.Join(err, to.Close(), t.l.removed(w.s.ID, record.SecretInState, found, "the agent's memory"))
}

// commitState makes files the agent's memory, in the caller's ref.
func (t *turn) commitState(ctx context.Context, w *work, files []stateFile) error {
	repo, ref := w.t.Repo, stateRef(w.t.Caller)
	old, err := repo.Resolve(ctx, ref)
	if err != nil && !errors.Is(err, gitd.ErrNotFound) {
		return err
	}
	if old == "" && len(files) == 0 {
		return nil
	}
	c := gitd.NewCommit{From: old, Delete: []string{t.a.Name}, Author: t.l.x.Bot, Committer: t.l.x.Bot, When: t.l.x.Now(),
		Message: fmt.Sprintf("Memory of %s after %s\n\n%s: %s\n%s: %s\n%s: %s\n", t.a.Name, w.s.ID,
			record.TrailerCaller, w.t.Caller, record.TrailerRun, t.l.claim.ID, record.TrailerStep, w.s.ID)}
	if old != "" {
		c.Parents = []gitd.Hash{old}
	}
	taken := make(map[string]bool)
	for _, f := range files {
		mode := uint32(0o100644)
		if f.info.Mode()&0o100 != 0 {
			mode = 0o100755
		}
		c.Put = append(c.Put, gitd.File{Path: path.Join(t.a.Name, w.cleanName(f.name, taken)), Mode: mode, Source: f.source})
	}
	commit, err := repo.WriteCommit(ctx, c)
	if err != nil {
		return err
	}
	return repo.Update(ctx, gitd.RefUpdate{Name: ref, New: commit, Old: &old})
}

// lostHost tells whether the connection to a container has ended.
func lostHost(h *containers.Host) bool {
	select {
	case <-h.Done():
		return true
	default:
		return false
	}
}
