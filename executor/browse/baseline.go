package browse

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// A check is compared with a look at another commit. That look is kept in a commit at refs/ramus/browser/KEY with check.json, the pictures and the
// accessibility trees. KEY is a hash over the tree, the spec and the browser. So the same tree is looked at once for all runs.

// BaselineRefs begins the refs of kept looks.
const BaselineRefs = "refs/ramus/browser"

const (
	baselineFile  = "check.json"
	baselinesKept = 200 // and a tenth more, before the oldest are removed
)

// baseline is a look at a commit as it is kept.
type baseline struct {
	Verdict browser.Verdict `json:"verdict"`
	Reason  string          `json:"reason"`
	Commit  string          `json:"commit"`
	Tree    string          `json:"tree"`
	Run     string          `json:"run"` // which made it
	Started time.Time       `json:"started,omitzero"`
	Images  []browser.Image `json:"images,omitempty"`
	// Views are the viewports that have a picture.
	Views []baselineView `json:"views"`
}

type baselineView struct {
	Viewport   string `json:"viewport"`
	Screenshot string `json:"screenshot"`
	Aria       string `json:"aria,omitempty"`

	picture []byte
	aria    string
}

// baselineKey returns the name of a look, by its tree, its spec and its browser.
func baselineKey(c browser.Check, tree string, spec browser.Spec) string {
	spec.Name, spec.Compare = "", nil
	sum := sha256.Sum256(record.Marshal(struct {
		Tree, Browser, Driver string
		Images                []browser.Image
		Spec                  browser.Spec
	}{tree, c.Browser, c.Driver, c.Images, spec}))
	return hex.EncodeToString(sum[:])
}

// asBaseline returns the look as it is kept.
func (k *look) asBaseline() (baseline, error) {
	b := baseline{Verdict: k.check.Verdict, Reason: k.check.Reason, Commit: k.check.Commit, Tree: k.check.Tree,
		Run:     k.step.Claim.Name(),
		Started: k.check.Started, Images: k.check.Images, Views: []baselineView{}}
	for _, v := range k.check.Views {
		if v.Screenshot == "" {
			continue
		}
		name := v.Viewport.Name
		view := baselineView{Viewport: name, Screenshot: path.Join(name, "screenshot.png")}
		var err error
		if view.picture, err = os.ReadFile(filepath.Join(k.part, keptFolder, name, "screenshot.png")); err != nil {
			return b, err
		}
		if v.Aria != "" {
			text, err := os.ReadFile(filepath.Join(k.part, keptFolder, name, "aria.yml"))
			if err != nil {
				return b, err
			}
			view.Aria, view.aria = path.Join(name, "aria.yml"), string(text)
		}
		b.Views = append(b.Views, view)
	}
	return b, nil
}

// remember keeps a look for later checks that are compared with it. A look that cannot be kept is taken again. Only looks at a base are kept,
// because in a caller's container files that git does not see may change the page.
func (k *look) remember(ctx context.Context, b baseline) {
	if p, err := parsePage(k.spec.URL); err != nil || !p.local || b.Verdict == browser.Unverified || len(b.Views) == 0 {
		return // a page elsewhere does not follow from the tree
	}
	repo := k.step.Tree.Repo
	name := BaselineRefs + "/" + baselineKey(k.check, k.check.Tree, k.spec)
	err := k.in.writeBaseline(ctx, repo, name, b)
	if err != nil && !errors.Is(err, gitd.ErrConflict) && ctx.Err() == nil {
		k.in.Log.Warn("cannot keep a baseline", "repo", repo.Name(), "err", err)
	}
}

// writeBaseline keeps a look at the ref name.
func (in *Inspector) writeBaseline(ctx context.Context, repo *gitd.Repo, name string, b baseline) error {
	if _, err := repo.Resolve(ctx, name); err == nil {
		return nil // another run kept the same look
	}
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	put := []gitd.File{{Path: baselineFile, Content: append(text, '\n')}}
	for _, v := range b.Views {
		put = append(put, gitd.File{Path: v.Screenshot, Content: v.picture})
		if v.Aria != "" {
			put = append(put, gitd.File{Path: v.Aria, Content: []byte(v.aria)})
		}
	}
	commit, err := repo.WriteCommit(ctx, gitd.NewCommit{Put: put, Author: in.Bot, When: in.Now(),
		Message: fmt.Sprintf("%.10s in a browser: %s\n\n%s: %s\n", b.Commit, b.Verdict, record.TrailerRun, b.Run)})
	if err != nil {
		return err
	}
	none := gitd.Hash("")
	if err := repo.Update(ctx, gitd.RefUpdate{Name: name, New: commit, Old: &none}); err != nil {
		return err
	}
	return in.pruneBaselines(ctx, repo)
}

// readBaseline returns a look that was kept before. The error is [gitd.ErrNotFound] if there is none.
func readBaseline(ctx context.Context, repo *gitd.Repo, key string) (b baseline, err error) {
	at, err := repo.Resolve(ctx, BaselineRefs+"/"+key)
	if err != nil {
		return b, err
	}
	text, err := repo.ReadFile(ctx, string(at), baselineFile, maxEvidenceIndex)
	if err == nil {
		err = json.Unmarshal(text, &b)
	}
	for i := range b.Views {
		if err != nil {
			break
		}
		v := &b.Views[i]
		v.picture, err = repo.ReadFile(ctx, string(at), v.Screenshot, maxEvidenceFile)
		if err == nil && v.Aria != "" {
			text, err = repo.ReadFile(ctx, string(at), v.Aria, maxEvidenceFile)
			v.aria = string(text)
		}
	}
	if err != nil {
		return b, fmt.Errorf("cannot read what a browser saw at %s: %w", key, err)
	}
	return b, nil
}

// pruneBaselines removes the oldest looks of a repository if there are too many.
func (in *Inspector) pruneBaselines(ctx context.Context, repo *gitd.Repo) error {
	return repo.PruneRefs(ctx, BaselineRefs, cmp.Or(in.Baselines, baselinesKept))
}
