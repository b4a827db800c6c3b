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

// earlierFolder is where the files of checks lie that a run took over, with their steps, from
// the run that it was begun again from.
const earlierFolder = "earlier"

// lent are a sub-workflow's checks as its run's, by the step that it was.
func lent(step string, checks []browser.Check) []browser.Check {
	checks = moved(lentFolder(step), checks)
	for i := range checks {
		checks[i].Step = step + "/" + checks[i].Step
	}
	return checks
}

// takenOver is the event of a check as that of the run which takes it over.
func takenOver(e Event) Event {
	for _, c := range moved(earlierFolder, browserChecks([]Event{e})) {
		e.Data = marshal(c)
	}
	return e
}

// moved are checks whose files lie in a folder of another run's.
func moved(folder string, checks []browser.Check) []browser.Check {
	move := func(names ...*string) {
		for _, name := range names {
			if *name != "" {
				*name = path.Join(folder, *name)
			}
		}
	}
	checks = slices.Clone(checks)
	for i := range checks {
		c := &checks[i]
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

// lenders are the runs whose checks a run shows as its own, by the folder of their files: its
// sub-workflows', and that of the run it was begun again from.
func (x *Executor) lenders(ctx context.Context, r Run, m Manifest, subs map[string]Manifest) map[string]Manifest {
	all := make(map[string]Manifest)
	for _, step := range slices.Sorted(maps.Keys(subs)) {
		// Of two steps whose names look alike the first has its files.
		if _, taken := all[lentFolder(step)]; !taken {
			all[lentFolder(step)] = subs[step]
		}
	}
	if !slices.ContainsFunc(m.Browser, func(c browser.Check) bool { return strings.HasPrefix(c.Dir, earlierFolder+"/") }) {
		return all
	}
	parent, err := x.Manifest(ctx, r.Parent)
	if err != nil {
		x.Log.Warn("cannot read the evidence of the run that this one was begun again from", "run", r.Parent, "err", err)
		return all
	}
	all[earlierFolder] = parent
	return all
}

// lentFiles are the files of other runs' checks that m shows, from the manifests of those.
// What is missing there is no reason not to seal the run: its check names it all the same.
func (x *Executor) lentFiles(ctx context.Context, repo *gitd.Repo, m Manifest, lenders map[string]Manifest) (files []gitd.File, listed []ManifestFile, err error) {
	const folder = "artifacts/" + browserFolder
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
		r, err := x.Run(ctx, lender.Run)
		if err != nil {
			return nil, nil, err
		}
		entries, err := repo.Tree(ctx, runRef(r.Caller, r.ID), folder, true)
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
				x.rely(f.SHA256)
			} else {
				files = append(files, gitd.File{Path: f.Name, Blob: blob})
			}
			listed = append(listed, f)
		}
	}
	return files, listed, nil
}
