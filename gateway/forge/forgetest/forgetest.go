// Package forgetest has the conformance suite of forges. It runs against real forges and stand-ins.
package forgetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/retry"
)

// World is a forge with an empty repository. Its branch main has the file README.md. Writer may push to it, Reader may
// only read and comment, and the client has the rights of ramus. All names are those that a Comment has.
type World interface {
	// Client returns a client of a new process, which knows nothing of those before it. It makes its requests by rt.
	Client(rt http.RoundTripper) forge.Forge
	Repo() forge.Name
	Writer() string
	Reader() string
	// The actions of people and programs. They fail the test if the forge refuses.
	Push(branch string, files map[string]string) (commit string) // by the writer
	Review(number int, state, body string, lines ...Line)        // by the writer
	Comment(user string, number int, body string)
	Status(commit, name, state string)
	// StatusOf returns a status that a client has set.
	StatusOf(commit, name string) (state, text string)
	Merge(number int)
	Close(number int)
	HasBranch(branch string) bool
	// Webhooks returns the webhooks so far.
	Webhooks() []Webhook
	// Parse checks and reads a webhook with the right secret, or with another one.
	Parse(w Webhook, secret bool) (forge.Delivery, error)
}

// Line is a line of a file to comment on.
type Line struct {
	Path string
	Line int
	Body string
}

// Webhook is a webhook as it arrives.
type Webhook struct {
	Header http.Header
	Body   []byte
}

// Run runs the suite. open returns a new world.
func Run(t *testing.T, open func(t *testing.T) World) {
	for name, f := range map[string]func(*testing.T, World){
		"loop": loop, "lost answers": lostAnswers, "missing": missing, "people": people, "texts": texts,
		"branches": branches, "webhooks": webhooks, "checks": checks, "statuses": statuses,
	} {
		t.Run(name, func(t *testing.T) { f(t, open(t)) })
	}
}

// Sleep is the Sleep of clients under test. Its pauses are short.
func Sleep(ctx context.Context, d time.Duration) error {
	return retry.Sleep(ctx, min(d, 5*time.Millisecond))
}

// transport is that of clients. It counts requests, and loses answers if it is told to.
type transport struct {
	next http.RoundTripper

	mu   sync.Mutex
	n    int
	lose bool            // each request that writes has its effect, and its first answer is lost
	lost map[string]bool // by method and path
}

func newTransport(t *testing.T) *transport {
	next := &http.Transport{}
	t.Cleanup(next.CloseIdleConnections)
	return &transport{next: next, lost: map[string]bool{}}
}

func (l *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	key := r.Method + " " + r.URL.Path
	resp, err := l.next.RoundTrip(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	if err == nil && l.lose && r.Method != http.MethodGet && !l.lost[key] {
		l.lost[key] = true
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		return nil, errors.New("the connection was cut")
	}
	return resp, err
}

func (l *transport) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

func (l *transport) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose, l.lost = true, map[string]bool{}
}

const (
	branch = "ramus/conv-1"
	file   = "made.txt"
)

