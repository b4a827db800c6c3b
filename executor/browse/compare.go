package browse

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// compare compares the check with a look at the base, which it finds or takes.
func (k *look) compare(ctx context.Context, number int) error {
	if len(k.check.Views) == 0 {
		return nil // nothing was seen that could be compared
	}
	step := k.step
	against := *k.spec.Compare
	c := &browser.Comparison{Base: cmp.Or(against.Base, step.Tree.Base), Verdict: browser.Unverified}
	k.check.Compare = c
	commit, from, err := step.baseCommit(ctx, against.Base, gitd.Hash(k.check.Commit))
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
		// Nothing changed, so this look is one at the base.
		if b, err = k.asBaseline(); err != nil {
			return err
		}
		c.Cached = true
	} else {
		b, c.Cached, err = k.baselineOf(ctx, commit, from, number)
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

// baselineOf returns the look at a commit. It takes the look if there is none yet.
func (k *look) baselineOf(ctx context.Context, commit gitd.Commit, branch string, number int) (b baseline, cached bool, err error) {
	key := baselineKey(k.check, string(commit.Tree), k.spec)
	b, err = readBaseline(ctx, k.step.Tree.Repo, key)
	if !errors.Is(err, gitd.ErrNotFound) {
		return b, err == nil, err
	}
	release, err := k.in.takeTurn(ctx)
	if err != nil {
		return b, false, err
	}
	defer release()
	b, err = readBaseline(ctx, k.step.Tree.Repo, key) // a check before this one may have taken it
	if !errors.Is(err, gitd.ErrNotFound) {
		return b, err == nil, err
	}
	b, err = k.lookAtBase(ctx, commit, branch, number)
	return b, false, err
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
	d, triptych := browser.Compare(before.picture, after, before.aria, string(aria), against,
		v.Viewport.Scale)
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
		reason := fmt.Sprintf("%s differs from %s (%.10s) by %.2f %% of its pixels, allowed are %.2f %%", name, c.Base,
			c.Commit, 100*d.Changed, 100**most)
		v.Verdict, v.Reason = browser.Fail, reason
		if k.check.Verdict == browser.Pass {
			k.check.Verdict, k.check.Reason = browser.Fail, reason
		}
	}
	return nil
}

// baseCommit returns the commit that a check is compared with, and the branch that it is on. It is the commit that the caller's branch began at,
// or the named one, which the caller's container must be allowed to read.
func (step Step) baseCommit(ctx context.Context, name string, tip gitd.Hash) (c gitd.Commit, branch string, err error) {
	repo, own := step.Tree.Repo, step.Tree.Caller.Branch()
	if name == "" {
		at, err := repo.MergeBase(ctx, "refs/heads/"+step.Tree.Base, string(tip))
		if errors.Is(err, gitd.ErrNotFound) || err == nil && at == tip {
			at, err = step.Claim.BaseCommit, nil // its base was rewritten, or has it already
		}
		if err != nil {
			return c, "", err
		}
		c, err = repo.Commit(ctx, string(at))
		return c, step.Tree.Base, err
	}
	at, err := repo.Resolve(ctx, "refs/heads/"+name)
	if errors.Is(err, gitd.ErrNotFound) || errors.Is(err, gitd.ErrInvalid) {
		at, err = repo.Resolve(ctx, name)
	}
	if err != nil {
		return c, "", err
	}
	for _, branch := range []string{step.Tree.Base, own} {
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
	return c, "", fmt.Errorf("%w base %.100q: it is neither on %s nor on %s, which is all that the container may read",
		record.ErrInvalid, name, step.Tree.Base, own)
}

// lookAtBase looks at a commit in a scratch container, which has no files of the caller, and keeps the result. A
// commit that cannot be looked at has a baseline with the reason.
func (k *look) lookAtBase(ctx context.Context, commit gitd.Commit, branch string, number int) (b baseline, err error) {
	step, in := k.step, k.in
	part := filepath.Join(k.part, "base")
	if err := os.MkdirAll(filepath.Join(part, keptFolder), 0o700); err != nil {
		return b, err
	}
	scratch, release, err := step.Scratch(ctx, commit.Hash, branch, number)
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
	o := &look{in: in, step: scratch, spec: k.spec, timeout: k.timeout, part: part, dir: "base",
		secrets: in.Secrets.With(Typed(k.spec))}
	o.check = browser.Check{Name: k.check.Name, Commit: string(commit.Hash), Tree: string(commit.Tree),
		Started: in.Now().UTC(),
		Images:  []browser.Image{in.image(scratch)}}
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
