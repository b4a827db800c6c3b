package executor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// What a sub-workflow on the run's own branch saw is the run's evidence as well: who
// reads of a run is shown its pages, whichever part of it looked at them. In git and in
// the artifact store the files are the same ones.

// lentFolder is where the files of a sub-workflow's checks lie, below browserFolder.
func lentFolder(step string) string { return "sub-" + fileName(step) }

// lent are a sub-workflow's checks as its run's, by the step that it was.
func lent(step string, checks []browser.Check) []browser.Check {
	move := func(names ...*string) {
		for _, name := range names {
			if *name != "" {
				*name = path.Join(lentFolder(step), *name)
			}
		}
	}
	checks = slices.Clone(checks)
	for i := range checks {
		c := &checks[i]
		c.Step = step + "/" + c.Step
		c.Files, c.Views = slices.Clone(c.Files), slices.Clone(c.Views)
		move(&c.Dir)
		for j := range c.Files {
			move(&c.Files[j].Name)
		}
		for j := range c.Views {
			v := &c.Views[j]
			move(&v.Screenshot, &v.Trace, &v.HAR, &v.Video, &v.PDF, &v.Aria, &v.Console.File)
			v.Steps = slices.Clone(v.Steps)
			for n := range v.Steps {
				move(&v.Steps[n].Screenshot)
			}
		}
		if c.Compare != nil {
			d := *c.Compare
			d.Views = slices.Clone(d.Views)
			for j := range d.Views {
				move(&d.Views[j].Before, &d.Views[j].After, &d.Views[j].Picture)
			}
			c.Compare = &d
		}
	}
	return checks
}

// lentFiles are the files of the checks of sub-workflows, by the manifests of their runs.
// What is missing there is no reason not to seal the run: its check names it all the same.
func (x *Executor) lentFiles(ctx context.Context, repo *gitd.Repo, subs map[string]Manifest) (files []gitd.File, listed []ManifestFile, err error) {
	const folder = "artifacts/" + browserFolder
	taken := make(map[string]bool) // of two steps whose names look alike the first has its files
	for _, step := range slices.Sorted(maps.Keys(subs)) {
		m := subs[step]
		if len(m.Browser) == 0 || taken[lentFolder(step)] {
			continue
		}
		taken[lentFolder(step)] = true
		r, err := x.Run(ctx, m.Run)
		if err != nil {
			return nil, nil, err
		}
		entries, err := repo.Tree(ctx, runRef(r.Caller, r.ID), folder, true)
		if err != nil && !errors.Is(err, gitd.ErrNotFound) {
			return nil, nil, fmt.Errorf("cannot find what %s saw in a browser: %w", m.Run, err)
		}
		blobs := make(map[string]gitd.Hash)
		for _, e := range entries {
			blobs[e.Path] = e.Hash
		}
		for _, f := range m.Files {
			rest, ok := strings.CutPrefix(f.Name, folder+"/")
			blob, inGit := blobs[f.Name]
			if !ok || rest == "index.json" || !inGit && !f.Stored {
				continue // the index is of that run alone; the manifest has all
			}
			f.Name = path.Join(folder, lentFolder(step), rest)
			if !f.Stored {
				files = append(files, gitd.File{Path: f.Name, Blob: blob})
			}
			listed = append(listed, f)
		}
	}
	return files, listed, nil
}
