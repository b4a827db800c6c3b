package ownership

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers/kube"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/clocktest"
	"github.com/ramus-dev/ramus/internal/standin/leasetest"
)

// world has the leases of a group, and a clock that only the test moves.
type world struct {
	t      *testing.T
	server *leasetest.Server
	config *kube.Config
	clock  *clocktest.Clock
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, server: leasetest.New(), clock: clocktest.At(time.Unix(1_700_000_000, 0))}
	t.Cleanup(w.server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	err := w.server.WriteKubeconfig(path, "test")
	if err == nil {
		w.config, err = kube.Load(path, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// replica returns a process of a replica that is not open yet.
func (w *world) replica(name, data string) *Cluster {
	w.t.Helper()
	client, err := kube.New(*w.config)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(client.Close)
	return &Cluster{Client: client, Namespace: "test", Group: "ramus", Name: name, URL: "https://" + name, Data: data,
		Shared: []string{gitd.PeopleRepo}, Duration: 5 * time.Second, Now: w.clock.Now,
		Log: slog.New(slog.NewTextHandler(w.t.Output(), nil))}
}

// open opens a process, and closes it at the end of the test.
func (w *world) open(c *Cluster) *Cluster {
	w.t.Helper()
	if err := c.Open(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// await waits until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%s does not happen", what)
		}
	}
}

func TestAlone(t *testing.T) {
	var o Owner = Alone{}
	if err := errors.Join(o.Check(t.Context(), "app"), o.Claim(t.Context(), "app"), o.Drop(t.Context(), "app")); err != nil {
		t.Error(err)
	}
	if r, ok := o.Find("app"); !ok || !r.Self || !r.Live || len(o.Replicas()) != 1 {
		t.Errorf("the only server is %+v", r)
	}
}

// TestOwnership has two replicas own, find, rename and give away repositories.
func TestOwnership(t *testing.T) {
	w, ctx := newWorld(t), t.Context()
	a, b := w.open(w.replica("ramus-0", t.TempDir())), w.open(w.replica("ramus-1", t.TempDir()))
	if err := a.Claim(ctx, "team/app"); err != nil {
		t.Fatal(err)
	}
	if err := a.Claim(ctx, "team/app"); err != nil {
		t.Errorf("a second claim of its own: %v", err)
	}
	if err := b.Claim(ctx, "team/app"); !errors.Is(err, gitd.ErrExists) || !strings.Contains(err.Error(), "ramus-0") {
		t.Errorf("a claim of another replica's repository: %v", err)
	}
	for _, repo := range []string{"team/app", gitd.PeopleRepo} {
		if err := a.Check(ctx, repo); err != nil {
			t.Errorf("the owner of %s: %v", repo, err)
		}
	}
	for _, repo := range []string{"team/app", "nothing"} {
		if err := b.Check(ctx, repo); !errors.Is(err, gitd.ErrElsewhere) {
			t.Errorf("%s is changed by another replica: %v", repo, err)
		}
	}
	await(t, "the news of a repository", func() bool { r, ok := b.Find("team/app"); return ok && r.URL == "https://ramus-0" && !r.Self })
	if _, ok := b.Find("nothing"); ok {
		t.Error("something is found that nobody owns")
	}

	// A check waits while the repository is being given away, and knows the new owner then.
	thaw, err := a.Freeze(ctx, "team/app")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Freeze(ctx, "team/app"); !errors.Is(err, gitd.ErrConflict) {
		t.Errorf("a repository is frozen twice: %v", err)
	}
	checked := make(chan error, 1)
	go func() { checked <- a.Check(ctx, "team/app") }()
	if err := a.Give(ctx, "team/app", "ramus-1", "copy"); err != nil {
		t.Fatal(err)
	}
	if _, ok := b.Look(ctx, "team/app"); !ok || b.Copy("team/app") != "copy" {
		t.Errorf("the new owner takes the copy %q", b.Copy("team/app"))
	}
	select {
	case err := <-checked:
		t.Errorf("a check of a frozen repository ended: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	thaw()
	if err := <-checked; !errors.Is(err, gitd.ErrElsewhere) {
		t.Errorf("the earlier owner: %v", err)
	}
	if err := b.Check(ctx, "team/app"); err != nil {
		t.Errorf("the new owner: %v", err)
	}
	thaw() // twice
	if _, err := a.Freeze(ctx, "team/app"); !errors.Is(err, gitd.ErrElsewhere) {
		t.Errorf("the earlier owner gives it away: %v", err)
	}

	// The assignments and the folder are compared at the start.
	if err := a.Claim(ctx, "lost"); err != nil {
		t.Fatal(err)
	}
	moved, missing, err := a.Settle(ctx, []string{"found", "team/app", gitd.PeopleRepo})
	if err != nil || !slices.Equal(moved, []string{"team/app"}) || !slices.Equal(missing, []string{"lost"}) {
		t.Errorf("moved %v, missing %v, %v", moved, missing, err)
	}
	if err := a.Check(ctx, "found"); err != nil {
		t.Errorf("a repository that nobody owned: %v", err)
	}
	if err := errors.Join(a.Drop(ctx, "found"), a.Drop(ctx, "found"), b.Drop(ctx, "lost")); err != nil {
		t.Error(err)
	}
	if err := a.Check(ctx, "found"); !errors.Is(err, gitd.ErrElsewhere) {
		t.Errorf("a removed repository: %v", err)
	}
	if err := a.Check(ctx, "lost"); err != nil {
		t.Errorf("another replica dropped it: %v", err)
	}
	if all := a.Replicas(); len(all) != 2 || !all[0].Self || all[0].Repos != 1 || all[1].Repos != 1 || !all[1].Live {
		t.Errorf("the replicas are %+v", all)
	}
}

// TestExpiry has a process that cannot renew its lease stop before another one may take it, by its own clock.
func TestExpiry(t *testing.T) {
	w, ctx, data := newWorld(t), t.Context(), t.TempDir()
	old := w.replica("ramus-0", data)
	var lost []error
	var mu sync.Mutex
	old.Lost = func(err error) {
		mu.Lock()
		defer mu.Unlock()
		lost = append(lost, err)
	}
	w.open(old)
	if err := old.Claim(ctx, "app"); err != nil {
		t.Fatal(err)
	}
	renewed := w.server.Requests(http.MethodPut)
	await(t, "a renewal", func() bool { return w.server.Requests(http.MethodPut) > renewed })

	// No process can renew or take a lease.
	w.server.Refuse(func(r *http.Request) bool { return r.Method == http.MethodPut })
	next := w.replica("ramus-0", t.TempDir()) // on another volume
	opened := make(chan error, 1)
	go func() { opened <- next.Open(ctx) }()

	w.clock.Add(3300 * time.Millisecond)
	if err := old.Check(ctx, "app"); err != nil {
		t.Errorf("after less than two thirds: %v", err)
	}
	w.clock.Add(100 * time.Millisecond)
	if err := old.Check(ctx, "app"); !errors.Is(err, gitd.ErrElsewhere) || !strings.Contains(err.Error(), "cannot renew") {
		t.Errorf("after two thirds: %v", err)
	}
	if err := old.Claim(ctx, "other"); !errors.Is(err, gitd.ErrElsewhere) {
		t.Errorf("a claim after two thirds: %v", err)
	}
	select {
	case err := <-opened:
		t.Fatalf("the next process has the lease too early: %v", err)
	case <-time.After(100 * time.Millisecond):
	}

	// It goes on if nobody took the lease.
	w.server.Refuse(nil)
	await(t, "the renewal", func() bool { return old.Check(ctx, "app") == nil })

	// It is lost when somebody did.
	if err := w.server.Steal("test", "ramus-replica-ramus-0", "another"); err != nil {
		t.Fatal(err)
	}
	await(t, "the loss", func() bool { return errors.Is(old.Check(ctx, "app"), gitd.ErrFenced) })
	await(t, "the call of Lost", func() bool { // Check refuses before
		mu.Lock()
		defer mu.Unlock()
		return len(lost) > 0
	})
	mu.Lock()
	if len(lost) != 1 || !errors.Is(lost[0], gitd.ErrFenced) {
		t.Errorf("the loss was told as %v", lost)
	}
	mu.Unlock()
	deadline := time.Now().Add(20 * time.Second)
	for done := false; !done; {
		select {
		case err := <-opened:
			if err != nil {
				t.Fatal(err)
			}
			done = true
		case <-time.After(20 * time.Millisecond):
			w.clock.Add(time.Second)
		}
		if time.Now().After(deadline) {
			t.Fatal("the next process does not get the lease")
		}
	}
	defer next.Close(context.Background())
	if next.Epoch() != 3 { // the first, the thief, and this one
		t.Errorf("its epoch is %d", next.Epoch())
	}
}

// TestGiveFenced has a process that may not be its replica any more give nothing away, although it began in time.
func TestGiveFenced(t *testing.T) {
	w, ctx, data := newWorld(t), t.Context(), t.TempDir()
	a := w.replica("ramus-0", data)
	a.Process = "kernel:1:2"
	w.open(a)
	w.open(w.replica("ramus-1", t.TempDir()))
	for _, repo := range []string{"late", "changed", "slow"} {
		if err := a.Claim(ctx, repo); err != nil {
			t.Fatal(err)
		}
	}
	freeze := func(repo string) func() {
		thaw, err := a.Freeze(ctx, repo)
		if err != nil {
			t.Fatal(err)
		}
		return thaw
	}
	owner := func(repo string) string {
		is, _, err := a.leases.get(ctx, a.leases.repoName(repo))
		if err != nil {
			t.Fatal(err)
		}
		return is.Spec.Holder
	}

	// Somebody wrote the assignment since.
	thaw := freeze("changed")
	is, _, _ := a.leases.get(ctx, a.leases.repoName("changed"))
	if _, err := a.leases.replace(ctx, is); err != nil {
		t.Fatal(err)
	}
	if err := a.Give(ctx, "changed", "ramus-1", ""); !errors.Is(err, gitd.ErrConflict) || owner("changed") != "ramus-0" {
		t.Errorf("an assignment that changed was given to %s: %v", owner("changed"), err)
	}
	thaw()
	if err := a.Check(ctx, "changed"); err != nil {
		t.Errorf("the owner after a refused move: %v", err)
	}

	// The lease ends between two tries.
	thaw = freeze("late")
	late := a.leases.path(a.leases.repoName("late"))
	var mu sync.Mutex
	tries := 0
	w.server.Refuse(func(r *http.Request) bool { // renewals, and the first try
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodPut && r.URL.Path == late {
			if tries++; tries == 1 {
				w.clock.Add(4 * time.Second)
			}
		}
		return r.Method == http.MethodPut && (r.URL.Path != late || tries == 1)
	})
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := a.Give(soon, "late", "ramus-1", ""); !errors.Is(err, gitd.ErrElsewhere) || owner("late") != "ramus-0" {
		t.Errorf("a process without a lease gave the repository to %s: %v", owner("late"), err)
	}
	mu.Lock()
	if tries != 1 {
		t.Errorf("it tried %d times", tries)
	}
	mu.Unlock()
	w.server.Refuse(nil)
	await(t, "the renewal", func() bool { return a.CheckLease() == nil })
	// The try without an answer may still arrive, until the owner has written the assignment.
	before, _, _ := a.leases.get(ctx, a.leases.repoName("late"))
	thaw()
	if err := a.Check(ctx, "late"); err != nil {
		t.Errorf("the owner after a move without an answer: %v", err)
	}
	if after, _, _ := a.leases.get(ctx, a.leases.repoName("late")); after.Metadata.ResourceVersion == before.Metadata.ResourceVersion {
		t.Error("the try without an answer may still arrive")
	}

	// A change that is on its way to the cluster fails when the next process has begun.
	defer freeze("slow")()
	next := a.frozen["slow"].is
	next.Spec.Holder = "ramus-1"
	b := w.replica("ramus-0", data)
	b.Process = a.Process
	w.open(b)
	if _, _, err := b.Settle(ctx, []string{"late", "changed", "slow"}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.leases.replace(ctx, next); !kube.IsCode(err, http.StatusConflict) || owner("slow") != "ramus-0" {
		t.Errorf("an earlier process gave the repository of the next one to %s: %v", owner("slow"), err)
	}
}

// TestEpochOfFolder fences a process by the epoch in the data folder.
func TestEpochOfFolder(t *testing.T) {
	w, ctx, data := newWorld(t), t.Context(), t.TempDir()
	a := w.open(w.replica("ramus-0", data))
	if err := a.Claim(ctx, "app"); err != nil {
		t.Fatal(err)
	}
	if err := writeEpoch(data, epoch{"ramus-0", a.Epoch() + 1}); err != nil {
		t.Fatal(err)
	}
	if err := a.Check(ctx, "app"); !errors.Is(err, gitd.ErrFenced) {
		t.Errorf("a process of an earlier epoch: %v", err)
	}
	// A cluster that lost its leases does not begin again with epoch 1.
	fresh := newWorld(t)
	b := fresh.open(fresh.replica("ramus-0", data))
	if b.Epoch() != 3 {
		t.Errorf("the epoch is %d", b.Epoch())
	}
	if err := fresh.replica("ramus-1", data).Open(ctx); err == nil || !strings.Contains(err.Error(), "ramus-0") {
		t.Errorf("the folder of another replica: %v", err)
	}
}

// TestTakeAtOnce takes the lease of a process on this machine that has ended, and one that was given back.
func TestTakeAtOnce(t *testing.T) {
	w, data := newWorld(t), t.TempDir()
	a := w.replica("ramus-0", data)
	a.Process = "kernel:1:2"
	w.open(a)
	b := w.replica("ramus-0", data)
	b.Process = a.Process
	w.open(b) // without a move of the clock
	if b.Epoch() != 2 || !errors.Is(a.Check(t.Context(), "x"), gitd.ErrFenced) {
		t.Errorf("the epoch is %d, and the earlier process says %v", b.Epoch(), a.Check(t.Context(), "x"))
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := w.open(w.replica("ramus-0", data))
	if c.Epoch() != 3 || b.CheckLease() == nil {
		t.Errorf("the epoch is %d", c.Epoch())
	}
}

// TestLeaseRemoved makes the lease again that somebody removed, and watches begin again when they end.
func TestLeaseRemoved(t *testing.T) {
	w, ctx := newWorld(t), t.Context()
	a, b := w.open(w.replica("ramus-0", t.TempDir())), w.open(w.replica("ramus-1", t.TempDir()))
	if err := a.Client.Do(ctx, http.MethodDelete, a.leases.path("ramus-replica-ramus-0"), nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	await(t, "the new lease", func() bool { return slices.Contains(w.server.Names("test"), "ramus-replica-ramus-0") })
	if err := a.CheckLease(); err != nil {
		t.Error(err)
	}
	w.server.EndWatches()
	if err := a.Claim(ctx, "app"); err != nil {
		t.Fatal(err)
	}
	await(t, "the news", func() bool { _, ok := b.Find("app"); return ok })
}

// TestRefusals names what is wrong.
func TestRefusals(t *testing.T) {
	w, data := newWorld(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(data, epochFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.replica("ramus-0", data).Open(t.Context()); err == nil {
		t.Error("a damaged epoch was taken")
	}
	c := w.replica("Bad_Name", t.TempDir())
	if err := c.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot take its lease") {
		t.Errorf("a bad name: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	w.server.Refuse(func(*http.Request) bool { return true })
	if err := w.replica("ramus-0", t.TempDir()).Open(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a cluster that is down: %v", err)
	}
}
