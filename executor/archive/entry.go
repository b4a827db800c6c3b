package archive

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor/attachment"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

// Outputs of up to storeOver bytes are sealed into the run's ref. Larger ones are in the artifact store, and the manifest has
// their hashes.
const (
	// JournalFile is the journal in the record of a run.
	JournalFile = "journal.jsonl"

	storeOver   = 8 << 20
	maxDiff     = 32 << 20 // of a diff in a sealed run; the branch has the whole diff
	maxFileList = 10_000   // changed files named in a manifest
)

// Seal writes a run's record into one commit and moves the run's ref to it. Its parents are the run's earlier record and the
// branch's tip, so the commits of the run stay reachable if the branch is deleted.
func (e *Entry) Seal(ctx context.Context) error {
	a, repo := e.archive, e.repo
	r := e.run.Snapshot()
	events := e.run.Journalled()
	subs := a.subManifests(ctx, r, events)
	var tree gitd.Hash
	if r.Head != "" {
		var err error
		if tree, err = repo.TreeOf(ctx, r.Head); err != nil {
			return fmt.Errorf("cannot seal %s: %w", r.Name(), err)
		}
	}
	m := record.NewManifest(r, tree, events, subs)
	m.Engine, m.Image = a.Engine, cmp.Or(r.Image, a.Image)
	files, stored, err := a.outputFiles(ctx, r)
	if err != nil {
		return err
	}
	m.Files = append(m.Files, stored...)
	borrowed, listed, err := a.lentFiles(ctx, repo, m, a.lenders(ctx, r, m, subs))
	if err != nil {
		return fmt.Errorf("cannot seal %s: %w", r.Name(), err)
	}
	files, m.Files = append(files, borrowed...), append(m.Files, listed...)
	review := e.reviewed(ctx, r)
	if review.err != nil {
		return fmt.Errorf("cannot seal %s: %w", r.Name(), review.err)
	}
	m.Changed = review.changed
	others, err := a.reviewAdditions(ctx, r)
	if err != nil {
		return fmt.Errorf("cannot seal %s: %w", r.Name(), err)
	}
	m.With, files, m.Files = others.With, append(files, others.Patches...), append(m.Files, others.Listed...)
	m.Unverified = append(m.Unverified, others.Unverified...)
	if len(m.Changed) > maxFileList {
		m.Unverified = append(m.Unverified,
			fmt.Sprintf("only %d of %d changed files are listed", maxFileList, len(m.Changed)))
		m.Changed = m.Changed[:maxFileList]
	}
	if review.cut {
		m.Unverified = append(m.Unverified,
			fmt.Sprintf("evidence/changes.diff is cut at %d MiB; the branch has everything", maxDiff>>20))
	}

	journal := filepath.Join(a.Folder.Output(r), "journal")
	// A note may still come while the run is sealed, and then the file would differ from the manifest.
	if err := e.run.CopyJournal(journal); err != nil {
		return fmt.Errorf("cannot seal %s: %w", r.Name(), err)
	}
	for _, f := range []gitd.File{{Path: "evidence/changes.diff", Source: a.Folder.Diff(r)}, {Path: JournalFile, Source: journal}} {
		described, err := store.Describe(f.Path, f.Source)
		if err != nil {
			return fmt.Errorf("cannot seal %s: %w", r.Name(), err)
		}
		m.Files = append(m.Files, described)
		files = append(files, f)
	}
	if err := e.listEarlier(ctx, &m); err != nil {
		return err
	}

	runText, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot seal %s: %w", r.Name(), err)
	}
	m = redact.Clean(a.Secrets, m)
	manifest, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot seal %s: %w", r.Name(), err)
	}
	files = append(files,
		gitd.File{Path: "run.json", Content: runText},
		gitd.File{Path: record.ManifestPath, Content: manifest})
	if err := e.commit(ctx, r, files); err != nil {
		return fmt.Errorf("cannot seal %s: %w", r.Name(), err)
	}
	return nil
}

