package executor

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"runtime"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/egress"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
)

// SetSealEvery sets the wait before a run is sealed again.
func (x *Executor) SetSealEvery(d time.Duration) { x.tuning.sealEvery = d }

// Waiting returns the number of requests that wait for a run's end.
func (x *Executor) Waiting(run string) int {
	l := x.runs.all()[run]
	if l == nil {
		return 0
	}
	return l.Attended()
}

// SetPatience sets the waits for agents of agent.ProtocolACP, and for answers to their questions.
func (x *Executor) SetPatience(patience, person time.Duration) {
	x.tuning.waits = agent.Waits{Grace: patience, Leave: patience, Person: person}
}

// Touch makes an empty file in the work tree of a caller's container.
func (x *Executor) Touch(ctx context.Context, caller, name string) error {
	return x.Programs.WithHost(ctx, caller, func(h *containers.Host) error {
		files, err := h.Files(ctx)
		if err != nil {
			return err
		}
		defer files.Close()
		f, err := files.Create(path.Join(containers.WorkDir, name))
		if err != nil {
			return err
		}
		return f.Close()
	})
}

// SetBranchLayers gives a branch a layer of its own if it differs in near paths. The branch must rest
// for a millisecond before.
func (x *Executor) SetBranchLayers(near int) {
	x.tuning.layers.BranchNear, x.tuning.layers.BranchRest = near, time.Millisecond
}

// SetAskFrom sets the number of files from which git inside asks the host for changes.
func (x *Executor) SetAskFrom(n int) { x.tuning.layers.AskFrom = n }

// SetLayerEntries bounds the files and folders of a base layer.
func (x *Executor) SetLayerEntries(n int) { x.tuning.layers.Entries = n }

// SetTokens has the ids of runs drawn from a list.
func (x *Executor) SetTokens(next func() string) { x.tuning.token = next }

// SetRefreshEvery sets the wait of a deploy after its first failed attempt.
func (x *Executor) SetRefreshEvery(d time.Duration) { x.Bases.RetryEvery = d }

// SetLanding sets a function that each attempt to push a merge calls before the push.
func (x *Executor) SetLanding(f func(repo string)) { x.Bases.Landing = f }

// InApart runs a shell line in a scratch container on a commit of the base, and returns its output.
func (x *Executor) InApart(ctx context.Context, name string, commit gitd.Hash, line string) (string, error) {
	repo, err := x.Git.Repo(name)
	if err != nil {
		return "", err
	}
	tree := x.trees.NewTree(record.Caller{}, repo, "main")
	git := x.Git.GrantHandler(gitd.Grant{Subject: "scratch", Repo: name, Read: []string{"refs/heads/main"},
		Scopes:  []string{gitd.ScopeRead},
		Expires: x.Now().AddDate(1, 0, 0)})
	lease, err := tree.OpenScratch(ctx, worktree.Scratch{Key: "base:test", Image: x.Containers.Image, Branch: "main", Commit: commit,
		Door: worktree.ScratchDoor(repo, git, &egress.Proxy{})})
	if err != nil {
		return "", err
	}
	defer tree.CloseScratch(lease, "base:test")
	p, err := lease.Host.Start(ctx,
		containers.Command{ID: "line", Args: []string{"sh", "-c", line}, Dir: containers.WorkDir, Timeout: time.Minute})
	if err != nil {
		return "", err
	}
	var out, said bytes.Buffer
	exit, err := p.Output(&out, &said)
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("it ended with %d: %s", exit.Code, &said)
	}
	return out.String(), err
}

// Targets returns the number of callers whose target the executor knows.
func (x *Executor) Targets() int { return x.targets.Len() }

// SetQuiet sets how long a terminal must be quiet for its changes to be committed.
func (x *Executor) SetQuiet(d time.Duration) { x.tuning.quiet = d }

// SetTurn sets how long an upload waits for its turn.
func (x *Executor) SetTurn(d time.Duration) { x.Files.Turn = d }

// TakeTurn has the turn of a caller until the result is called, as a run between its steps has.
func (x *Executor) TakeTurn(ctx context.Context, c record.Caller) (func(), error) {
	repo, base, err := x.HomeRepo(ctx, c)
	if err != nil {
		return nil, err
	}
	t := x.targets.Of(c, repo, base)
	free, err := t.Acquire(ctx)
	return func() { free(); runtime.KeepAlive(t) }, err
}

// SetWarm sets how long a container waits for a prompt.
func (x *Executor) SetWarm(d time.Duration) { x.tuning.warm, x.Warmer.Life = d, d }
