package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Host is a service at which repositories have upstreams, and that takes pull requests.
type Host interface {
	// Writer returns the upstream of a repository, with the credential that may write there. ok is false if the upstream
	// is not at this host, or if the host is not configured to be written to.
	Writer(repo string) (up gitd.Upstream, ok bool)
	// Propose pushes a commit to a branch of upstream and opens a pull request for it. If the branch has an open pull
	// request, Propose brings that one up to date. It may be repeated after any failure.
	Propose(ctx context.Context, p Proposal) (record.Pull, error)
}

// Sweeper is the ability of a [Host] to remove branches that it pushed to upstream.
type Sweeper interface {
	// Sweep removes the branch of upstream that was pushed for a caller, if its pull request was merged and nobody has
	// pushed to the branch since. It returns the name of the branch, and "" if there is none to remove. With dry it
	// removes nothing.
	Sweep(ctx context.Context, repo string, c record.Caller, dry bool) (branch string, err error)
}

// Sweep has each [Host] that is a [Sweeper] remove the branch of a caller.
func (b *Bases) Sweep(ctx context.Context, repo string, c record.Caller, dry bool) (branches []string, err error) {
	for _, h := range b.Hosts {
		s, able := h.(Sweeper)
		if !able {
			continue
		}
		branch, err := s.Sweep(ctx, repo, c, dry)
		if err != nil {
			return branches, err
		}
		if branch != "" {
			branches = append(branches, branch)
		}
	}
	return branches, nil
}

// Proposal asks for a pull request.
type Proposal struct {
	Repo   *gitd.Repo
	Caller record.Caller
	// Commit is the tip of the caller's branch.
	Commit gitd.Hash
	// Into is the branch that the pull request is for, by its name in this server. Base is its name at upstream.
	Into, Base string
	Title      string // in one line
	By         gitd.Person
	ByID       string // see [record.Merge.ByID]
}

// Landing asks to bring a caller's branch into a branch of its repository.
type Landing struct {
	Repo   *gitd.Repo
	Caller record.Caller
	// Merge has the branch and the strategy, which are not empty here.
	record.Merge
	Committer gitd.Person
	// Pick brings commits to the branch, or takes them out of it, in place of a merge of the caller's branch. Its Into,
	// Committer and When are set by Land. It cannot become a pull request.
	Pick *gitd.PickRequest
}

// Bounds of landings.
const (
	landTries  = 10               // while upstream moves
	hereTries  = 10               // while the branch here moves
	landWithin = 10 * time.Minute // a merge with its push, and the wait for others
	settleIn   = time.Minute      // for the branch here to follow, after upstream has the merge
)

// Land brings a caller's branch to the place that the policy of the repository names. It is the only way of a caller's
// work into a branch that upstream has. The policies are
//
//   - [record.MergePush]: the merge is computed on upstream's newest commit and pushed. Only then the branch here
//     follows. If upstream moved meanwhile, Land begins again. If upstream refuses the push, nothing is merged.
//   - [record.MergePull]: a pull request is opened, or brought up to date. Nothing is merged.
//   - [record.MergeHere]: the branch here is changed, and upstream is not asked.
//
// A conflict is a result and no error.
func (b *Bases) Land(ctx context.Context, l Landing) (record.Landed, error) {
	p, err := b.policy(ctx, l)
	if err != nil {
		return record.Landed{}, fmt.Errorf("cannot merge %s into %s of %s: %w", l.Caller, l.Into, l.Repo.Name(), err)
	}
	out := record.Landed{Into: l.Into, Policy: p.name, Upstream: p.up.Location()}
	switch p.name {
	case record.MergeHere:
		out.Alone = p.up.URL != ""
		out.MergeResult, err = b.landHere(ctx, l)
	case record.MergePull:
		if l.Pick != nil {
			return out, fmt.Errorf("cannot change %s of %s: the repository takes pull requests alone; "+
				"fork a caller, and propose its branch: %w", l.Into, l.Repo.Name(), record.ErrInvalid)
		}
		err = b.propose(ctx, l, p, &out)
	default:
		err = b.landThere(ctx, l, p, &out)
	}
	if err != nil {
		return out, fmt.Errorf("cannot merge %s into %s of %s: %w", l.Caller, l.Into, l.Repo.Name(), err)
	}
	return out, nil
}

