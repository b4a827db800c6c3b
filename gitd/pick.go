package gitd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/object"
)

// maxPicks bounds the commits of a [PickRequest].
const maxPicks = 1000

// PickRequest asks to bring the changes of commits to a branch, or to take them out of it.
type PickRequest struct {
	// Into is the name of the branch. Its ref is changed by compare-and-swap.
	Into string
	// Commits are applied in this order. Each is compared with its first parent.
	Commits []Hash
	// Reverse takes the changes out, those of the last commit first, by one commit. Otherwise each commit becomes a
	// commit on the branch with its author and its message, as git cherry-pick makes it, and must not be a merge.
	Reverse bool
	// Message and Author are those of the commit of Reverse.
	Message           string
	Author, Committer Person    // an empty Author means the Committer
	When              time.Time // zero means now
}

// Pick brings the changes of commits to a branch, or takes them out of it, without a work tree. Changes that the branch
// has already, or has no longer, are left out. Conflicts are a result and no error. Nothing is changed then, and At is
// the commit that conflicts.
func (r *Repo) Pick(ctx context.Context, p PickRequest) (MergeResult, error) {
	res, err := r.pick(ctx, p)
	if err != nil {
		return MergeResult{}, fmt.Errorf("cannot %s %.200q of %s: %w", p.verb(), p.Into, r.name,
			gitcmd.ExplainFullDisk(err, r.dir))
	}
	return res, nil
}

// PickOnto computes Pick on a commit, durably, and changes no ref. Into is not used.
func (r *Repo) PickOnto(ctx context.Context, p PickRequest, onto Hash) (MergeResult, error) {
	err := r.preparePick(ctx, &p)
	var res MergeResult
	if err == nil {
		res, err = r.pickOnce(ctx, p, "", onto)
	}
	if err != nil {
		return MergeResult{}, fmt.Errorf("cannot %s %.40s of %s: %w", p.verb(), onto, r.name,
			gitcmd.ExplainFullDisk(err, r.dir))
	}
	return res, nil
}

// verb returns the verb of the errors about a request.
func (p PickRequest) verb() string {
	if p.Reverse {
		return fmt.Sprintf("take %d commits out of", len(p.Commits))
	}
	return fmt.Sprintf("bring %d commits to", len(p.Commits))
}

// preparePick checks a request and fills in defaults.
func (r *Repo) preparePick(ctx context.Context, p *PickRequest) error {
	if len(p.Commits) == 0 || len(p.Commits) > maxPicks {
		return fmt.Errorf("%d commits: want 1 to %d: %w", len(p.Commits), maxPicks, ErrInvalid)
	}
	for _, h := range p.Commits {
		if err := CheckHash(h); err != nil {
			return err
		}
	}
	if p.Committer == (Person{}) {
		return fmt.Errorf("there is no committer: %w", ErrInvalid)
	}
	if p.Author == (Person{}) {
		p.Author = p.Committer
	}
	if p.Reverse && cleanMessage(p.Message) == "" {
		return fmt.Errorf("there is no message: %w", ErrInvalid)
	}
	if p.When.IsZero() {
		p.When = r.server.now()
	}
	return r.needSHA1(ctx)
}

func (r *Repo) pick(ctx context.Context, p PickRequest) (MergeResult, error) {
	into, err := branchRef(p.Into)
	if err != nil {
		return MergeResult{}, err
	}
	if err := r.preparePick(ctx, &p); err != nil {
		return MergeResult{}, err
	}
	done, err := takeTurn(ctx, r.merging)
	if err != nil {
		return MergeResult{}, err
	}
	defer done()
	for try := 1; ; try++ {
		ours, err := r.branchTip(ctx, into)
		if err != nil {
			return MergeResult{}, err
		}
		res, err := r.pickOnce(ctx, p, into, ours)
		if !errors.Is(err, errMoved) || try == mergeTries {
			return res, err
		}
	}
}