// commit commits the files of a run's record, and moves the run's ref and the chain of seals.
func (e *Entry) commit(ctx context.Context, r record.Run, files []gitd.File) error {
	a, repo := e.archive, e.repo
	ref := e.at()
	parents := []gitd.Hash{ref}
	if r.Head != "" {
		parents = append(parents, r.Head)
	}
	commit, err := a.Chain.Seal(ctx, repo, record.RunRef(r.Caller, r.ID), ref, gitd.NewCommit{
		From:      ref,
		Put:       files,
		Parents:   parents,
		Author:    r.Asker.Or(a.Bot),
		Committer: a.Bot,
		When:      a.Now(),
		Message: fmt.Sprintf("%s: %s\n\n%s: %s\n%s: %s\n",
			r.Name(), SealedAs(r), record.TrailerCaller, r.Caller, record.TrailerRun, r.ID),
	})
	if err != nil {
		return err
	}
	e.mu.Lock()
	e.ref = commit
	e.mu.Unlock()
	return nil
}

// subManifests returns the evidence of the sub-workflows that worked on the run's own branch, by step. One that cannot be read
// counts as one without checks.
func (a *Archive) subManifests(ctx context.Context, r record.Run, events []record.Event) map[string]record.Manifest {
	subs := make(map[string]record.Manifest)
	for _, e := range events {
		var data struct {
			Result struct {
				Output struct {
					Run string `json:"run"`
				} `json:"output"`
			} `json:"result"`
		}
		if e.Type != record.EventStepFinished || e.Kind != string(workflow.KindWorkflow) || json.Unmarshal(e.Data, &data) != nil {
			continue
		}
		m, err := a.Manifest(ctx, data.Result.Output.Run)
		if err != nil {
			a.Log.Warn("cannot read the evidence of a sub-workflow", "run", data.Result.Output.Run, "err", err)
			continue
		}
		if m.Branch == r.Branch {
			subs[e.Step] = m
		}
	}
	return subs
}

// listEarlier adds the files of the run's earlier record. A run that waited for a person was sealed then, and its files in live/
// were removed.
func (e *Entry) listEarlier(ctx context.Context, m *record.Manifest) error {
	text, err := e.repo.ReadFile(ctx, string(e.at()), record.ManifestPath, record.MaxManifest)
	if errors.Is(err, gitd.ErrNotFound) {
		return nil
	}
	var before record.Manifest
	if err == nil {
		err = json.Unmarshal(text, &before)
	}
	if err != nil {
		return fmt.Errorf("cannot seal %s: cannot read its record before: %w", e.run.Initial.Name(), err)
	}
	for _, f := range before.Files {
		if !slices.ContainsFunc(m.Files, func(now record.ManifestFile) bool { return now.Name == f.Name }) {
			m.Files = append(m.Files, f)
		}
	}
	return nil
}

// SealedAs returns the state of a run as the commit of its record has it.
func SealedAs(r record.Run) string {
	if r.Reason != "" {
		return fmt.Sprintf("%s, %s", r.State, r.Reason)
	}
	return string(r.State)
}

// outputFiles returns a run's outputs and artifacts, the small ones to be sealed. It puts the large ones into the artifact store.
func (a *Archive) outputFiles(ctx context.Context, r record.Run) (files []gitd.File, listed []record.ManifestFile, err error) {
	dir := a.Folder.Output(r)
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			// Other folders are temporary, such as those of prompts that are being journalled or were refused.
			if top, _, _ := strings.Cut(name, "/"); top != "." && top != "artifacts" && top != attachment.Folder {
				return fs.SkipDir
			}
			return nil
		}
		switch top, _, below := strings.Cut(name, "/"); {
		case below && (top == "artifacts" || top == attachment.Folder):
		case !below && (strings.HasSuffix(name, ".stdout") || strings.HasSuffix(name, ".stderr")):
			name = "output/" + name
		default:
			return nil
		}
		f, err := store.Describe(name, path)
		if err != nil {
			return err
		}
		switch {
		case f.Size == 0 && strings.HasPrefix(name, "output/"):
			return nil
		case f.Size <= storeOver && record.GitCanHold(name):
			files = append(files, gitd.File{Path: f.Name, Source: path})
		default:
			f.Stored = true
			if err := a.store(ctx, path, f.SHA256, f.Size); err != nil {
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

// store puts a file into the artifact store. It ends with the server, so that a store that hangs does not keep the server from
// closing. The next process seals the run.
func (a *Archive) store(ctx context.Context, path, sum string, size int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(a.Context, func() { cancel(context.Cause(a.Context)) })()
	return a.Store.Put(ctx, path, sum, size)
}
