package engineer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// look reads the pull request of the task and journals all news. It uses only the current state at the forge. The order
// and number of deliveries do not matter.
func (j *job) look(ctx context.Context) error {
	select {
	case j.engineer.looking <- struct{}{}:
		defer func() { <-j.engineer.looking }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	t, past, err := j.now(ctx)
	if err != nil {
		return err
	}
	j.looked = j.engineer.Now() // set even if there is no pull request, because the job would call look forever otherwise
	_, at, ok := j.engineer.upstream(t.Repo)
	if !ok || t.PRNumber == 0 {
		return nil
	}
	pull, err := at.Forge.Pull(ctx, at.Name, t.PRNumber)
	if errors.Is(err, forge.ErrNotFound) && !t.Ended() {
		return j.fail(ctx, record.ReasonBadInput,
			fmt.Sprintf("the pull request %s is not there any more, or is hidden from ramus", t.PRURL),
			record.Event{Type: record.EventHeard, Kind: heardClosed})
	}
	if err != nil {
		return err
	}
	switch {
	case pull.Merged && !past.merged:
		return j.merged(ctx, t)
	case pull.Merged:
		return nil
	case !pull.Open && !past.closed && !t.Ended():
		return j.fail(ctx, record.ReasonCancelled, "the pull request was closed without being merged",
			record.Event{Type: record.EventHeard, Kind: heardClosed})
	case !pull.Open:
		return nil
	case past.closed:
		return j.reopened(ctx)
	}
	if t.Ended() {
		return nil
	}
	items, comments, approved, err := j.listen(ctx, t, past, at)
	if err != nil {
		return err
	}
	events, err := j.shareLines(ctx, t, past, at, comments)
	if err != nil {
		return err
	}
	for _, i := range items {
		if !past.known[i.Key] {
			events = append(events, heard(i))
		}
	}
	if len(events) == 0 && approved == t.Approved {
		return nil
	}
	return j.amend(ctx, func(t *record.Task) { t.Approved = approved }, events...)
}

// listen returns the feedback on a pull request that ramus has to address, all comments of those whose words count and of ramus itself, and
// whether the pull request is approved.
func (j *job) listen(ctx context.Context, t record.Task, past history, at forge.Repo) (items []item, all []forge.Comment, approved bool, err error) {
	me, err := at.Forge.Me(ctx)
	if err != nil {
		return nil, nil, false, err
	}
	// Words of bots do not count, because two bots could answer each other forever.
	counts := func(user string, bot bool) (bool, error) {
		if bot || user == "" || strings.EqualFold(user, me) {
			return false, nil
		}
		return j.mayWrite(ctx, at, user)
	}
	reviews, err := at.Forge.Reviews(ctx, at.Name, t.PRNumber)
	if err != nil {
		return nil, nil, false, err
	}
	verdicts := map[string]string{}
	for _, r := range reviews {
		yes, err := counts(r.User, r.Bot)
		if err != nil {
			return nil, nil, false, err
		}
		if !yes {
			continue
		}
		if r.State != forge.ReviewCommented {
			verdicts[r.User] = r.State
		}
		if r.State == forge.ReviewChanges || r.State == forge.ReviewCommented && j.isMentioned(r.Body) {
			r.Body = text.Clip(r.Body, maxSaid)
			items = append(items, item{Key: key("review", r.ID), By: r.User, Review: &r})
		}
	}
	for _, v := range verdicts {
		approved = approved || v == forge.ReviewApproved
	}
	for _, v := range verdicts {
		approved = approved && v != forge.ReviewChanges
	}
	comments, err := at.Forge.Comments(ctx, at.Name, t.PRNumber)
	if err != nil {
		return nil, nil, false, err
	}
	for _, c := range comments {
		if strings.EqualFold(c.User, me) {
			c.Bot = true
			all = append(all, c)
			continue
		}
		if !c.Issue && !c.Bot && c.User != "" {
			if yes, err := counts(c.User, c.Bot); err != nil {
				return nil, nil, false, err
			} else if yes {
				all = append(all, c)
			}
		}
		if past.known[key("comment", c.ID)] || past.known[key("issue-comment", c.ID)] || c.Issue && !j.isMentioned(c.Body) {
			continue
		}
		yes, err := counts(c.User, c.Bot)
		if err != nil {
			return nil, nil, false, err
		}
		if yes {
			kind := "comment"
			if c.Issue {
				kind = "issue-comment" // GitHub numbers them separately
			}
			c.Body, c.DiffHunk = text.Clip(c.Body, maxSaid), text.ClipEnd(c.DiffHunk, maxHunk)
			items = append(items, item{Key: key(kind, c.ID), By: c.User, Comment: &c})
		}
	}
	if past.pushed == "" || j.engineer.settings().Repairs < 0 {
		return items, all, approved, nil
	}
	checks, err := at.Forge.Checks(ctx, at.Name, string(past.pushed))
	if err != nil {
		return nil, nil, false, err
	}
	for _, c := range checks {
		if c.Failed() {
			c.Name, c.Title = firstOf(c.Name), firstOf(c.Title)
			c.Summary, c.Text = text.Clip(c.Summary, maxHunk), text.Clip(c.Text, maxHunk)
			items = append(items, item{Key: key("check", c.ID), Check: &c})
		}
	}
	return items, all, approved, nil
}

// Limits of the kept text of one item, in bytes. The journal of a task holds all items, and the prompt of an agent
// holds this much of each.
const (
	maxSaid = 20_000
	maxHunk = 6_000
)

func key(kind string, id int64) string { return kind + ":" + strconv.FormatInt(id, 10) }

// isMentioned reports whether a text contains the mention of ramus as a separate word.
func (j *job) isMentioned(text string) bool {
	lower, word := strings.ToLower(text), strings.ToLower(j.engineer.settings().Mention)
	for from := 0; ; {
		i := strings.Index(lower[from:], word)
		if i < 0 {
			return false
		}
		i += from
		from = i + len(word)
		before, after := lower[:i], lower[from:]
		if (before == "" || !isWordByte(before[len(before)-1])) && (after == "" || !isWordByte(after[0])) {
			return true
		}
	}
}

func isWordByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= '0' && b <= '9' || b == '_' || b == '-' || b == '/' || b >= 0x80
}

