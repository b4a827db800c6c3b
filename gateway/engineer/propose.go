package engineer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/upstream"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gitd"
)

// Engineer is an [upstream.Host]. A branch that is proposed becomes a task that begins with the branch, so that its
// pull request is followed like that of a submitted task: reviews, checks and the merge come back.

// proposeWithin bounds the wait for the pull request of a branch.
const proposeWithin = 2 * time.Minute

// maxTold limits how many runs of a proposed branch the text of its pull request describes.
const maxTold = 20

// Writer returns the upstream of a repository at a forge, with the access to write.
func (e *Engineer) Writer(repo string) (gitd.Upstream, bool) {
	up, _, ok := e.upstream(repo)
	return up, ok
}

// Propose opens the pull request of a caller's branch, or brings the open one up to date. If e is open, the pull request
// belongs to a task from then on. Otherwise e forgets it.
func (e *Engineer) Propose(ctx context.Context, p upstream.Proposal) (record.Pull, error) {
	if !e.opened.Load() {
		return e.proposeOnce(ctx, p)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, proposeWithin,
		fmt.Errorf("the pull request is not open after %v; its task opens it as soon as the forge answers: %w",
			proposeWithin, gitd.ErrUpstream))
	defer cancel()
	t, err := e.standFor(ctx, p)
	if err != nil {
		return record.Pull{}, err
	}
	out := record.Pull{Updated: t.PRNumber != 0 && t.Status != record.StateComplete}
	_, err = e.command(ctx, t.ID, "propose the branch of",
		func(ctx context.Context, j *job) error { return j.propose(ctx, p) })
	if err != nil {
		return out, err
	}
	j, err := e.wake(t.ID, false)
	if err != nil {
		return out, err
	}
	if t, err = j.awaitPull(ctx, p); err != nil {
		return out, err
	}
	out.Number, out.URL, out.Branch = t.PRNumber, t.PRURL, t.Branch
	return out, nil
}

// proposeOnce opens a pull request that nothing follows.
func (e *Engineer) proposeOnce(ctx context.Context, p upstream.Proposal) (record.Pull, error) {
	up, at, ok := e.upstream(p.Repo.Name())
	if !ok {
		return record.Pull{}, fmt.Errorf("%s is at no forge: %w", p.Repo.Name(), record.ErrInvalid)
	}
	t := e.newProposal(p)
	if err := p.Repo.PushUpstream(ctx, gitd.UpstreamPush{Upstream: up, Branch: t.Branch, Commit: p.Commit}); err != nil {
		return record.Pull{}, err
	}
	j := newJob(e, t)
	work, err := j.manifests(ctx, t)
	if err != nil {
		return record.Pull{}, err
	}
	title, body := render.Pull(t, work, render.PullLinks{})
	pull, err := at.Forge.CreatePull(ctx, at.Name,
		forge.NewPull{Head: t.Branch, Base: p.Base, Title: title, Body: body, Draft: e.settings().Draft})
	if err != nil {
		return record.Pull{}, fmt.Errorf("no pull request can be opened: %w", err)
	}
	return record.Pull{Number: pull.Number, URL: pull.URL, Branch: t.Branch}, nil
}

// proposalID returns the id of the task for a caller's branch.
func proposalID(c record.Caller) string {
	if c.Kind() == "conv" {
		return c.ID()
	}
	return c.Slug()
}

