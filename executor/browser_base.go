package executor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/egress"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// What a check is compared with is a look at another commit. It is kept: a commit of
// its own at refs/ramus/browser/KEY with check.json, the pictures and the accessibility
// trees, where KEY says what was looked at, how, and by what. So the same tree is looked
// at once, whoever asks, and every check is the base of a later one.

const (
	baselineRefs  = "refs/ramus/browser"
	baselineFile  = "check.json"
	baselinesKept = 200 // and a tenth more, before the oldest are removed

	baseWait   = 5 * time.Minute // for a container to look at the base in
	basePrefix = "look:"         // of such a container's key
)

// baseline is a look at a commit as it is kept.
type baseline struct {
	Verdict browser.Verdict `json:"verdict"`
	Reason  string          `json:"reason"`
	Commit  string          `json:"commit"`
	Tree    string          `json:"tree"`
	Run     string          `json:"run"` // that made it
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

// baselineKey is the name of a look: what, how, and by what.
func baselineKey(c browser.Check, tree string, spec browser.Spec) string {
	spec.Name, spec.Compare = "", nil
	sum := sha256.Sum256(marshal(struct {
		Tree, Browser, Driver string
		Images                []browser.Image
		Spec                  browser.Spec
	}{tree, c.Browser, c.Driver, c.Images, spec}))
	return hex.EncodeToString(sum[:])
}

// compare looks at the base, or finds what was seen there before, and says what differs.
func (k *look) compare(ctx context.Context, number int) error {
	if len(k.check.Views) == 0 {
		return nil // nothing was seen that could be compared
	}
	w, x := k.w, k.w.l.x
	against := *k.spec.Compare
	c := &browser.Comparison{Base: cmp.Or(against.Base, w.t.Base), Verdict: browser.Unverified}
	k.check.Compare = c
	commit, from, err := w.baseCommit(ctx, against.Base, gitd.Hash(k.check.Commit))
	if errors.Is(err, gitd.ErrNotFound) || errors.Is(err, gitd.ErrInvalid) || errors.Is(err, record.ErrInvalid) {
		c.Reason = err.Error()
		return nil
	}
	if err != nil {
		return err
	}
	c.Commit, c.Tree = string(commit.Hash), string(commit.Tree)
	var b baseline
	if c.Tree == k.check.Tree && k.check.Verdict != browser.Unverified {
		// Nothing changed: the base is what was just looked at.
		if b, err = k.asBaseline(); err != nil {
			return err
		}
		c.Cached = true
	} else if b, err = x.readBaseline(ctx, w.t.Repo, baselineKey(k.check, c.Tree, k.spec)); err == nil {
		c.Cached = true
	} else if errors.Is(err, gitd.ErrNotFound) {
		b, err = k.lookAtBase(ctx, commit, from, number)
	}
	if err != nil {
		return err
	}
	c.Verdict, c.Reason = b.Verdict, b.Reason
	for i := range k.check.Views {
		if err := k.compareView(&k.check.Views[i], b, against, c); err != nil {
			return err
		}
	}
	return nil
}

// compareView compares one viewport with the base's.
func (k *look) compareView(v *browser.View, b baseline, against browser.Against, c *browser.Comparison) error {
	name := v.Viewport.Name
	var before baselineView
	if i := slices.IndexFunc(b.Views, func(v baselineView) bool { return v.Viewport == name }); i >= 0 {
		before = b.Views[i]
	}
	read := func(file string) ([]byte, error) {
		if file == "" {
			return nil, nil
		}
		return os.ReadFile(filepath.Join(k.part, keptFolder, name, path.Base(file)))
	}
	after, err := read(v.Screenshot)
	if err != nil {
		return err
	}
	aria, err := read(v.Aria)
	if err != nil {
		return err
	}
	d, triptych := browser.Compare(before.picture, after, before.aria, string(aria), against.Threshold)
	d.Viewport, d.After, d.Before, d.Picture = name, v.Screenshot, "", ""
	for _, picture := range []struct {
		name    string
		content []byte
		in      *string
	}{{"before.png", before.picture, &d.Before}, {"triptych.png", triptych, &d.Picture}} {
		if picture.content == nil {
			continue
		}
		to := filepath.Join(k.part, keptFolder, name)
		if err := errors.Join(os.MkdirAll(to, 0o700), os.WriteFile(filepath.Join(to, picture.name), picture.content, 0o600)); err != nil {
			return err
		}
		*picture.in = path.Join(k.dir, name, picture.name)
	}
	c.Views = append(c.Views, d)
	if most := against.MaxChanged; most != nil && d.Changed > *most && before.picture != nil && after != nil {
		reason := fmt.Sprintf("%s differs from %s (%.10s) by %.2f %% of its pixels, allowed are %.2f %%", name, c.Base, c.Commit, 100*d.Changed, 100**most)
		v.Verdict, v.Reason = browser.Fail, reason
		if k.check.Verdict == browser.Pass {
			k.check.Verdict, k.check.Reason = browser.Fail, reason
		}
	}
	return nil
}

// baseCommit finds what a check is compared with, and the branch that it is on: the
// commit that the caller's branch began at, or one that its container may read.
func (w *work) baseCommit(ctx context.Context, name string, tip gitd.Hash) (c gitd.Commit, branch string, err error) {
	repo, own := w.t.Repo, w.t.Caller.Branch()
	if name == "" {
		at, err := repo.MergeBase(ctx, "refs/heads/"+w.t.Base, string(tip))
		if errors.Is(err, gitd.ErrNotFound) || err == nil && at == tip {
			at, err = w.l.claim.BaseCommit, nil // its base was rewritten, or has it already
		}
		if err != nil {
			return c, "", err
		}
		c, err = repo.Commit(ctx, string(at))
		return c, w.t.Base, err
	}
	at, err := repo.Resolve(ctx, "refs/heads/"+name)
	if errors.Is(err, gitd.ErrNotFound) || errors.Is(err, gitd.ErrInvalid) {
		at, err = repo.Resolve(ctx, name)
	}
	if err != nil {
		return c, "", err
	}
	for _, branch := range []string{w.t.Base, own} {
		end, err := repo.Resolve(ctx, "refs/heads/"+branch)
		if err != nil {
			return c, "", err
		}
		if yes, err := repo.Descends(ctx, end, at); err != nil {
			return c, "", err
		} else if yes {
			c, err = repo.Commit(ctx, string(at))
			return c, branch, err
		}
	}
	return c, "", fmt.Errorf("%w base %.100q: it is neither on %s nor on %s, which is all that the container may read", record.ErrInvalid, name, w.t.Base, own)
}

// asBaseline is what was just seen, as it would be kept.
func (k *look) asBaseline() (baseline, error) {
	b := baseline{Verdict: k.check.Verdict, Reason: k.check.Reason, Commit: k.check.Commit, Tree: k.check.Tree, Run: k.w.l.claim.Name(),
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

// lookAtBase looks at a commit in a container of its own, in which nothing of the
// caller's has been, and keeps what it saw. What cannot be looked at is a baseline that says so.
func (k *look) lookAtBase(ctx context.Context, commit gitd.Commit, branch string, number int) (b baseline, err error) {
	w, x := k.w, k.w.l.x
	part := filepath.Join(k.part, "base")
	if err := os.MkdirAll(filepath.Join(part, keptFolder), 0o700); err != nil {
		return b, err
	}
	at, release, err := w.apart(ctx, commit.Hash, branch, number)
	if cause := context.Cause(ctx); cause != nil {
		if err == nil {
			release()
		}
		return b, cause
	}
	if err != nil {
		return baseline{Verdict: browser.Unverified, Reason: "the base could not be looked at: " + err.Error()}, nil
	}
	defer release()
	o := &look{w: at, shell: &taskShell{w: at, timeout: k.timeout}, spec: k.spec, timeout: k.timeout, part: part, dir: "base", secrets: x.Secrets.With(typed(k.spec))}
	o.check = browser.Check{Name: k.check.Name, Commit: string(commit.Hash), Tree: string(commit.Tree), Started: x.Now().UTC(),
		Images: []browser.Image{{Role: "task", Name: cmp.Or(at.image, x.Fleet.Engine.Name())}}}
	err = o.run(ctx)
	if err != nil && context.Cause(ctx) == nil {
		// Only the base's own container is lost with it.
		o.check.Verdict, o.check.Reason, err = browser.Unverified, "the base could not be looked at: "+err.Error(), nil
	}
	if err != nil {
		return b, err
	}
	o.check.Reason = o.secrets.String(o.check.Reason)
	if b, err = o.asBaseline(); err != nil {
		return b, err
	}
	o.remember(ctx, b)
	return b, nil
}

// apart is the step in a container of its own, on a commit that a branch of the caller's grant has.
func (w *work) apart(ctx context.Context, commit gitd.Hash, branch string, number int) (_ *work, release func(), err error) {
	x := w.l.x
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", w.l.claim.Name(), w.s.ID, number))
	key := basePrefix + hex.EncodeToString(sum[:10])
	t := x.newTarget(record.Caller{}, w.t.Repo, w.t.Base)
	ctx, cancel := context.WithTimeout(ctx, baseWait)
	defer cancel()
	lease, err := t.OpenScratch(ctx, worktree.Scratch{
		Key:     key,
		Image:   cmp.Or(w.l.image(), x.Image),
		Branch:  branch,
		Commit:  commit,
		Door:    w.baseDoor(key),
		Furnish: true,
	})
	if err != nil {
		return nil, nil, err
	}
	return &work{l: w.l, t: t, host: lease.Host, image: lease.Container.Image, s: w.s, id: w.id, before: commit, head: &head{at: commit}},
		func() { t.CloseScratch(lease, key) }, nil
}

// baseDoor lets the base's container read what the caller's may, write nothing, and
// reach the hosts that are allowed; the run hears of those.
func (w *work) baseDoor(key string) http.Handler {
	x, t := w.l.x, w.t
	git := x.Git.GrantHandler(gitd.Grant{Subject: key, Repo: t.Repo.Name(), Read: []string{"refs/heads/" + t.Base, "refs/heads/" + t.Caller.Branch()},
		Scopes:  []string{gitd.ScopeRead},
		Expires: x.Now().AddDate(1, 0, 0)}) // not a bound: the grant ends with the connection
	return worktree.ScratchDoor(t.Repo, git, &egress.Proxy{Allow: x.Egress, Private: x.PrivateEgress, Tell: t.tell})
}

// remember keeps what was seen for later checks that are compared with it. A check is as
// good without: what cannot be kept is looked at again. Only looks at a base are kept: in
// a caller's own container files that git does not see may have made the page look otherwise.
func (k *look) remember(ctx context.Context, b baseline) {
	if p, err := parsePage(k.spec.URL); err != nil || !p.local || b.Verdict == browser.Unverified || len(b.Views) == 0 {
		return // what a page elsewhere is like does not follow from the tree
	}
	repo := k.w.t.Repo
	name := baselineRefs + "/" + baselineKey(k.check, k.check.Tree, k.spec)
	err := k.w.l.x.writeBaseline(ctx, repo, name, b)
	if err != nil && !errors.Is(err, gitd.ErrConflict) && ctx.Err() == nil {
		k.w.l.x.Log.Warn("what a browser saw cannot be kept to be compared with", "repo", repo.Name(), "err", err)
	}
}

func (x *Executor) writeBaseline(ctx context.Context, repo *gitd.Repo, name string, b baseline) error {
	if _, err := repo.Resolve(ctx, name); err == nil {
		return nil // somebody saw the same
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
	commit, err := repo.WriteCommit(ctx, gitd.NewCommit{Put: put, Author: x.Bot, When: x.Now(),
		Message: fmt.Sprintf("%.10s in a browser: %s\n\n%s: %s\n", b.Commit, b.Verdict, record.TrailerRun, b.Run)})
	if err != nil {
		return err
	}
	none := gitd.Hash("")
	if err := repo.Update(ctx, gitd.RefUpdate{Name: name, New: commit, Old: &none}); err != nil {
		return err
	}
	return x.pruneBaselines(ctx, repo)
}

// readBaseline finds what was seen before; otherwise the error is gitd.ErrNotFound.
func (x *Executor) readBaseline(ctx context.Context, repo *gitd.Repo, key string) (b baseline, err error) {
	at, err := repo.Resolve(ctx, baselineRefs+"/"+key)
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

// pruneBaselines removes the oldest looks of a repository when there are too many.
func (x *Executor) pruneBaselines(ctx context.Context, repo *gitd.Repo) error {
	refs, err := repo.Refs(ctx, baselineRefs)
	kept := cmp.Or(x.baselinesKept, baselinesKept)
	if err != nil || len(refs) <= kept+kept/10 {
		return err
	}
	made := make(map[gitd.Hash]time.Time, len(refs))
	for _, r := range refs {
		c, err := repo.Commit(ctx, string(r.Hash))
		if err != nil {
			return err
		}
		made[r.Hash] = c.When
	}
	slices.SortFunc(refs, func(a, b gitd.Ref) int {
		return cmp.Or(made[b.Hash].Compare(made[a.Hash]), strings.Compare(a.Name, b.Name))
	})
	var updates []gitd.RefUpdate
	for _, r := range refs[kept:] {
		updates = append(updates, gitd.RefUpdate{Name: r.Name})
	}
	return repo.Update(ctx, updates...)
}
