package archive

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// A sub-workflow's looks at pages on the run's own branch are the run's evidence too. Readers of a run see all its
// pages, also those of its parts. In git and in the artifact store the files are the same ones.

// lenders returns the manifests of the runs whose checks a run shows as its own, by the folder of their files. These are its
// sub-workflows, and the run that it was begun again from.
func (a *Archive) lenders(ctx context.Context, r record.Run, m record.Manifest, subs map[string]record.Manifest) map[string]record.Manifest {
	all := make(map[string]record.Manifest)
	for _, step := range slices.Sorted(maps.Keys(subs)) {
		// If the names of two steps give the same folder, the first step has it.
		if _, taken := all[record.SubFolder(step)]; !taken {
			all[record.SubFolder(step)] = subs[step]
		}
	}
	if !slices.ContainsFunc(m.Browser, func(c browser.Check) bool { return strings.HasPrefix(c.Dir, record.EarlierFolder+"/") }) {
		return all
	}
	parent, err := a.Manifest(ctx, r.Parent)
	if err != nil {
		a.Log.Warn("cannot read the evidence of the run that this one was begun again from", "run", r.Parent, "err", err)
		return all
	}
	all[record.EarlierFolder] = parent
	return all
}

// lentFiles returns the files of other runs' checks that m shows, by the manifests of those runs. A missing file is
// no reason not to seal the run. Its check names it nevertheless.
func (a *Archive) lentFiles(ctx context.Context, repo *gitd.Repo, m record.Manifest, lenders map[string]record.Manifest) (files []gitd.File, listed []record.ManifestFile, err error) {
	const folder = "artifacts/" + record.BrowserFolder
	shown := make(map[string]bool)
	for _, c := range m.Browser {
		for _, f := range c.Files {
			shown[path.Join(folder, f.Name)] = true
		}
	}
	for _, at := range slices.Sorted(maps.Keys(lenders)) {
		lender := lenders[at]
		if len(lender.Browser) == 0 {
			continue
		}
		r, err := a.Find(ctx, lender.Run)
		if err != nil {
			return nil, nil, err
		}
		entries, err := repo.Tree(ctx, record.RunRef(r.Caller, r.ID), folder, true)
		if err != nil && !errors.Is(err, gitd.ErrNotFound) {
			return nil, nil, fmt.Errorf("cannot find what %s saw in a browser: %w", lender.Run, err)
		}
		blobs := make(map[string]gitd.Hash)
		for _, e := range entries {
			blobs[e.Path] = e.Hash
		}
		for _, f := range lender.Files {
			rest, ok := strings.CutPrefix(f.Name, folder+"/")
			blob, inGit := blobs[f.Name]
			if !ok || !inGit && !f.Stored {
				continue
			}
			if f.Name = path.Join(folder, at, rest); !shown[f.Name] {
				continue
			}
			if f.Stored {
				a.Store.Rely(f.SHA256)
			} else {
				files = append(files, gitd.File{Path: f.Name, Blob: blob})
			}
			listed = append(listed, f)
		}
	}
	return files, listed, nil
}