// newProposal returns the task for a caller's branch.
func (e *Engineer) newProposal(p upstream.Proposal) record.Task {
	template := cmp.Or(e.settings().Branch, defaultBranch)
	if p.Caller.Kind() != "conv" {
		template = strings.ReplaceAll(template, "conv-{task_id}", "{caller}")
	}
	t := record.Task{ID: proposalID(p.Caller), For: p.Caller, Description: p.Title, Status: record.StateSubmitted,
		WorktreePath: executor.WorkDir,
		Branch:       strings.NewReplacer("{task_id}", p.Caller.ID(), "{caller}", p.Caller.Slug()).Replace(template),
		Repo:         p.Repo.Name(), Base: p.Into, Asker: p.By, AskerID: p.ByID, CreatedAt: e.Executor.Now().UTC()}
	t.UpdatedAt = t.CreatedAt
	for _, r := range e.Executor.OfCaller(p.Caller) {
		if r.Agent != nil {
			t.AgentID = r.Agent.Name
		}
		if r.Origin != nil {
			// "slack:{team}:{channel}:{thread_ts}"
			if parts := strings.Split(r.Origin.Session, ":"); len(parts) == 4 && parts[0] == "slack" {
				t.SlackChannel, t.SlackThreadTS = parts[2], parts[3]
			}
		}
	}
	if t.AgentID == "" && t.SlackThreadTS != "" { // a person in a thread may ask for more, in words
		t.AgentID, _ = e.agent("")
	}
	t.Work = e.workOf(p.Caller, nil)
	return t
}

// workOf returns the newest runs of a caller that have ended and that known lacks, oldest first.
func (e *Engineer) workOf(c record.Caller, known []string) (names []string) {
	for _, r := range e.Executor.OfCaller(c) {
		if !r.Aside() && r.Ended() && !slices.Contains(known, r.Name()) {
			names = append(names, r.Name())
		}
	}
	return names[max(0, len(names)-maxTold):]
}