// opened returns a pull request of the branch.
func opened(t *testing.T, w World, c forge.Forge) forge.Pull {
	t.Helper()
	w.Push(branch, map[string]string{file: "one\ntwo\nthree\n"})
	p, err := c.CreatePull(t.Context(), w.Repo(),
		forge.NewPull{Head: branch, Base: "main", Title: "Make a file", Body: "Because."})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// loop brings a pull request from its beginning to its end, and does everything twice, each time as another process.
func loop(t *testing.T, w World) {
	ctx, l := t.Context(), newTransport(t)
	var c forge.Forge
	twice := func(what string, do func() error) {
		t.Helper()
		for range 2 {
			c = w.Client(l)
			if err := do(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	repo := w.Repo()
	head := w.Push(branch, map[string]string{file: "one\ntwo\nthree\n"})
	var p forge.Pull
	var numbers []int
	twice("open", func() (err error) {
		p, err = c.CreatePull(ctx, repo, forge.NewPull{Head: branch, Base: "main", Title: "Make a\nfile", Body: "Because."})
		numbers = append(numbers, p.Number)
		return err
	})
	me, err := c.Me(ctx)
	if err != nil || me == "" {
		t.Fatalf("me is %q, %v", me, err)
	}
	if numbers[0] == 0 || numbers[0] != numbers[1] {
		t.Fatalf("pull requests %v", numbers)
	}
	p, err = c.Pull(ctx, repo, p.Number)
	if err != nil || p.Title != "Make a file" || p.Body != "Because." || !p.Open || p.Merged || p.Draft ||
		p.Head != branch || p.Base != "main" ||
		p.Author != me || !strings.HasPrefix(p.URL, "http") || !strings.HasPrefix(head, p.HeadSHA) || p.HeadSHA == "" {
		t.Fatalf("%+v, %v", p, err)
	}
	twice("edit", func() error {
		_, err := c.EditPull(ctx, repo, p.Number, "Make one file", "")
		if err == nil {
			_, err = c.EditPull(ctx, repo, p.Number, "", "Well.")
		}
		return err
	})
	if labeler, ok := c.(forge.Labeler); ok {
		twice("label", func() error { return labeler.AddLabels(ctx, repo, p.Number, []string{"ramus", "agent"}) })
	}
	twice("say", func() error { _, err := c.Say(ctx, repo, p.Number, "Please look.", "opened"); return err })
	w.Review(p.Number, forge.ReviewChanges, "Not yet.", Line{file, 2, "Why two?"})
	w.Comment(w.Reader(), p.Number, "@ramus well?")
	twice("answer", func() error {
		comments, err := c.Comments(ctx, repo, p.Number)
		for _, one := range comments {
			if err == nil && one.User != me {
				_, err = c.Reply(ctx, repo, p.Number, one, "Like this.", fmt.Sprint("answer ", one.Issue, one.ID))
			}
		}
		return err
	})
	checkConversation(t, w, c, p.Number, me)
	twice("request", func() error {
		reviews, err := c.Reviews(ctx, repo, p.Number)
		if i := slices.IndexFunc(reviews,
			func(r forge.Review) bool { return r.State == forge.ReviewChanges }); err == nil &&
			(i < 0 || reviews[i].User != w.Writer() || reviews[i].ID == 0) && len(numbers) == 2 {
			err = fmt.Errorf("reviews %+v", reviews)
		}
		numbers = append(numbers, 0) // a new request may end the state of the old review
		return errors.Join(err, c.RequestReview(ctx, repo, p.Number, []string{w.Writer(), "nobody-at-all", "a[bot]", me}))
	})
	w.Review(p.Number, forge.ReviewApproved, "")
	reviews, err := c.Reviews(ctx, repo, p.Number)
	if err != nil || len(reviews) == 0 || reviews[len(reviews)-1].State != forge.ReviewApproved ||
		reviews[len(reviews)-1].User != w.Writer() {
		t.Errorf("reviews %+v, %v", reviews, err)
	}
	w.Merge(p.Number)
	twice("clean up", func() error { return c.DeleteBranch(ctx, repo, branch) })
	if w.HasBranch(branch) {
		t.Error("the branch is there")
	}
	done, err := c.Pull(ctx, repo, p.Number)
	if err != nil || !done.Merged || done.Open || done.MergeCommit == "" || done.Title != "Make one file" || done.Body != "Well." {
		t.Errorf("%+v, %v", done, err)
	}
	if _, ok := c.(forge.Labeler); ok && (len(done.Labels) != 2 || !slices.Contains(done.Labels, "ramus")) {
		t.Errorf("labels %v", done.Labels)
	}
}

// checkConversation checks the comments of the loop, which were made once each.
func checkConversation(t *testing.T, w World, c forge.Forge, number int, me string) {
	t.Helper()
	all, err := c.Comments(t.Context(), w.Repo(), number)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	var asked forge.Comment
	for _, one := range all {
		what := "ours"
		switch {
		case strings.Contains(one.Body, "Why two?"):
			asked, what = one, "line"
			if one.Issue || one.Path != file || one.Line != 2 || one.Side != "RIGHT" || one.User != w.Writer() ||
				one.Bot || one.CreatedAt.IsZero() {
				t.Errorf("the comment on a line is %+v", one)
			}
		case strings.Contains(one.Body, "@ramus well?"):
			what = "reader"
			if !one.Issue || one.User != w.Reader() || one.Path != "" {
				t.Errorf("the comment in the conversation is %+v", one)
			}
		case strings.Contains(one.Body, "Please look."):
			what = "said"
		case strings.Contains(one.Body, "Like this.") && one.Issue:
			what = "answer"
		case strings.Contains(one.Body, "Like this."):
			what = "answer on the line"
			if one.Path != file || one.Line != 2 {
				t.Errorf("the answer on a line is %+v", one)
			}
		case one.User != me:
			what = "review"
		}
		if ours := what == "said" || strings.HasPrefix(what, "answer"); ours != (one.User == me) {
			t.Errorf("%s is by %s", what, one.User)
		}
		count[what]++
	}
	// Some forges have the text of a review among the comments. It was answered too then.
	if count["line"] != 1 || count["reader"] != 1 || count["said"] != 1 || count["answer on the line"] != 1 ||
		count["answer"] != 1+count["review"] || asked.ID == 0 {
		t.Errorf("comments %v: %+v", count, all)
	}
}

// lostAnswers loses the answer to every request that writes.
func lostAnswers(t *testing.T, w World) {
	ctx, l := t.Context(), newTransport(t)
	c := w.Client(l)
	repo := w.Repo()
	w.Push(branch, map[string]string{file: "one\ntwo\nthree\n"})
	l.drop()
	p, err := c.CreatePull(ctx, repo, forge.NewPull{Head: branch, Base: "main", Title: "Make a file", Body: "Because."})
	if err != nil {
		t.Fatal(err)
	}
	w.Review(p.Number, forge.ReviewCommented, "", Line{file, 2, "Why two?"})
	comments, err := c.Comments(ctx, repo, p.Number)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(comments, func(m forge.Comment) bool { return m.Path == file })
	if i < 0 {
		t.Fatalf("comments %+v", comments)
	}
	l.drop()
	said, err := c.Say(ctx, repo, p.Number, "Please look.", "one")
	if err != nil || said.ID == 0 {
		t.Errorf("%+v, %v", said, err)
	}
	l.drop()
	answer, err := c.Reply(ctx, repo, p.Number, comments[i], "Like this.", "two")
	if err != nil || answer.ID == 0 {
		t.Errorf("%+v, %v", answer, err)
	}
	l.drop()
	if _, err := c.EditPull(ctx, repo, p.Number, "Make it", "Why not."); err != nil {
		t.Error(err)
	}
	l.drop()
	if err := c.DeleteBranch(ctx, repo, branch); err != nil {
		t.Error(err)
	}
	comments, err = c.Comments(ctx, repo, p.Number)
	ours := slices.DeleteFunc(comments, func(m forge.Comment) bool { return !strings.Contains(m.Body, "ramus:") })
	if err != nil || len(ours) != 2 {
		t.Errorf("%d posts, want 2: %+v, %v", len(ours), ours, err)
	}
	if again, err := c.Pull(ctx, repo, p.Number+1); !errors.Is(err, forge.ErrNotFound) {
		t.Errorf("there is a second pull request: %+v, %v", again, err)
	}
}

// missing checks the errors for objects that do not exist, and that names of no object cause no request.
func missing(t *testing.T, w World) {
	ctx, l := t.Context(), newTransport(t)
	c := w.Client(l)
	repo := w.Repo()
	final := func(err error) bool { return errors.Is(err, forge.ErrNotFound) || errors.Is(err, forge.ErrRefused) }
	if _, err := c.Pull(ctx, repo, 999); !errors.Is(err, forge.ErrNotFound) {
		t.Errorf("a missing pull request: %v", err)
	}
	if _, err := c.Pull(ctx, forge.Name{Owner: repo.Owner, Repo: "none"}, 1); !final(err) {
		t.Errorf("a missing repository: %v", err)
	}
	if _, err := c.Say(ctx, repo, 999, "x", "m"); !final(err) {
		t.Errorf("a comment on a missing pull request: %v", err)
	}
	if p, err := c.CreatePull(ctx, repo, forge.NewPull{Head: "none", Base: "main", Title: "T"}); !final(err) || p.Number != 0 {
		t.Errorf("a pull request of a missing branch: %+v, %v", p, err)
	}
	if err := c.DeleteBranch(ctx, repo, "none"); err != nil {
		t.Errorf("a missing branch: %v", err)
	}
	if err := c.DeleteBranch(ctx, forge.Name{Owner: repo.Owner, Repo: "none"}, "x"); !final(err) {
		t.Errorf("a branch of a missing repository: %v", err)
	}
	if _, err := c.Say(ctx, repo, 1, "x", ""); err == nil {
		t.Error("a post without a mark was made")
	}
	before := l.count()
	for _, n := range []forge.Name{{}, {Owner: "acme"}, {Repo: "app"}, {Owner: repo.Owner, Repo: ".."},
		{Owner: "..", Repo: "app"}, {Owner: repo.Owner, Repo: "a/b"}, {Owner: repo.Owner, Repo: "app?x"}} {
		if _, err := c.Pull(ctx, n, 1); !errors.Is(err, forge.ErrRefused) {
			t.Errorf("the name %q: %v", n, err)
		}
	}
	for _, ref := range []string{"", "..", "a/../b", "/a", ".x"} {
		if err := c.DeleteBranch(ctx, repo, ref); !errors.Is(err, forge.ErrRefused) {
			t.Errorf("the branch %q: %v", ref, err)
		}
		if _, err := c.Checks(ctx, repo, ref); !errors.Is(err, forge.ErrRefused) {
			t.Errorf("the commit %q: %v", ref, err)
		}
	}
	if n := l.count() - before; n != 0 {
		t.Errorf("%d requests were made for names of nothing", n)
	}
	gone, cancel := context.WithCancelCause(ctx)
	why := errors.New("why")
	cancel(why)
	if _, err := c.Pull(gone, repo, 1); !errors.Is(err, why) {
		t.Errorf("a request after the end: %v", err)
	}
}

// people checks who may write.
func people(t *testing.T, w World) {
	c := w.Client(newTransport(t))
	for user, want := range map[string]bool{w.Writer(): true, w.Reader(): false, "nobody-at-all": false, "": false,
		"../x": false, "a b": false, "a[bot]": false} {
		if got, err := c.CanWrite(t.Context(), w.Repo(), user); err != nil || got != want {
			t.Errorf("%q may write: %v, %v", user, got, err)
		}
	}
	if _, err := c.CanWrite(t.Context(), forge.Name{Owner: w.Repo().Owner, Repo: "none"}, w.Writer()); err != nil &&
		!errors.Is(err, forge.ErrRefused) && !errors.Is(err, forge.ErrNotFound) {
		t.Errorf("in a missing repository: %v", err)
	}
}

// texts checks long and strange texts.
func texts(t *testing.T, w World) {
	ctx := t.Context()
	c := w.Client(newTransport(t))
	repo := w.Repo()
	w.Push(branch, map[string]string{file: "one\ntwo\nthree\n"})
	long := "```\n" + strings.Repeat("ä line\n", 20_000)
	p, err := c.CreatePull(ctx, repo,
		forge.NewPull{Head: branch, Base: "main", Title: strings.Repeat("ü", 400), Body: long, Draft: true})
	if err != nil {
		t.Fatal(err)
	}
	p, err = c.Pull(ctx, repo, p.Number)
	if err != nil || !p.Draft || !p.Open || !strings.HasSuffix(p.Title, "…") || !strings.Contains(p.Body, "exceeds") {
		t.Errorf("draft %v, open %v, %d bytes of title, %d of body, %v", p.Draft, p.Open, len(p.Title), len(p.Body), err)
	}
	for range 2 {
		if said, err := c.Say(ctx, repo, p.Number, long+"\xff", "long"); err != nil || said.ID == 0 {
			t.Errorf("%d: %v", said.ID, err)
		}
	}
	all, err := c.Comments(ctx, repo, p.Number)
	if err != nil || len(all) != 1 || !strings.HasPrefix(all[0].Body, "```\nä line\n") {
		t.Errorf("%d comments, %v", len(all), err)
	}
}

// branches checks that a branch with slashes is one branch, and the pull request of another branch is another one.
func branches(t *testing.T, w World) {
	ctx := t.Context()
	c := w.Client(newTransport(t))
	repo := w.Repo()
	first := opened(t, w, c)
	w.Push("ramus/conv-1b", map[string]string{"other.txt": "other\n"})
	second, err := c.CreatePull(ctx, repo, forge.NewPull{Head: "ramus/conv-1b", Base: "main", Title: "Other"})
	if err != nil || second.Number == first.Number {
		t.Errorf("%+v, %v", second, err)
	}
	w.Close(first.Number)
	if p, err := c.Pull(ctx, repo, first.Number); err != nil || p.Open || p.Merged || p.MergeCommit != "" {
		t.Errorf("%+v, %v", p, err)
	}
	if err := c.DeleteBranch(ctx, repo, branch); err != nil || w.HasBranch(branch) || !w.HasBranch("ramus/conv-1b") {
		t.Errorf("%v: %v, %v", err, w.HasBranch(branch), w.HasBranch("ramus/conv-1b"))
	}
}

// checks checks the results of programs.
func checks(t *testing.T, w World) {
	ctx := t.Context()
	c := w.Client(newTransport(t))
	sha := w.Push(branch, map[string]string{file: "one\n"})
	if all, err := c.Checks(ctx, w.Repo(), sha); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	w.Status(sha, "build", "pending")
	w.Status(sha, "lint", "success")
	first, err := c.Checks(ctx, w.Repo(), sha)
	if err != nil || len(first) != 2 {
		t.Fatalf("%+v, %v", first, err)
	}
	w.Status(sha, "build", "failure")
	all, err := c.Checks(ctx, w.Repo(), sha)
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, one := range all {
		switch {
		case one.ID == 0 || one.Commit != sha,
			one.Name == "build" && !one.Failed(),
			one.Name == "lint" && (one.Failed() || one.Status != "completed" || one.Conclusion != "success"):
			t.Errorf("%+v", one)
		}
	}
	again, err := c.Checks(ctx, w.Repo(), sha)
	if err != nil || !slices.EqualFunc(all, again, func(a, b forge.Check) bool { return a.ID == b.ID && a.Name == b.Name }) {
		t.Errorf("%+v is another time %+v, %v", all, again, err)
	}
}

// statuses sets the status of ramus again and again. It is no check that failed.
func statuses(t *testing.T, w World) {
	ctx := t.Context()
	sha := w.Push(branch, map[string]string{file: "one\n"})
	for _, c := range []struct{ state, text string }{
		{forge.StatusPending, "not verified: no check ran"}, {forge.StatusPending, "not verified: no check ran"},
		{forge.StatusFailure, "tests failed\n" + strings.Repeat("long ", 100)}, {forge.StatusSuccess, "verified"},
	} {
		client := w.Client(newTransport(t))
		set := client.(forge.Statuser).SetStatus
		if err := set(ctx, w.Repo(),
			forge.Status{Commit: sha, State: c.state, Text: c.text, URL: "https://ramus.example/run"}); err != nil {
			t.Fatal(err)
		}
		state, text := w.StatusOf(sha, forge.StatusName)
		if want, _, _ := strings.Cut(c.text, "\n"); state != c.state || !strings.HasPrefix(text, want) || len([]rune(text)) > 140 {
			t.Errorf("%q %q, want %q %q", state, text, c.state, want)
		}
		all, err := client.Checks(ctx, w.Repo(), sha)
		if err != nil || slices.ContainsFunc(all, forge.Check.Failed) {
			t.Errorf("%+v, %v", all, err)
		}
	}
	for _, commit := range []string{"", "../x", strings.Repeat("0", 40) + "/x"} {
		if err := w.Client(newTransport(t)).(forge.Statuser).SetStatus(ctx, w.Repo(),
			forge.Status{Commit: commit, State: forge.StatusSuccess}); !errors.Is(err, forge.ErrRefused) {
			t.Errorf("%q: %v", commit, err)
		}
	}
}

// webhooks checks that every event arrives, and that none is read with another secret.
func webhooks(t *testing.T, w World) {
	c := w.Client(newTransport(t))
	p := opened(t, w, c)
	sha := w.Push(branch, map[string]string{file: "one\ntwo\n"})
	w.Status(sha, "build", "failure")
	w.Comment(w.Reader(), p.Number, "@ramus well?")
	w.Review(p.Number, forge.ReviewApproved, "", Line{file, 1, "Good."})
	w.Merge(p.Number)
	want := map[string]bool{"push": true, "pull": true, "turned": true, "check": true}
	deadline := time.Now().Add(30 * time.Second)
	for len(want) > 0 && time.Now().Before(deadline) {
		for _, hook := range w.Webhooks() {
			d, err := w.Parse(hook, true)
			if err != nil {
				t.Fatalf("%v: %s", err, hook.Body)
			}
			if d.ID == "" || d.Event == "" || d.Digest == "" || !d.Repo.Is(w.Repo()) {
				t.Fatalf("%+v", d)
			}
			if _, err := w.Parse(hook, false); !errors.Is(err, forge.ErrSignature) {
				t.Fatalf("another secret: %v", err)
			}
			bare := Webhook{http.Header{"Content-Type": {"application/json"}}, hook.Body}
			if _, err := w.Parse(bare, true); !errors.Is(err, forge.ErrSignature) {
				t.Fatalf("no signature: %v", err)
			}
			if slices.Contains(d.Pushes, forge.Push{Ref: "refs/heads/" + branch}) {
				delete(want, "push")
			}
			if d.Number == p.Number {
				delete(want, "pull")
			}
			if d.Turned && d.Number == p.Number {
				delete(want, "turned")
			}
			if d.Check != nil && d.Check.Commit == sha && d.Check.Failed() {
				delete(want, "check")
			}
		}
		if len(want) > 0 {
			time.Sleep(20 * time.Millisecond) // a real forge sends them in the background
		}
	}
	if len(want) > 0 {
		t.Errorf("no webhook for %v", want)
	}
}
