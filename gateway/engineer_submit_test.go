package gateway_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gitd"
)

// TestSubmissions checks that an invalid submission is refused with a hint, and that a second submission with the same
// key returns the first task.
func TestSubmissions(t *testing.T) {
	t.Parallel()
	k := openShop(t, nil)
	ada := gitd.Person{Name: "Ada", Email: "ada@example.org"}
	for name, x := range map[string]struct {
		s    engineer.Submission
		want string
	}{
		"empty": {engineer.Submission{Description: " \n"}, "say what to build or fix"},
		"long":  {engineer.Submission{Description: strings.Repeat("x", 96_001)}, "put the details into a file"},
		"much context": {engineer.Submission{Description: "x", Context: strings.Repeat("x", 96_000)},
			"at most 96000 together"},
		"no repository":  {engineer.Submission{Description: "x", Repo: "nowhere"}, "nowhere"},
		"no base":        {engineer.Submission{Description: "x", Base: "nowhere"}, "nowhere"},
		"a run's branch": {engineer.Submission{Description: "x", Base: "ramus/run-a"}, "no base"},
		"no agent":       {engineer.Submission{Description: "x", Agent: "nobody"}, "known are scripted"},
		"no parent":      {engineer.Submission{Description: "x", Parent: "nobody"}, "nobody"},
	} {
		if _, err := k.engineer.Submit(t.Context(), x.s); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list, err := k.engineer.Tasks(t.Context(), engineer.TaskFilter{}); err != nil || len(list) != 0 {
		t.Fatalf("%v, %v", list, err)
	}
	var wg sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		wg.Go(func() {
			got, err := k.engineer.Submit(t.Context(),
				engineer.Submission{Description: "write once.txt x", Key: "the same", Asker: ada})
			if err != nil {
				t.Error(err)
			}
			ids[i] = got.ID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Fatalf("%v", ids)
		}
	}
	other, err := k.engineer.Submit(t.Context(),
		engineer.Submission{Description: "write once.txt x", Key: "the same", Asker: gitd.Person{Name: "Bob"}})
	if err != nil || other.ID == ids[0] {
		t.Errorf("somebody else's key: %+v, %v", other, err)
	}
	k.settled(ids[0], record.StateAwaitingReview)
	k.settled(other.ID, record.StateAwaitingReview)
	if n := len(k.repo.Pulls()); n != 2 {
		t.Errorf("%d pull requests", n)
	}
	if _, err := k.engineer.Task(t.Context(), "nobody"); !errors.Is(err, record.ErrNotFound) {
		t.Error(err)
	}
	if _, err := k.engineer.Retry(t.Context(), ids[0], ada); !errors.Is(err, record.ErrConflict) {
		t.Errorf("retried: %v", err)
	}
	got, err := k.engineer.Cancel(t.Context(), ids[0], true, ada)
	if err != nil || got.Status != record.StateFailed || !strings.Contains(got.Error, "cancelled by Ada") {
		t.Errorf("%+v, %v", got, err)
	}
	repo, err := k.Git.Repo("app")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := repo.Resolve(t.Context(), "refs/heads/ramus/conv-"+ids[0]); !errors.Is(err, gitd.ErrNotFound) {
		t.Errorf("its branch: %v", err)
	}
	if _, err := k.engineer.Say(t.Context(), ids[0], "k", "more", ada); !errors.Is(err, record.ErrConflict) {
		t.Errorf("spoken to: %v", err)
	}
	k.settled(ids[0], record.StateFailed)
	if pull := k.repo.Pull(got.PRNumber); pull.State != "open" || len(pull.Comments) != 1 ||
		!strings.Contains(pull.Comments[0].Body, "cancelled by Ada") {
		t.Errorf("%v", pull)
	}
}

// TestFamily checks the limits of the depth and number of tasks that tasks submit.
func TestFamily(t *testing.T) {
	t.Parallel()
	k := openShop(t, func(e *engineer.Engineer) { e.Upstream, e.Slack = nil, nil })
	submit := func(parent string) (record.Task, error) {
		return k.engineer.Submit(t.Context(), engineer.Submission{Description: "sleep 600", Parent: parent})
	}
	root, err := submit("")
	if err != nil {
		t.Fatal(err)
	}
	last := root
	for range 3 {
		if last, err = submit(last.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := submit(last.ID); !errors.Is(err, record.ErrConflict) || !strings.Contains(err.Error(), "deep") {
		t.Errorf("the fifth in a row: %v", err)
	}
	for range 4 {
		if last, err = submit(root.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := submit(root.ID); !errors.Is(err, record.ErrConflict) {
		t.Errorf("the sixth child: %v", err)
	}
	for range 3 {
		if _, err = submit(last.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := submit(last.ID); !errors.Is(err, record.ErrConflict) || !strings.Contains(err.Error(), "at work") {
		t.Errorf("the eleventh of the family: %v", err)
	}
}

// TestCancelledAtOnce cancels tasks while their work is being begun. Their branches must not be created again.
func TestCancelledAtOnce(t *testing.T) {
	t.Parallel()
	r := openWith(t, false, coder, withEngineer(t))
	r.repo(t, "app")
	for n := range 20 {
		task, err := r.Engineer.Submit(t.Context(), engineer.Submission{Description: "write made.txt made", Asker: ada})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(n) * 400 * time.Microsecond) // the moment of the cancel varies; every moment must work
		if _, err := r.Engineer.Cancel(t.Context(), task.ID, true, ada); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Engineer.Close(); err != nil { // Close waits for all work
		t.Fatal(err)
	}
	repo, err := r.Git.Repo("app")
	if err != nil {
		t.Fatal(err)
	}
	branches, err := repo.Refs(t.Context(), "refs/heads/ramus/")
	if err != nil || len(branches) > 0 {
		t.Errorf("%v, %v", branches, err)
	}
}