// permissionLasts is how long an answer about write access is reused.
const permissionLasts = 5 * time.Minute

// mayWrite reports whether a user may write to the repository. Only a user who could push a change may ask for it.
func (j *job) mayWrite(ctx context.Context, at forge.Repo, user string) (bool, error) {
	login := strings.ToLower(user)
	if m, ok := j.writers[login]; ok && j.engineer.Now().Sub(m.at) < permissionLasts {
		return m.yes, nil
	}
	yes, err := at.Forge.CanWrite(ctx, at.Name, user)
	if err != nil {
		return false, err
	}
	if !yes {
		j.engineer.Log.Info("words of somebody who may not write to the repository are left alone", "task", j.id,
			"user", user)
	}
	j.writers[login] = mayWrite{yes, j.engineer.Now()}
	return yes, nil
}

// merged ends the task as complete. The base follows, and the branches go if they are not to be kept.
func (j *job) merged(ctx context.Context, t record.Task) error {
	if err := j.clear(ctx, t); err != nil {
		return err
	}
	number := ":" + strconv.Itoa(t.PRNumber) // a branch may be proposed again after the merge
	events := []record.Event{{Type: record.EventHeard, Kind: heardMerged}}
	events = append(events, j.toSlack("merged"+number, render.TaskMerged(t))...)
	events = append(events, j.toTicket(t, "merged"+number, "The pull request is merged: "+t.PRURL, "")...)
	if j.engineer.settings().DeleteBranch {
		events = append(events, j.toForge("unbranch"+number, message{Kind: mailUnbranch})...)
	}
	_, past, err := j.now(ctx)
	if err != nil {
		return err
	}
	if j.engineer.settings().DeleteEvidence && past.evidence() != "" {
		events = append(events, j.toForge("unbranch-evidence"+number,
			message{Kind: mailUnbranch, Text: evidenceBranch(t)})...)
	}
	if err := j.amend(ctx, func(t *record.Task) { t.Status, t.Error = record.StateComplete, "" }, events...); err != nil {
		return err
	}
	j.engineer.refreshLater(t.Repo) // a webhook may not have come
	return nil
}