// standFor returns the task of a caller's branch. It makes one if there is none.
func (e *Engineer) standFor(ctx context.Context, p upstream.Proposal) (record.Task, error) {
	t, err := e.Task(ctx, proposalID(p.Caller))
	if !errors.Is(err, record.ErrNotFound) {
		return t, err
	}
	t = e.newProposal(p)
	t.Work = nil
	if err := gitd.CheckRef("refs/heads/" + t.Branch); err != nil {
		return t, invalid("engineer.branch makes %q of it, which is no name of a branch", t.Branch)
	}
	run, _, err := e.Executor.Stand(ctx,
		record.Request{Key: standingRun, Caller: p.Caller, Repo: t.Repo, Base: t.Base, Asker: t.Asker}, encode(t))
	if err != nil {
		return t, err
	}
	if t, err = readTask(run); err != nil {
		return t, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if known, ok := e.tasks[t.ID]; ok {
		return known, nil
	}
	e.tasks[t.ID] = t
	return t, nil
}

// TaskOf returns the task of a caller's branch that has not ended. Returns false if there is none.
func (e *Engineer) TaskOf(c record.Caller) (record.Task, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t, ok := e.tasks[proposalID(c)]
	return t, ok && !t.Ended()
}

// propose journals that the branch of the task is to be published as it is. It does nothing if that is so already.
func (j *job) propose(ctx context.Context, p upstream.Proposal) error {
	t, past, err := j.now(ctx)
	if err != nil {
		return err
	}
	w, any := past.latest()
	switch {
	case t.Base != p.Into:
		return fmt.Errorf("%w: its pull request is into %s, not into %s", record.ErrConflict, t.Base, p.Into)
	case any && !w.Ended && !t.Ended():
		return fmt.Errorf("%w: its agent is at work; the pull request follows when that is done", record.ErrConflict)
	case any && !t.Ended() && (w.Published == p.Commit || w.Published == "" && w.Head == p.Commit):
		return nil // it is published, or about to be
	}
	runs := j.engineer.workOf(p.Caller, t.Work)
	n := work{N: len(past.works) + 1, Head: p.Commit}
	if len(runs) > 0 {
		n.Run = runs[len(runs)-1]
	} else if len(t.Work) > 0 {
		n.Run = t.Work[len(t.Work)-1]
	}
	ended := n
	ended.Ended, ended.OK = true, true
	ok := true
	var events []record.Event
	again := t.Ended()
	if again {
		events = append(events, record.Event{Type: record.EventWork, Kind: workRetried, Message: "proposed again"},
			record.Event{Type: record.EventHeard, Kind: heardAgain})
	}
	if known, err := j.pushedBefore(ctx, t, past, p); err != nil {
		return err
	} else if known != "" {
		events = append(events, record.Event{Type: record.EventHeard, Kind: heardCommits, Commit: known,
			Data: encode([]string{})})
	}
	events = append(events, record.Event{Type: record.EventWork, Step: n.id(), Kind: workBegun, Data: encode(n)},
		record.Event{Type: record.EventWork, Step: n.id(), Kind: workEnded, OK: &ok, Commit: p.Commit, Data: encode(ended)})
	return j.amend(ctx, func(t *record.Task) {
		if again {
			t.PRNumber, t.PRURL, t.Approved = 0, "", false
			t.Asker, t.AskerID = p.By, p.ByID
		}
		t.Status, t.Error = record.StateRunning, ""
		t.Work = append(t.Work, runs...)
	}, events...)
}

// pushedBefore returns the commit of the branch at the forge, if the proposed commit has it in its history and the task
// does not know of it. Somebody may have pushed the branch before there was a task.
func (j *job) pushedBefore(ctx context.Context, t record.Task, past history, p upstream.Proposal) (gitd.Hash, error) {
	up, _, shared := j.engineer.upstream(t.Repo)
	if !shared || past.pushed != "" {
		return "", nil
	}
	theirs, err := p.Repo.FetchUpstream(ctx, up, t.Branch)
	if errors.Is(err, gitd.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	has, err := p.Repo.Descends(ctx, p.Commit, theirs)
	if err != nil || !has {
		return "", err
	}
	return theirs, nil
}

// awaitPull waits until the proposed commit is in an open pull request.
func (j *job) awaitPull(ctx context.Context, p upstream.Proposal) (record.Task, error) {
	for {
		j.mu.Lock()
		err := j.load(ctx)
		t, pushed, changed := j.task, j.past.pushed, j.mail
		j.mu.Unlock()
		if err != nil {
			return t, err
		}
		if t.Ended() {
			return t, fmt.Errorf("%s (`ramus task retry %s`): %w", cmp.Or(t.Error, "its task has ended"), t.ID,
				record.ErrConflict)
		}
		if t.PRNumber != 0 && pushed != "" {
			if has, err := p.Repo.Descends(ctx, pushed, p.Commit); err != nil || has {
				return t, err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return t, context.Cause(ctx)
		}
	}
}

// Sweep removes the branch at the forge of a task whose pull request was merged. See [upstream.Sweeper].
func (e *Engineer) Sweep(ctx context.Context, repo string, c record.Caller, dry bool) (branch string, err error) {
	run, known := e.Executor.Find(c, standingRun)
	if !known || run.Kind != record.KindConversation || run.Repo != repo {
		return "", nil
	}
	t, err := readTask(run)
	if err != nil {
		return "", err
	}
	up, _, shared := e.upstream(repo)
	if !shared || t.Status != record.StateComplete || t.PRNumber == 0 {
		return "", nil
	}
	_, past, err := newJob(e, t).now(ctx)
	if err != nil || past.pushed == "" || !past.merged {
		return "", err
	}
	r, err := e.Git.Repo(repo)
	if err != nil {
		return "", err
	}
	at, err := r.FetchUpstream(ctx, up, t.Branch)
	if errors.Is(err, gitd.ErrNotFound) || err == nil && at != past.pushed {
		return "", nil // it is gone, or somebody works on it
	}
	if err != nil || dry {
		return t.Branch, err
	}
	err = r.PushUpstream(ctx, gitd.UpstreamPush{Upstream: up, Branch: t.Branch, Old: &past.pushed})
	if errors.Is(err, gitd.ErrConflict) || errors.Is(err, gitd.ErrUpstreamRefused) {
		return "", nil
	}
	return t.Branch, err
}
