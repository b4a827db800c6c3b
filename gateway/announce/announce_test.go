package announce_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/announce"
	"github.com/ramus-dev/ramus/gateway/retry"
	"github.com/ramus-dev/ramus/gateway/trigger"
	"github.com/ramus-dev/ramus/gitd"
)

const secret = "a secret of sixteen characters"

// receiver gets the webhooks. It refuses those that are not signed.
type receiver struct {
	t    *testing.T
	came chan announce.Push // each that was accepted

	mu      sync.Mutex // guards all below
	away    bool
	ids     map[string]int
	refused int
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids[q.Header.Get(announce.HeaderDelivery)]++
	if r.away {
		r.refused++
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if err != nil || q.Method != http.MethodPost || q.Header.Get(announce.HeaderEvent) != "push" ||
		q.Header.Get(trigger.HeaderSignature) != trigger.Sign(secret, q.Header.Get(trigger.HeaderTimestamp), body) {
		r.t.Errorf("%s %v %s", q.Method, q.Header, body)
	}
	var p announce.Push
	if err := json.Unmarshal(body, &p); err != nil {
		r.t.Error(err)
	}
	r.came <- p
}

func (r *receiver) setAway(away bool) {
	r.mu.Lock()
	r.away = away
	r.mu.Unlock()
}

// TestAnnounce sends a receiver each change of a branch or tag, also those of the time when it or the server was away.
func TestAnnounce(t *testing.T) {
	dir := t.TempDir()
	r := &receiver{t: t, came: make(chan announce.Push, 100), ids: map[string]int{}}
	site := httptest.NewServer(r)
	t.Cleanup(site.Close)
	git := &gitd.Server{Root: filepath.Join(dir, "repos")}
	tried := make(chan struct{})
	attempts := 0 // of the worker that fails
	var a *announce.Announcer
	git.Changed = func(repo string) { a.Changed(repo) }
	if err := git.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := git.Close(); err != nil {
			t.Error(err)
		}
	})
	open := func() {
		a = &announce.Announcer{Git: git, Dir: filepath.Join(dir, "webhooks"), URL: "https://ramus.example/",
			Log: slog.New(slog.DiscardHandler), Now: time.Now,
			Targets: []announce.Target{{Repo: "app", URL: site.URL + "/hook", Secret: secret},
				{Repo: "none", URL: site.URL, Secret: secret}},
			Sleep: func(ctx context.Context, _ time.Duration) error {
				if attempts++; attempts == 3 { // no attempt is under way when the process ends
					close(tried)
					<-ctx.Done()
				}
				return retry.Sleep(ctx, time.Millisecond)
			}}
		if err := a.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	repo, err := git.Create(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	commit := func() gitd.Hash {
		t.Helper()
		n++
		h, err := repo.WriteCommit(t.Context(),
			gitd.NewCommit{Author: gitd.Person{Name: "Ada", Email: "ada@example.org"}, When: time.Unix(int64(n), 0),
				Put: []gitd.File{{Path: "a", Content: []byte(strings.Repeat("x", n))}}})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	set := func(ref string, h gitd.Hash) {
		t.Helper()
		if err := repo.Update(t.Context(), gitd.RefUpdate{Name: ref, New: h}); err != nil {
			t.Fatal(err)
		}
		a.Changed("app")
	}
	next := func(ref string, before, after gitd.Hash) {
		t.Helper()
		want := announce.Push{Event: "push", Repo: "app", Ref: ref, Before: before, After: after,
			URL: "https://ramus.example/app.git"}
		if got := <-r.came; got != want {
			t.Errorf("received %+v, want %+v", got, want)
		}
	}
	first := commit()
	set("refs/heads/main", first)
	open()
	// Its first tips are no news.
	for seen := 0; seen == 0; {
		matches, err := filepath.Glob(filepath.Join(dir, "webhooks", "*.json"))
		if seen = len(matches); err != nil || retry.Sleep(t.Context(), time.Millisecond) != nil {
			t.Fatal("the tips are not written")
		}
	}
	second := commit()
	set("refs/heads/ramus/run-x", second)
	set("refs/heads/main", second)
	next("refs/heads/main", first, second)
	set("refs/tags/v1", first)
	next("refs/tags/v1", "", first)

	// While the receiver is away, changes add up. The next process sends them.
	r.setAway(true)
	third, fourth := commit(), commit()
	set("refs/heads/main", third)
	<-tried
	set("refs/heads/main", fourth)
	a.Close()
	r.setAway(false)
	open()
	next("refs/heads/main", second, fourth)
	set("refs/tags/v1", "")
	next("refs/tags/v1", first, "")
	set("refs/heads/main", second)
	next("refs/heads/main", fourth, second)
	a.Close()
	if len(r.came) != 0 {
		t.Errorf("sent twice: %+v", <-r.came)
	}
}