// NotLanded reports whether an error of [Bases.Land] is about upstream or about the policy, and no fault of this server.
func NotLanded(err error) bool {
	for _, kind := range []error{gitd.ErrUpstream, gitd.ErrUpstreamRefused, gitd.ErrConflict, gitd.ErrInvalid,
		gitd.ErrNotFound, gitd.ErrDenied,
		record.ErrInvalid, record.ErrConflict} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// policy is the decision about a landing.
type policy struct {
	name    string
	guessed bool // the configuration does not name it
	up      gitd.Upstream
	branch  string // of upstream
	host    Host   // nil for none
}

// policy returns the meaning of a landing. It depends on the configuration and on the repository, never on its branches.
func (b *Bases) policy(ctx context.Context, l Landing) (p policy, err error) {
	name := l.Repo.Name()
	if strings.HasPrefix(l.Into, record.BranchPrefix) && !l.Propose {
		return policy{name: record.MergeHere}, nil // no branch of upstream
	}
	src := b.Source(name)
	p.up, p.name = src.Upstream, src.Merge
	if p.name == "" && b.Chosen != nil {
		if p.name, err = b.Chosen(ctx, l.Repo, l.Into); err != nil {
			return p, err
		}
	}
	for _, h := range b.Hosts {
		if up, ok := h.Writer(name); ok {
			p.up, p.host = up, h
			break
		}
	}
	if p.up.URL == "" {
		if p.up.URL, err = l.Repo.Upstream(ctx); err != nil {
			return p, err
		}
	}
	if p.branch, err = b.branchThere(ctx, l.Repo, p.up, l.Into); err != nil {
		return p, err
	}
	switch {
	case p.up.URL == "" && p.name != "" && p.name != record.MergeHere:
		return p, fmt.Errorf("repos.%s.merge is %s, but the repository has no upstream: %w", name, p.name, record.ErrInvalid)
	case p.up.URL == "" && l.Propose:
		return p, fmt.Errorf("it has no upstream that could take a pull request: %w", record.ErrInvalid)
	case p.up.URL == "":
		p.name = record.MergeHere
	case l.Propose && p.host == nil:
		return p, fmt.Errorf("nothing is configured that opens pull requests at %s; set the token of its forge (github, gitlab, gitea or bitbucket): %w",
			p.up.Location(), record.ErrInvalid)
	case l.Propose:
		p.name = record.MergePull
	case l.Here && p.name != "" && p.name != record.MergeHere:
		return p, fmt.Errorf("repos.%s.merge is %s, so nothing is merged here alone: %w", name, p.name, record.ErrInvalid)
	case l.Here:
		p.name = record.MergeHere
	case p.name == record.MergePull && p.host == nil:
		return p, fmt.Errorf("repos.%s.merge is %s, but nothing is configured that opens pull requests at %s: "+
			"set the token of its forge (github, gitlab, gitea or bitbucket), or set repos.%s.merge to push or here: %w",
			name, p.name, p.up.Location(), name, record.ErrInvalid)
	case p.name == "" && p.host != nil:
		p.name, p.guessed = record.MergePull, true
	case p.name == "":
		p.name, p.guessed = record.MergePush, true
	}
	return p, nil
}

// branchThere returns the name at upstream of a branch here.
func (b *Bases) branchThere(ctx context.Context, repo *gitd.Repo, up gitd.Upstream, branch string) (string, error) {
	base, err := repo.Base(ctx)
	if err != nil || branch != base {
		return branch, err
	}
	return cmp.Or(up.Branch, base), nil
}

// request returns the merge that a landing asks for.
func (b *Bases) request(l Landing) gitd.MergeRequest {
	return gitd.MergeRequest{From: l.Caller.Branch(), Into: l.Into, Strategy: l.Strategy, Message: l.Message,
		Author: l.By, Committer: l.Committer, When: b.Now()}
}

// picking returns the pick that a landing asks for.
func (b *Bases) picking(l Landing) gitd.PickRequest {
	p := *l.Pick
	p.Into, p.Author, p.Committer, p.When = l.Into, l.By, l.Committer, b.Now()
	return p
}

// computeOnto computes the result of a landing on a commit.
func (b *Bases) computeOnto(ctx context.Context, l Landing, onto gitd.Hash) (gitd.MergeResult, error) {
	if l.Pick != nil {
		return l.Repo.PickOnto(ctx, b.picking(l), onto)
	}
	return l.Repo.MergeOnto(ctx, b.request(l), onto)
}

// computeHere changes the branch here.
func (b *Bases) computeHere(ctx context.Context, l Landing) (gitd.MergeResult, error) {
	if l.Pick != nil {
		return l.Repo.Pick(ctx, b.picking(l))
	}
	return l.Repo.Merge(ctx, b.request(l))
}

func (b *Bases) landHere(ctx context.Context, l Landing) (gitd.MergeResult, error) {
	for try := 1; ; try++ {
		res, err := b.computeHere(ctx, l)
		// Another merge was first. The next try is against its result.
		if !errors.Is(err, gitd.ErrConflict) || try == hereTries {
			return res, err
		}
	}
}

// landThere merges on upstream's newest commit, pushes, and has the branch here follow.
func (b *Bases) landThere(ctx context.Context, l Landing, p policy, out *record.Landed) error {
	ctx, cancel := context.WithTimeoutCause(ctx, landWithin,
		fmt.Errorf("the merge takes longer than %v: %w", landWithin, gitd.ErrUpstream))
	defer cancel()
	release, err := b.of(l.Repo.Name()).acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	if l.Repo.Shallow() { // a merge needs the history
		if _, err := b.refresh(ctx, Deploy{Repo: l.Repo.Name()}, nil, repair{}); err != nil {
			return err
		}
	}
	for out.Tries = 1; ; out.Tries++ {
		there, err := l.Repo.FetchUpstream(ctx, p.up, p.branch)
		if err != nil {
			return err
		}
		onto, err := b.follow(ctx, l.Repo, l.Into, there)
		if err != nil {
			return err
		}
		if out.MergeResult, err = b.computeOnto(ctx, l, onto); err != nil || len(out.Conflicts) > 0 {
			return err
		}
		if out.Commit == there {
			return nil // upstream has all of it
		}
		if b.Landing != nil {
			b.Landing(l.Repo.Name())
		}
		err = l.Repo.PushUpstream(ctx, gitd.UpstreamPush{Upstream: p.up, Branch: p.branch, Commit: out.Commit, Old: &there})
		if errors.Is(err, gitd.ErrConflict) && out.Tries < landTries {
			continue // somebody pushed meanwhile
		}
		if err != nil {
			out.MergeResult = gitd.MergeResult{}
			return b.explainPush(l.Repo.Name(), p, err)
		}
		out.UpToDate = false // upstream may have lacked earlier merges
		return b.settle(ctx, l, out)
	}
}

// explainPush adds to the error of a push the changes that were made, and the keys to configure.
func (b *Bases) explainPush(repo string, p policy, err error) error {
	if errors.Is(err, gitd.ErrConflict) {
		return fmt.Errorf("nothing was merged, because upstream moved at each of %d attempts; try again: %w", landTries, err)
	}
	if !p.guessed {
		return fmt.Errorf("nothing was merged: %w", err)
	}
	return fmt.Errorf("nothing was merged, because the upstream %s does not take the push; "+
		"let ramus push there (repos.%s.ssh_key, or a rule of upstream), have pull requests opened (the token of its forge), "+
		"or merge in this server alone (`--here`, or repos.%s.merge: here): %w", p.up.Location(), repo, repo, err)
}

// follow brings a branch here to upstream's commit, and returns the commit on which to merge. That is a later one if the
// branch here has commits of its own on top. They are pushed along.
func (b *Bases) follow(ctx context.Context, repo *gitd.Repo, branch string, there gitd.Hash) (gitd.Hash, error) {
	ref := "refs/heads/" + branch
	for try := 1; ; try++ {
		here, err := repo.Resolve(ctx, ref)
		if err != nil {
			return "", err
		}
		if ahead, err := repo.Descends(ctx, here, there); err != nil || ahead {
			return here, err
		}
		if behind, err := repo.Descends(ctx, there, here); err != nil {
			return "", err
		} else if !behind {
			return "", fmt.Errorf("%s is at %s, upstream at %s, and neither contains the other: %w", branch, here,
				there, gitd.ErrDiverged)
		}
		err = repo.Update(ctx, gitd.RefUpdate{Name: ref, New: there, Old: &here})
		if err == nil {
			b.Moved(repo.Name(), branch, there)
			return there, nil
		}
		if !errors.Is(err, gitd.ErrConflict) || try == hereTries {
			return "", err
		}
	}
}

// settle has the branch here follow upstream, which has the merge. That is done even if the client has gone. If it fails,
// the next refresh does it.
func (b *Bases) settle(ctx context.Context, l Landing, out *record.Landed) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleIn)
	defer cancel()
	old, err := l.Repo.Resolve(ctx, "refs/heads/"+l.Into)
	if err == nil {
		_, err = b.follow(ctx, l.Repo, l.Into, out.Commit)
	}
	if err != nil {
		b.Log.Warn("upstream has a merge that the branch here has not", "repo", l.Repo.Name(), "branch", l.Into,
			"commit", out.Commit, "err", err)
		out.Note = fmt.Sprintf("%s here does not have it yet: `ramus repo refresh %s`", l.Into, l.Repo.Name())
		return nil
	}
	if base, err := l.Repo.Base(ctx); err != nil || base != l.Into {
		return nil
	}
	moved := gitd.Refreshed{Branch: l.Into, Old: old, New: out.Commit, Commit: out.Commit}
	if _, err := b.keepManifest(ctx, l.Repo, Deploy{Repo: l.Repo.Name()}, moved); err != nil {
		b.Log.Warn("cannot keep a manifest of a base that was merged into", "repo", l.Repo.Name(), "err", err)
	}
	return nil
}

