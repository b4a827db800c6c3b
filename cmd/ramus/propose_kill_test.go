package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/standin/githubtest"
)

// proposal is a person's work with a branch of a command. The person proposes it, again if there is no answer, and
// merges its pull request.
type proposal struct {
	story
	landed record.LandedAll
}

// end continues the work to its end.
func (p *proposal) end() error {
	for try := 0; ; try++ {
		var err error
		ctx, cancel := context.WithTimeout(p.s.t.Context(), time.Minute)
		p.landed, err = p.s.local.Merge(ctx, "run:"+p.name, record.Merge{Propose: true})
		cancel()
		if err == nil {
			break
		}
		if try == 1200 {
			return fmt.Errorf("%s: it cannot be proposed: %w", p.name, err)
		}
		time.Sleep(50 * time.Millisecond) // there is no server, or GitHub did not answer it
	}
	if p.landed.Pull == nil || p.landed.Merged {
		return fmt.Errorf("%s: %+v", p.name, p.landed)
	}
	if text, err := p.s.repo.File(p.landed.Pull.Branch, p.file); err != nil || text != "made" {
		return fmt.Errorf("%s: the pull request has %q, %v", p.name, text, err)
	}
	if _, err := p.s.repo.Merge("reviewer", p.landed.Pull.Number, "squash"); err != nil {
		return err
	}
	return p.wait("the branch's end", func() bool { return p.s.repo.Head(headOf(p.id)) == "" })
}

// TestProposedKilled kills the server at points of a proposed branch's way to its merge. Each time there is one pull
// request, the base has the merge, and the branch is gone, here and there.
func TestProposedKilled(t *testing.T) {
	t.Parallel()
	s := newEngineerServer(t, "")
	s.start()
	for _, k := range []killPoint{
		{name: "push-before", cut: "git-receive-pack"},
		{name: "push-lost", at: pushOf(1)},
		{name: "pull-before", cut: routePulls},
		{name: "pull-lost", at: changed("open")},
		{name: "merged-delivered", at: delivered("pull_request closed"), hold: routeDeleteRef},
		{name: "branch-deleted", at: changed("delete")},
	} {
		p := &proposal{story: story{s: s, name: k.name, id: "run-" + k.name, file: k.name + ".txt"}}
		s.ramus("exec", k.name, "--repo", "app", "--", "echo made >"+p.file)
		var sprung <-chan struct{}
		if k.at != nil {
			sprung = s.set(func(change any) bool { return k.at(&p.story, change) }).sprung
		} else {
			s.github.Fail(githubtest.Fault{Route: k.cut, Times: -1, Cut: true})
		}
		held := make(chan struct{})
		if k.hold != "" {
			s.github.Fail(githubtest.Fault{Route: k.hold, Times: -1, Slow: held})
		}
		ended := make(chan error, 1)
		go func() { ended <- p.end() }()
		if sprung != nil {
			select {
			case <-sprung:
			case err := <-ended:
				t.Fatalf("%s: it was not reached: %v", k.name, err)
			}
		}
		k.kill(&p.story)
		close(held)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		s.poll(k.name+" is not complete", func() bool {
			task := s.task(p.id)
			return task.Status == record.StateComplete && task.Unposted == 0
		})
		if pulls := s.pulls(p.id); len(pulls) != 1 || !pulls[0].Merged || pulls[0].Number != p.landed.Pull.Number {
			t.Errorf("%s: %+v, %+v", k.name, p.landed, pulls)
		}
		refs := func() string {
			return s.sh(s.data, `git -C repos/app.git for-each-ref --format='%(refname)' "refs/heads/ramus/$0"; git -C repos/app.git ls-tree --name-only main -- "$1"`, p.id, p.file)
		}
		s.poll(k.name+": the base and the branch", func() bool { return refs() == p.file+"\n" })
		if left := refs(); left != p.file+"\n" {
			t.Errorf("%s: the base and the branch: %q", k.name, left)
		}
	}
	s.finish()
}