// unbranch removes the branch of a task that was merged, here and at the forge.
func (j *job) unbranch(ctx context.Context, t record.Task, past history, at forge.Repo) error {
	if !t.Ended() {
		return fmt.Errorf("%w: the branch was proposed again", forge.ErrRefused)
	}
	if err := j.dropBranch(ctx, t, past.pushed); err != nil {
		j.engineer.Log.Warn("cannot remove the branch of a task that was merged; `ramus prune` does", "task",
			t.ID, "err", err)
	}
	return at.Forge.DeleteBranch(ctx, at.Name, t.Branch)
}

// dropBranch removes the branch of a task here, unless it has commits that the pull request did not have. The runs keep
// its commits.
func (j *job) dropBranch(ctx context.Context, t record.Task, pushed gitd.Hash) error {
	repo, err := j.engineer.Git.Repo(t.Repo)
	if err != nil || pushed == "" {
		return err
	}
	ref := "refs/heads/" + t.Caller().Branch()
	tip, err := repo.Resolve(ctx, ref)
	if errors.Is(err, gitd.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if all, err := repo.Descends(ctx, pushed, tip); err != nil || !all {
		return err
	}
	return repo.Update(ctx, gitd.RefUpdate{Name: ref, Old: &tip})
}

// reopened continues a task whose pull request was closed and is open again.
func (j *job) reopened(ctx context.Context) error {
	t, past, err := j.now(ctx)
	if err != nil {
		return err
	}
	events := []record.Event{{Type: record.EventHeard, Kind: heardReopened}}
	if w, any := past.latest(); any && !w.Ended {
		// The work was stopped because the pull request was closed. It is begun again.
		if err := j.clear(ctx, t); err != nil {
			return err
		}
		events = append(events, cutShort(w, "the pull request was closed"))
	}
	j.news.Store(true) // to read the comments that came meanwhile
	return j.amend(ctx, func(t *record.Task) {
		if t.Status == record.StateFailed {
			t.Status, t.Error = record.StateAwaitingReview, ""
		}
	}, events...)
}

// publish pushes the result of a piece of work to the forge and queues the messages about it.
func (j *job) publish(ctx context.Context, w work) error {
	t, past, err := j.now(ctx)
	if err != nil {
		return err
	}
	repo, err := j.engineer.Git.Repo(t.Repo)
	if err != nil {
		return err
	}
	own := "refs/heads/" + t.Caller().Branch()
	tip, err := repo.Resolve(ctx, own)
	if err != nil {
		return err
	}
	up, _, shared := j.engineer.upstream(t.Repo)
	published := record.Event{Type: record.EventWork, Step: w.id(), Kind: workPublished, Commit: tip}
	if !shared {
		text := fmt.Sprintf("✅ Done: the work is on branch %s of %s", t.Caller().Branch(), t.Repo)
		return j.amendOpen(ctx, func(t *record.Task) { t.Status = record.StateComplete },
			append(append(j.toSlack("done", text),
				j.toTicket(t, "done", fmt.Sprintf("ramus is done. The work is on branch %s of %s.", t.Caller().Branch(),
					t.Repo), "")...), published)...)
	}
	if past.pushed == "" {
		base, err := repo.MergeBase(ctx, own, "refs/heads/"+t.Base)
		if err != nil && !errors.Is(err, gitd.ErrNotFound) {
			return err
		}
		if base == tip {
			return j.fail(ctx, record.ReasonCommandFailed,
				"the agent ended without having changed anything, so there is no pull request")
		}
	}
	push := gitd.UpstreamPush{Upstream: up, Branch: t.Branch, Commit: tip, Old: &past.pushed}
	if err := repo.PushUpstream(ctx, push); err != nil {
		switch {
		case errors.Is(err, gitd.ErrConflict):
			// Somebody pushed first. overtaken merges their commits, and the next attempt pushes the result.
			return j.overtaken(ctx, past.pushed, tip, err)
		case errors.Is(err, gitd.ErrUpstreamRefused):
			return j.fail(ctx, record.ReasonBadInput, err.Error())
		}
		return err
	}
	pictured, err := j.keepEvidence(ctx, t, past, w, repo, up)
	if err != nil {
		return err
	}
	if pictured != "" {
		published.Data = encode(work{N: w.N, Evidence: pictured})
	}
	events := []record.Event{published}
	if j.engineer.settings().Status {
		events = append(events, j.toForge("status:"+w.id(), message{Kind: mailStatus, Work: w.N, Item: string(tip)})...)
	}
	if t.PRNumber == 0 {
		// After a failure, the same work may get another pull request.
		key := fmt.Sprintf("pull:%s:%d", w.id(), past.fails)
		return j.amend(ctx, nil, append(events, j.toForge(key, message{Kind: mailPull, Work: w.N})...)...)
	}
	for _, i := range past.said(w.Keys) {
		if i.Comment != nil || i.Review != nil && i.Review.Body != "" {
			events = append(events, j.toForge("reply:"+i.Key, message{Kind: mailReply, Work: w.N, Item: i.Key})...)
		}
	}
	events = append(events, j.toForge("body:"+w.id(), message{Kind: mailBody, Work: w.N})...)
	events = append(events, j.toForge("review:"+w.id(), message{Kind: mailReview, Work: w.N})...)
	if len(w.Keys) > 0 || t.For.IsZero() { // the person who proposed a branch gets an answer
		events = append(events, j.toSlack("pushed:"+w.id(), render.TaskPushed())...)
	}
	j.news.Store(true) // comments may have come during the work
	return j.amendOpen(ctx, func(t *record.Task) { t.Status = record.StateAwaitingReview }, events...)
}

// overtaken handles a push that was refused because the branch at the forge was not at known. It takes in the commits
// of others. Returns refused, the error of the push, if the forge has no such commits, so that the next attempt is
// made after a pause and not in an endless loop.
func (j *job) overtaken(ctx context.Context, known, tip gitd.Hash, refused error) error {
	if done, err := j.takeIn(ctx); err != nil || done {
		return err
	}
	t, past, err := j.now(ctx)
	if err != nil || past.pushed != known {
		return err
	}
	if known == "" {
		return refused
	}
	repo, err := j.engineer.Git.Repo(t.Repo)
	if err != nil {
		return err
	}
	if has, err := repo.Descends(ctx, tip, known); err != nil {
		return err
	} else if has {
		return refused
	}
	return j.fail(ctx, record.ReasonMergeConflict,
		fmt.Sprintf("ramus's own branch %s was rewritten: %s, which is upstream, is not in its history any more; "+
			"merge that into it, then `ramus task retry`", t.Caller().Branch(), known[:min(12, len(known))]))
}

// takeIn merges the commits that people pushed to the branch at the forge. If they cannot be merged, takeIn ends the
// task with a message, and done is true.
func (j *job) takeIn(ctx context.Context) (done bool, err error) {
	t, past, err := j.now(ctx)
	if err != nil {
		return false, err
	}
	up, at, shared := j.engineer.upstream(t.Repo)
	if !shared {
		return false, nil
	}
	repo, err := j.engineer.Git.Repo(t.Repo)
	if err != nil {
		return false, err
	}
	theirs, err := repo.FetchUpstream(ctx, up, t.Branch)
	switch {
	case errors.Is(err, gitd.ErrNotFound) && past.pushed == "":
		return false, nil
	case errors.Is(err, gitd.ErrNotFound) && j.retried():
		// The person who retries the task wants the branch to be pushed again.
		return false, j.amend(ctx, nil, record.Event{Type: record.EventHeard, Kind: heardCommits, Data: encode([]string{})})
	case errors.Is(err, gitd.ErrNotFound):
		return true, j.fail(ctx, record.ReasonBadInput,
			fmt.Sprintf("the branch %s was deleted at %s; `ramus task retry` pushes it again", t.Branch, at.Forge.Title()))
	case err != nil:
		return false, err
	case theirs == past.pushed:
		return false, nil
	}
	own := t.Caller().Branch()
	ours, err := repo.Resolve(ctx, "refs/heads/"+own)
	if err != nil {
		return false, err
	}
	// If no push is known, a push may still have succeeded whose answer was lost.
	kept, err := repo.Descends(ctx, theirs, gitd.Hash(cmp.Or(string(past.pushed), string(ours))))
	if err != nil {
		return false, err
	}
	if !kept && past.pushed == "" && !j.retried() {
		return true, j.fail(ctx, record.ReasonBadInput,
			fmt.Sprintf("there is a branch %s at %s already, with other work on it; "+
				"`ramus task retry` goes on from there, or choose other names by engineer.branch", t.Branch,
				at.Forge.Title()))
	}
	if !kept && !j.retried() {
		return true, j.fail(ctx, record.ReasonMergeConflict, fmt.Sprintf(
			"somebody force-pushed the branch %s: %s is not in its history any more. ramus does not overwrite it; `ramus task retry` goes on from its new tip", t.Branch, past.pushed[:min(12, len(past.pushed))]))
	}
	commits, err := j.subjects(ctx, repo, theirs, ours)
	if err != nil {
		return false, err
	}
	switch {
	case !kept:
		err = j.adopt(ctx, repo, own, ours, theirs)
	default:
		var conflict []string
		if conflict, err = j.mergeIn(ctx, repo, t, own, ours, theirs); err == nil && len(conflict) > 0 {
			return true, j.fail(ctx, record.ReasonMergeConflict, fmt.Sprintf(
				"commits on %s at %s conflict with ramus's own in %s; bring them together there, then `ramus task retry`", t.Branch, at.Forge.Title(), strings.Join(conflict, ", ")))
		}
	}
	if err != nil {
		return false, err
	}
	return false, j.amend(ctx, nil,
		record.Event{Type: record.EventHeard, Kind: heardCommits, Commit: theirs, Data: encode(commits),
			Message: strconv.Itoa(len(commits)) + " commits of others on the branch were taken in"})
}

// retried reports whether the task was retried after its last work was published.
func (j *job) retried() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.past.retried
}

