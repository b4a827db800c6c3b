package pushed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"strings"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gitd"
)

// Bounds of the workflows of one base.
const (
	maxListening = 20      // workflows with events
	maxWorkflows = 200     // files that are looked at
	maxWorkflow  = 1 << 20 // bytes of a file
	maxFolders   = 1000    // folders that are remembered
)

// listener is a workflow file of a base that begins with events.
type listener struct {
	file string
	text gitd.Hash // of the blob
	on   executor.On
	// fault is the line that says why the file starts nothing. Empty means that it does.
	fault string
}

// tipOf returns the tip of a branch. Returns "" if the branch has no commit yet.
func tipOf(ctx context.Context, repo *gitd.Repo, ref string) (gitd.Hash, error) {
	tip, err := repo.Resolve(ctx, ref)
	if errors.Is(err, gitd.ErrNotFound) {
		return "", nil
	}
	return tip, err
}

// listeners returns the workflow files of a commit that begin with events. The folder is read once for each of its trees.
func (s *Starter) listeners(ctx context.Context, repo *gitd.Repo, commit gitd.Hash) ([]listener, error) {
	if commit == "" {
		return nil, nil
	}
	folder, err := repo.Entry(ctx, string(commit), executor.WorkflowDir)
	if errors.Is(err, gitd.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	list, known := s.read[folder.Hash]
	s.mu.Unlock()
	if known || folder.Type != "tree" {
		return list, nil
	}
	if list, err = s.readListeners(ctx, repo, commit); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read == nil || len(s.read) >= maxFolders {
		s.read = make(map[gitd.Hash][]listener)
	}
	s.read[folder.Hash] = list
	return list, nil
}

// readListeners reads the workflow files of a commit.
func (s *Starter) readListeners(ctx context.Context, repo *gitd.Repo, commit gitd.Hash) ([]listener, error) {
	files, err := repo.Tree(ctx, string(commit), executor.WorkflowDir, false)
	if err != nil {
		return nil, err
	}
	var list []listener
	looked, listening := 0, 0
	for _, f := range files {
		if f.Type != "blob" || path.Ext(f.Path) != ".yaml" {
			continue
		}
		if looked++; looked > maxWorkflows {
			list = append(list, listener{fault: fmt.Sprintf("only the first %d files of %s are read for `on`", maxWorkflows, executor.WorkflowDir)})
			break
		}
		l, err := s.readListener(ctx, repo, f)
		if err != nil {
			return nil, err
		}
		if l.on.Push {
			listening++
		}
		if listening > maxListening {
			list = append(list, listener{fault: fmt.Sprintf("only the first %d workflows with `on` count", maxListening)})
			break
		}
		if l.on.Push || l.fault != "" {
			list = append(list, l)
		}
	}
	return list, nil
}

// readListener reads a workflow file. Of files without events only those have a fault that are too large, or that are not
// well-formed and have the word push.
func (s *Starter) readListener(ctx context.Context, repo *gitd.Repo, f gitd.TreeEntry) (listener, error) {
	l := listener{file: executor.WorkflowDir + "/" + path.Base(f.Path), text: f.Hash}
	text, err := repo.Blob(ctx, f.Hash, maxWorkflow)
	if errors.Is(err, gitd.ErrTooLarge) {
		l.fault = fmt.Sprintf("%s starts nothing: it has %d bytes, and a workflow has at most %d", l.file, f.Size, maxWorkflow)
		return l, nil
	}
	if err != nil {
		return l, err
	}
	if l.on, err = executor.EventsOf(l.file, text); err != nil && bytes.Contains(text, []byte("push")) {
		first, _, _ := strings.Cut(err.Error(), "\n") // FILE:LINE:COLUMN: MISTAKE
		l.fault = fmt.Sprintf("%s starts nothing: line %s", l.file, strings.TrimPrefix(first, l.file+":"))
	}
	return l, nil
}

// changes are the files that a push of a branch changes. They are listed once, if a workflow asks.
type changes struct {
	repo *gitd.Repo
	ref  gitd.PushedRef
	base gitd.Hash // to which a new branch is compared; empty for none
	log  *slog.Logger

	listed  bool
	unknown bool // all of them may have changed
	files   []string
}

// touch reports whether the push changes files that count for a workflow. If the changes cannot be listed, all count.
func (c *changes) touch(ctx context.Context, on executor.On) bool {
	if !c.listed {
		c.listed = true
		c.list(ctx)
	}
	return c.unknown || on.Touches(c.files)
}

func (c *changes) list(ctx context.Context) {
	from := c.ref.Old
	if from == "" {
		from = c.base
	}
	if from == "" {
		c.unknown = true
		return
	}
	list, err := c.repo.Changed(ctx, string(from), string(c.ref.Commit), c.ref.Old == "")
	if err != nil {
		c.log.Debug("the changes of a push cannot be listed", "repo", c.repo.Name(), "ref", c.ref.Name, "err", err)
		c.unknown = true
	}
	for _, one := range list {
		c.files = append(c.files, one.Path)
		if one.OldPath != "" {
			c.files = append(c.files, one.OldPath)
		}
	}
}
