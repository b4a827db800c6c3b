package agent

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
	"time"

	"github.com/pkg/sftp"
	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// MemoryPrefix begins the refs that hold agents' own memory, one a caller. Each agent has a folder there with the files that [Agent].State names, as
// they were in the home folder. No container's grant reaches them.
const MemoryPrefix = "refs/ramus/state"

// MemoryRef returns the ref that holds the memory of a caller's agents.
func MemoryRef(c record.Caller) string { return MemoryPrefix + "/" + c.Slug() }

// homeDir is the home folder of every command.
const homeDir = containers.CacheDir + "/home"

// Bounds of an agent's memory. Of one that is larger the newest files are kept.
const (
	maxMemoryFiles  = 5000
	maxMemoryBytes  = 256 << 20
	maxMemoryWalked = 100_000
)

// Memory is the memory of a caller's agent, during one step.
type Memory struct {
	Agent  Agent
	Repo   *gitd.Repo
	Caller record.Caller
	// Dir is a folder for the files on their way to git.
	Dir string
	// Bot makes the commits.
	Bot     gitd.Person
	Now     func() time.Time
	Secrets *redact.Secrets
	// Subject begins the commit's message, Trailers end it.
	Trailers string
	Subject  string
	// Clean returns a name without secrets that is not taken.
	Clean func(name string, taken map[string]bool) string
	// Note journals a sentence, and Removed the names of secrets that were taken out of the memory.
	Note    func(string) error
	Removed func(secrets []string) error
}

// mark returns the name of the file in the container that marks the agent's memory as restored. The file holds the
// container's id, so a copy of it in another container has no effect.
func (a Agent) mark() string { return path.Join(containers.CacheDir, ".ramus-state-"+a.Name) }

// owns reports whether a name below the home folder is a part of the agent's memory.
func (a Agent) owns(name string) bool {
	return slices.ContainsFunc(a.State, func(s string) bool { return name == s || strings.HasPrefix(name, s+"/") })
}

// Restore puts the agent's memory into a container that does not have it. It returns true if there is any.
func (m *Memory) Restore(ctx context.Context, container string, files *sftp.Client) (known bool, err error) {
	if len(m.Agent.State) == 0 {
		return false, nil
	}
	ref := MemoryRef(m.Caller)
	entries, err := m.Repo.Tree(ctx, ref, m.Agent.Name, true)
	if err != nil && !errors.Is(err, gitd.ErrNotFound) {
		return false, fmt.Errorf("cannot read the agent's memory: %w", err)
	}
	if marked(files, m.Agent.mark()) == container {
		return len(entries) > 0, nil
	}
	for _, e := range entries {
		name := strings.TrimPrefix(e.Path, m.Agent.Name+"/")
		if e.Type != "blob" || !filepath.IsLocal(name) || !m.Agent.owns(name) {
			continue
		}
		known = true
		if err := restore(ctx, m.Repo, ref, e, files, path.Join(homeDir, name)); err != nil {
			return false, fmt.Errorf("cannot put the agent's memory back: %q: %w", name, err)
		}
	}
	if err := WriteFile(files, m.Agent.mark(), strings.NewReader(container), 0o600); err != nil {
		return false, fmt.Errorf("cannot mark the agent's memory: %w", err)
	}
	if !known {
		return false, nil
	}
	return true, m.Note("the agent's memory was put into a new container")
}

// marked returns the content of a mark, or "" if there is none.
func marked(files *sftp.Client, name string) string {
	f, err := files.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, 1024)) // a mark that cannot be read is none
	return string(b)
}

// restore writes one file of a memory to a container.
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
	return WriteFile(files, to, in, mode)
}

// Keep commits the agent's memory.
func (m *Memory) Keep(ctx context.Context, h *containers.Host) error {
	files, err := h.Files(ctx)
	if err != nil {
		return err
	}
	defer files.Close()
	if err := errors.Join(os.RemoveAll(m.Dir), os.MkdirAll(m.Dir, 0o700)); err != nil {
		return err
	}
	defer os.RemoveAll(m.Dir)

	found, left := m.Agent.memory(files)
	kept := found[:0]
	var total int64
	for _, f := range found {
		if len(kept) == maxMemoryFiles || total+f.info.Size() > maxMemoryBytes {
			left++
			continue
		}
		// By number. The names are the container's, and only git gets them.
		f.source = filepath.Join(m.Dir, fmt.Sprintf("%06d", len(kept)))
		if err := m.fetch(files, f); err != nil {
			left++ // gone meanwhile, or closed to the task's own user
			continue
		}
		total += f.info.Size()
		kept = append(kept, f)
	}
	if err := m.commit(ctx, kept); err != nil {
		return err
	}
	if left > 0 {
		return m.Note(fmt.Sprintf("%d files of the agent's memory were left out: too many, too large, or not to be read", left))
	}
	return nil
}

// memoryFile is one file of an agent's memory.
type memoryFile struct {
	name   string // below the home folder
	info   os.FileInfo
	source string // of the copy on the host
}

// memory returns the files of the agent's memory, the newest first, and how many cannot be kept. It does not follow symbolic links.
func (a Agent) memory(files *sftp.Client) (found []memoryFile, left int) {
	seen := make(map[string]bool)
	walked := 0
	for _, root := range a.State {
		walk := files.Walk(path.Join(homeDir, root))
		for walk.Step() {
			if walked++; walked > maxMemoryWalked {
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
			if !filepath.IsLocal(name) || !record.GitCanHold(name) {
				left++
				continue
			}
			found = append(found, memoryFile{name: name, info: walk.Stat()})
		}
	}
	slices.SortStableFunc(found, func(a, b memoryFile) int {
		return cmp.Or(b.info.ModTime().Compare(a.info.ModTime()), strings.Compare(a.name, b.name))
	})
	return found, left
}

// fetch copies a file to the host, without secrets.
func (m *Memory) fetch(files *sftp.Client, f memoryFile) error {
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
	found, err := m.Secrets.Copy(to, io.LimitReader(from, f.info.Size()))
	return errors.Join(err, to.Close(), m.Removed(found))
}

// commit makes files the agent's memory.
func (m *Memory) commit(ctx context.Context, files []memoryFile) error {
	ref := MemoryRef(m.Caller)
	old, err := m.Repo.Resolve(ctx, ref)
	if err != nil && !errors.Is(err, gitd.ErrNotFound) {
		return err
	}
	if old == "" && len(files) == 0 {
		return nil
	}
	c := gitd.NewCommit{
		From:      old,
		Delete:    []string{m.Agent.Name},
		Author:    m.Bot,
		Committer: m.Bot,
		When:      m.Now(),
		Message:   m.Subject + "\n\n" + m.Trailers,
	}
	if old != "" {
		c.Parents = []gitd.Hash{old}
	}
	taken := make(map[string]bool)
	for _, f := range files {
		mode := uint32(0o100644)
		if f.info.Mode()&0o100 != 0 {
			mode = 0o100755
		}
		c.Put = append(c.Put, gitd.File{Path: path.Join(m.Agent.Name, m.Clean(f.name, taken)), Mode: mode, Source: f.source})
	}
	commit, err := m.Repo.WriteCommit(ctx, c)
	if err != nil {
		return err
	}
	return m.Repo.Update(ctx, gitd.RefUpdate{Name: ref, New: commit, Old: &old})
}
