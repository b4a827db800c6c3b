package addition

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/text"
)

// Reviewer writes the evidence of runs in additional repositories. All fields are required, but Secrets may be nil.
type Reviewer struct {
	Git     *gitd.Server
	Secrets *redact.Secrets
	// Dir is the folder for the patches.
	Dir string
	// MaxPatch bounds a patch in bytes, and MaxList the number of changed files that are listed.
	MaxPatch int64
	MaxList  int
}

// Review is the evidence of a run in its additional repositories.
type Review struct {
	With       []record.ManifestAddition
	Patches    []gitd.File           // the patches, as the run's record has them
	Listed     []record.ManifestFile // their descriptions
	Unverified []string              // sentences about missing evidence
}

// Review returns the evidence. A repository that was removed is named.
func (v Reviewer) Review(ctx context.Context, with []record.Addition) (out Review, err error) {
	for _, a := range with {
		m := record.ManifestAddition{Addition: a, Changed: []gitd.Change{}}
		if a.Changed() {
			m.Changed, err = v.patch(ctx, a, &out)
		}
		switch {
		case errors.Is(err, gitd.ErrNotFound):
			m.Changed = []gitd.Change{}
			out.Unverified = append(out.Unverified, fmt.Sprintf("%s was removed: its changes are not here", a.Repo))
		case err != nil:
			return Review{}, fmt.Errorf("cannot keep the diff of %s: %w", a.Repo, err)
		case len(m.Changed) > v.MaxList:
			out.Unverified = append(out.Unverified,
				fmt.Sprintf("only %d of %d changed files of %s are listed", v.MaxList, len(m.Changed), a.Repo))
			m.Changed = m.Changed[:v.MaxList]
		}
		out.With = append(out.With, m)
	}
	return out, nil
}

// patch writes the patch of a run in a repository to a file, adds it to out, and returns the changes.
func (v Reviewer) patch(ctx context.Context, a record.Addition, out *Review) ([]gitd.Change, error) {
	repo, err := v.Git.Repo(a.Repo)
	if err != nil {
		return nil, err
	}
	name := filepath.Join(v.Dir, a.Repo+".diff")
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return nil, err
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	w := &text.Limit{W: f, Left: v.MaxPatch}
	clean := v.Secrets.Writer(w)
	// The base may hold a secret, and a commit of ours may not.
	changed, err := repo.Review(ctx, string(a.Start), string(a.Head), clean)
	if err := errors.Join(err, clean.Flush(), f.Close()); err != nil {
		return nil, err
	}
	if w.Cut {
		out.Unverified = append(out.Unverified,
			fmt.Sprintf("evidence/repos/%s.diff is cut at %d MiB; the branch has everything", a.Repo, v.MaxPatch>>20))
	}
	described, err := store.Describe("evidence/repos/"+a.Repo+".diff", name)
	if err != nil {
		return nil, err
	}
	out.Patches = append(out.Patches, gitd.File{Path: described.Name, Source: name})
	out.Listed = append(out.Listed, described)
	return changed, nil
}