// pickOnce applies the commits to ours, and moves the ref into to the result. It moves nothing if into is empty.
func (r *Repo) pickOnce(ctx context.Context, p PickRequest, into string, ours Hash) (MergeResult, error) {
	res := MergeResult{Old: ours}
	sc, err := r.newMergeScratch()
	if err != nil {
		return res, err
	}
	defer sc.remove()
	if p.Reverse {
		res.Commit, res.Conflicts, res.At, err = sc.takeOut(ctx, p, ours)
	} else {
		res.Commit, res.Conflicts, res.At, err = sc.bring(ctx, p, ours)
	}
	if err != nil || res.Conflicts != nil {
		return res, err
	}
	if res.Commit == ours {
		res.Merged, res.UpToDate = true, true
		return res, nil
	}

	err = sc.publish(ctx, into, &res)
	return res, err
}

// bring applies commits to tip, one by one.
func (sc *mergeScratch) bring(ctx context.Context, p PickRequest,
	tip Hash) (_ Hash, conflicts []string, at Hash, err error) {
	onto, err := sc.r.objects.TreeOf(ctx, tip)
	if err != nil {
		return "", nil, "", err
	}
	for _, h := range p.Commits {
		pick, err := sc.r.objects.ReadCommit(ctx, h)
		if err != nil {
			return "", nil, "", err
		}
		if len(pick.Parents) > 1 {
			return "", nil, "", fmt.Errorf("%.10s is a merge: %w", h, ErrInvalid)
		}
		if err := sc.writeAttributes(ctx, onto); err != nil {
			return "", nil, "", err
		}
		tree, conflicts, err := sc.applyPick(ctx, pick, h, onto)
		if err != nil || conflicts != nil {
			return "", conflicts, h, err
		}
		if tree == onto {
			continue // the branch has it
		}
		pick.Tree, pick.Parents, pick.Committer = tree, []Hash{tip}, p.Committer.Signature(p.When)
		if tip, err = sc.writeMade(pick); err != nil {
			return "", nil, "", err
		}
		onto = tree
	}
	return tip, nil, "", nil
}

// takeOut takes the changes of commits out of tip, by one commit.
func (sc *mergeScratch) takeOut(ctx context.Context, p PickRequest,
	tip Hash) (_ Hash, conflicts []string, at Hash, err error) {
	before, err := sc.r.objects.TreeOf(ctx, tip)
	if err != nil {
		return "", nil, "", err
	}
	onto := before
	for _, h := range slices.Backward(p.Commits) {
		pick, err := sc.r.objects.ReadCommit(ctx, h)
		if err != nil {
			return "", nil, "", err
		}
		if err := sc.writeAttributes(ctx, onto); err != nil {
			return "", nil, "", err
		}
		tree, conflicts, err := sc.applyReverse(ctx, pick, h, onto)
		if err != nil || conflicts != nil {
			return "", conflicts, h, err
		}
		onto = tree
	}
	if onto == before {
		return tip, nil, "", nil
	}
	made, err := sc.writeMade(object.RawCommit{Tree: onto, Parents: []Hash{tip}, Author: p.Author.Signature(p.When),
		Committer: p.Committer.Signature(p.When), Message: []byte(cleanMessage(p.Message))})
	return made, nil, "", err
}

// applyReverse takes the change of one commit out of a tree: the merge of the tree with the commit's first parent, with
// the commit itself as the merge base. As in applyPick, both sides become substitutes, here with the commit as their
// parent.
func (sc *mergeScratch) applyReverse(ctx context.Context, pick object.RawCommit, h, onto Hash) (Hash, []string, error) {
	before := object.EmptyTree
	if len(pick.Parents) > 0 {
		var err error
		if before, err = sc.r.objects.TreeOf(ctx, pick.Parents[0]); err != nil {
			return "", nil, err
		}
	}
	if before == onto {
		return onto, nil, nil // git takes two equal substitutes for one commit
	}
	who := Person{Name: "merge", Email: "merge"}.Signature(time.Unix(0, 0))
	var sides [2]Hash
	for i, tree := range []Hash{onto, before} {
		var err error
		sides[i], err = sc.write("commit", object.RawCommit{Tree: tree, Parents: []Hash{h}, Author: who,
			Committer: who}.Encode())
		if err != nil {
			return "", nil, err
		}
		// Only this merge needs it.
		defer sc.forget(sides[i])
	}
	return sc.mergeTree(ctx, sides[0], sides[1])
}