// propose opens a pull request, or brings it up to date.
func (b *Bases) propose(ctx context.Context, l Landing, p policy, out *record.Landed) error {
	ctx, cancel := context.WithTimeoutCause(ctx, landWithin,
		fmt.Errorf("the pull request takes longer than %v: %w", landWithin, gitd.ErrUpstream))
	defer cancel()
	tip, err := l.Repo.Resolve(ctx, "refs/heads/"+l.Caller.Branch())
	if err != nil {
		return err
	}
	base, err := l.Repo.Resolve(ctx, "refs/heads/"+l.Into)
	if err != nil {
		return err
	}
	out.Old = base
	if known, err := l.Repo.Descends(ctx, base, tip); err != nil {
		return err
	} else if known {
		out.Merged, out.UpToDate, out.Commit = true, true, base
		return nil
	}
	title, _, _ := strings.Cut(strings.TrimSpace(l.Message), "\n")
	if title == "" {
		c, err := l.Repo.Commit(ctx, string(tip))
		if err != nil {
			return err
		}
		title = c.Subject
	}
	pull, err := p.host.Propose(ctx, Proposal{Repo: l.Repo, Caller: l.Caller, Commit: tip, Into: l.Into, Base: p.branch,
		Title: title, By: l.By, ByID: l.ByID})
	if err != nil {
		return err
	}
	out.Pull = &pull
	if l.Delete {
		out.Note = "the branch and the container stay until then"
	}
	return nil
}
