package executor

import (
	"context"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks"
)

// OpenShell returns the Shell of a library task for a caller.
func OpenShell(t *testing.T, x *Executor, c record.Caller, repo string) tasks.Shell {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	r, err := x.Git.Repo(repo)
	if err != nil {
		t.Fatal(err)
	}
	base, err := r.Resolve(ctx, "refs/heads/main")
	if err != nil {
		t.Fatal(err)
	}
	none := gitd.Hash("")
	if err := r.Update(ctx, gitd.RefUpdate{Name: "refs/heads/" + c.Branch(), New: base, Old: &none}); err != nil {
		t.Fatal(err)
	}
	l, err := x.newLive(record.Run{ID: "shell", Caller: c, Repo: repo, Base: "main"}, "", runFiles{}, x.targets.Of(c, r, "main"))
	if err != nil {
		t.Fatal(err)
	}
	lease, tip, err := l.Target.Ready(ctx, "", gitd.Person{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &step.Work{Run: l.Run, Target: l.Target, Host: lease.Host, ID: "shell", Before: tip, Head: &step.Head{At: tip}, Info: step.Info{ID: "shell"}}
	if w.Out, err = l.OpenOutputs(w.Info.ID, 1, false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.Out.Close()
		l.end()
		lease.Release()
		if err := x.Fleet.Remove(ctx, c.String()); err != nil {
			t.Error(err)
		}
	})
	return &step.TaskShell{W: w}
}
