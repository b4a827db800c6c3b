package executor

import (
	"context"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
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
	l, err := x.newLive(record.Run{ID: "shell", Caller: c, Repo: repo, Base: "main"}, "", runFiles{}, x.target(c, r, "main"))
	if err != nil {
		t.Fatal(err)
	}
	lease, tip, err := l.target.Ready(ctx, "", gitd.Person{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &work{l: l, t: l.target, host: lease.Host, id: "shell", before: tip, head: &head{at: tip}, s: stepInfo{ID: "shell"}}
	if w.out, err = l.OpenOutputs(w.s.ID, 1, false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.out.Close()
		l.end()
		lease.Release()
		if err := x.Fleet.Remove(ctx, c.String()); err != nil {
			t.Error(err)
		}
	})
	return &taskShell{w: w}
}