// maxSubjects limits how many commits of people are listed for an agent.
const maxSubjects = 20

// subjects returns the hashes and subjects of the commits that tip has and not lacks, oldest first.
func (j *job) subjects(ctx context.Context, repo *gitd.Repo, tip, not gitd.Hash) ([]string, error) {
	commits, err := repo.Log(ctx, string(tip), gitd.LogOptions{Not: string(not), Max: maxSubjects})
	if err != nil {
		return nil, err
	}
	list := []string{}
	for _, c := range slices.Backward(commits) {
		list = append(list, string(c.Hash[:min(12, len(c.Hash))])+" "+text.Clip(c.Subject, 200))
	}
	return list, nil
}

// mergeIn merges an upstream commit into the branch of the task. It moves the branch forward if that is enough.
// conflict has the paths that conflict.
func (j *job) mergeIn(ctx context.Context, repo *gitd.Repo, t record.Task, own string, ours, theirs gitd.Hash) (conflict []string, err error) {
	if known, err := repo.Descends(ctx, ours, theirs); err != nil || known {
		return nil, err
	}
	if ahead, err := repo.Descends(ctx, theirs, ours); err != nil {
		return nil, err
	} else if ahead {
		return nil, repo.Update(ctx, gitd.RefUpdate{Name: "refs/heads/" + own, New: theirs, Old: &ours})
	}
	m, err := repo.Merge(ctx,
		gitd.MergeRequest{From: "refs/ramus/upstream/" + t.Branch, Into: own, Strategy: gitd.StrategyMerge,
			Message: fmt.Sprintf("Merge what was pushed to %s\n\nRamus-Caller: %s\n", t.Branch, t.Caller()),
			Author:  t.Asker, Committer: j.engineer.Executor.Bot, When: j.engineer.Now()})
	return m.Conflicts, err
}

// adopt continues from a commit that does not have the commits of ramus in its history. The new commit has the content
// of theirs, and both commits are its parents.
func (j *job) adopt(ctx context.Context, repo *gitd.Repo, own string, ours, theirs gitd.Hash) error {
	commit, err := repo.WriteCommit(ctx, gitd.NewCommit{From: theirs, Parents: []gitd.Hash{theirs, ours},
		Author: j.engineer.Executor.Bot, When: j.engineer.Now(),
		Message: "Go on from what was force-pushed\n"})
	if err != nil {
		return err
	}
	return repo.Update(ctx, gitd.RefUpdate{Name: "refs/heads/" + own, New: commit, Old: &ours})
}
