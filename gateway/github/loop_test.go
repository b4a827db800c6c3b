package github_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/github"
	"github.com/ramus-dev/ramus/internal/clocktest"
	"github.com/ramus-dev/ramus/internal/standin/githubtest"
)

// office is a stand-in of GitHub with a branch to open a pull request of, and
// clients of the App that come and go.
type office struct {
	t     *testing.T
	hub   *githubtest.Server
	repo  *githubtest.Repo
	clock *clocktest.Clock
	http  *http.Client
}

func newOffice(t *testing.T, options ...func(*githubtest.Server)) *office {
	t.Helper()
	o := &office{t: t, clock: clocktest.At(time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC))}
	o.hub = githubtest.New(t, append(options, func(s *githubtest.Server) { s.Now = o.clock.Now })...)
	var err error
	if o.repo, err = o.hub.AddRepo("app", ""); err != nil {
		t.Fatal(err)
	}
	for _, b := range [][2]string{{"main", "one\ntwo\n"}, {"ramus/conv-1", "one\n2\n"}} {
		if _, err := o.repo.Push("developer", b[0], "Write", map[string]string{"a.txt": b[1]}); err != nil {
			t.Fatal(err)
		}
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	o.http = &http.Client{Transport: transport}
	return o
}

// client is one of a new process, which knows nothing of those before it. Its
// pauses are those of the office's clock.
func (o *office) client() *github.Client {
	return &github.Client{URL: o.hub.API(), HTTP: o.http, Log: slog.New(slog.DiscardHandler), Now: o.clock.Now,
		Tokens: &github.App{ID: o.hub.App, Key: o.hub.Key, URL: o.hub.API(), HTTP: o.http, Now: o.clock.Now},
		Sleep: func(ctx context.Context, d time.Duration) error {
			o.clock.Add(d)
			return context.Cause(ctx)
		}}
}

// loop brings a pull request from its beginning to its end, and does everything
// twice, each time as another process.
func (o *office) loop() {
	t, ctx := o.t, o.t.Context()
	twice := func(what string, do func(c *github.Client) error) {
		t.Helper()
		for range 2 {
			if err := do(o.client()); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	var p forge.Pull
	twice("open", func(c *github.Client) (err error) {
		p, err = c.CreatePull(ctx, repo,
			forge.NewPull{Head: "ramus/conv-1", Base: "main", Title: "Write two as 2", Body: "Because."})
		return err
	})
	twice("edit", func(c *github.Client) error {
		_, err := c.EditPull(ctx, repo, p.Number, "Write two as a number", "")
		return err
	})
	twice("label", func(c *github.Client) error { return c.AddLabels(ctx, repo, p.Number, []string{"ramus"}) })
	twice("say", func(c *github.Client) error {
		_, err := c.Say(ctx, repo, p.Number, "Please look.", "opened")
		return err
	})
	if _, err := o.repo.Review("reviewer", p.Number, "changes_requested", "Not yet.",
		githubtest.Line{Path: "a.txt", Line: 2, Body: "Why?"}); err != nil {
		t.Fatal(err)
	}
	if _, err := o.repo.Comment("reviewer", p.Number, "@ramus well?"); err != nil {
		t.Fatal(err)
	}
	twice("answer", func(c *github.Client) error {
		comments, err := c.Comments(ctx, repo, p.Number)
		for _, one := range comments {
			if err == nil && one.User == "reviewer" {
				_, err = c.Reply(ctx, repo, p.Number, one, "Like this.", fmt.Sprint("answer ", one.Issue, one.ID))
			}
		}
		return err
	})
	twice("request", func(c *github.Client) error {
		reviews, err := c.Reviews(ctx, repo, p.Number)
		if err == nil && (len(reviews) == 0 || reviews[0].State != forge.ReviewChanges) {
			err = fmt.Errorf("reviews %v", reviews)
		}
		return errors.Join(err, c.RequestReview(ctx, repo, p.Number, []string{"reviewer", "ramus[bot]", "nobody"}))
	})
	if err := o.repo.Approve("reviewer", p.Number, "Good."); err != nil {
		t.Fatal(err)
	}
	if _, err := o.repo.Merge("reviewer", p.Number, "squash"); err != nil {
		t.Fatal(err)
	}
	twice("clean up", func(c *github.Client) error { return c.DeleteBranch(ctx, repo, "ramus/conv-1") })
	twice("see", func(c *github.Client) error {
		found, err := c.Pull(ctx, repo, p.Number)
		if err == nil && (!found.Merged || found.MergeCommit == "" || found.Author != "ramus[bot]") {
			err = fmt.Errorf("found %+v", found)
		}
		return err
	})

	if all := o.repo.Pulls(); len(all) != 1 {
		t.Fatalf("%d pull requests", len(all))
	}
	got := o.repo.Pull(p.Number)
	var said []string
	for _, c := range slices.Concat(got.Comments, got.Lines) {
		text, _, _ := strings.Cut(c.Body, "\n")
		said = append(said, fmt.Sprintf("%s: %s (%v)", c.User, text, c.ReplyTo != 0))
	}
	slices.Sort(said)
	want := []string{"ramus[bot]: Like this. (false)", "ramus[bot]: Like this. (true)", "ramus[bot]: Please look. (false)",
		"reviewer: @ramus well? (false)", "reviewer: Why? (false)"}
	if !slices.Equal(said, want) {
		t.Errorf("said\n%s\nwant\n%s", strings.Join(said, "\n"), strings.Join(want, "\n"))
	}
	if got.Title != "Write two as a number" || got.Body != "Because." || !slices.Equal(got.Labels, []string{"ramus"}) {
		t.Errorf("%+v", got)
	}
	if head := o.repo.Head("ramus/conv-1"); head != "" {
		t.Errorf("the branch is at %s", head)
	}
}

func TestLoop(t *testing.T) {
	newOffice(t).loop()
}

// TestLoopInBadWeather checks that every post is made once, even if its request or its answer is lost.
func TestLoopInBadWeather(t *testing.T) {
	for name, f := range map[string]githubtest.Fault{
		"cut": {Cut: true}, "lost": {Lose: true}, "broken": {Status: 502}, "limited": {RetryAfter: 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOffice(t)
			for _, route := range []string{"POST /app/installations/{installation_id}/access_tokens",
				"POST /repos/{owner}/{repo}/pulls",
				"PATCH /repos/{owner}/{repo}/pulls/{pull_number}", "POST /repos/{owner}/{repo}/issues/{issue_number}/labels",
				"POST /repos/{owner}/{repo}/issues/{issue_number}/comments",
				"POST /repos/{owner}/{repo}/pulls/{pull_number}/comments",
				"POST /repos/{owner}/{repo}/pulls/{pull_number}/requested_reviewers",
				"DELETE /repos/{owner}/{repo}/git/refs/{ref...}",
				"GET /repos/{owner}/{repo}/pulls", "GET /app"} {
				f.Route, f.Times = route, 2
				o.hub.Fail(f)
			}
			o.loop()
		})
	}
	t.Run("any", func(t *testing.T) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 0))
		for range 3 {
			o := newOffice(t)
			for range 30 {
				f := []githubtest.Fault{{Cut: true}, {Lose: true}, {Status: 500}, {RetryAfter: time.Second}}[r.IntN(4)]
				f.Route, f.Skip = []string{"GET", "POST", "PATCH", "DELETE"}[r.IntN(4)], r.IntN(10)
				o.hub.Fail(f)
			}
			o.loop()
			o.hub.Heal()
		}
	})
}

// TestHourIsUsedUp: the client waits for the next hour's requests.
func TestHourIsUsedUp(t *testing.T) {
	o := newOffice(t, func(s *githubtest.Server) { s.Hourly, s.PostsPerMinute = 20, 3 })
	begin := o.clock.Now()
	o.loop()
	if passed := o.clock.Now().Sub(begin); passed < time.Hour {
		t.Errorf("only %v have passed", passed)
	}
}

// TestNothingChanged: what has not changed costs nothing, and what has is seen.
func TestNothingChanged(t *testing.T) {
	o := newOffice(t, func(s *githubtest.Server) { s.Hourly = 12 })
	c, ctx := o.client(), t.Context()
	p, err := c.CreatePull(ctx, repo, forge.NewPull{Head: "ramus/conv-1", Base: "main", Title: "T"})
	if err != nil {
		t.Fatal(err)
	}
	begin := o.clock.Now()
	for range 30 {
		got, err := c.Pull(ctx, repo, p.Number)
		comments, again := c.Comments(ctx, repo, p.Number)
		if err := errors.Join(err, again); err != nil || got.Title != "T" || len(comments) > 0 {
			t.Fatal(got, comments, err)
		}
	}
	if _, err := o.repo.Comment("reviewer", p.Number, "Look!"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if comments, err := c.Comments(ctx, repo, p.Number); err != nil || len(comments) != 1 || comments[0].Body != "Look!" {
			t.Error(comments, err)
		}
	}
	if passed := o.clock.Now().Sub(begin); passed > time.Minute {
		t.Errorf("waited %v for the next hour", passed)
	}
}

// TestTokensOfTheApp: one for each repository and access, good for that alone,
// and another before it ends.
func TestTokensOfTheApp(t *testing.T) {
	o := newOffice(t)
	ctx := t.Context()
	c := o.client()
	for range 3 {
		_, err := c.Checks(ctx, repo, o.repo.Head("main"))
		_, again := c.CanWrite(ctx, repo, "reviewer")
		if err := errors.Join(err, again); err != nil {
			t.Fatal(err)
		}
	}
	if n := o.hub.Minted(); n != 2 {
		t.Errorf("%d tokens, want one for checks and one for the rest", n)
	}
	o.clock.Add(50 * time.Minute)
	if _, err := c.CanWrite(ctx, repo, "reviewer"); err != nil {
		t.Fatal(err)
	}
	if n := o.hub.Minted(); n != 3 {
		t.Errorf("%d tokens, want another before the first ends", n)
	}
	found := 0
	for _, r := range o.hub.Requests() {
		if strings.HasSuffix(r.Path, "/installation") {
			found++
		}
	}
	if found != 1 {
		t.Errorf("asked %d times where it is installed", found)
	}
	for _, other := range []forge.Name{{Owner: "acme", Repo: "none"}, {Owner: "nobody", Repo: "app"}} {
		if _, err := c.Pull(ctx, other, 1); !errors.Is(err, forge.ErrNotFound) && !errors.Is(err, forge.ErrRefused) {
			t.Errorf("%v: %v", other, err)
		}
	}
	app := c.Tokens.(*github.App)
	first, err := app.Token(ctx, repo, github.AccessWrite)
	if err != nil {
		t.Fatal(err)
	}
	app.Forget(first)
	if second, err := app.Token(ctx, repo, github.AccessWrite); err != nil || second == first {
		t.Errorf("a token that was to be forgotten is given out again: %v", err)
	}
	for name, bad := range map[string]struct {
		repo forge.Name
		a    github.Access
	}{"no repository": {forge.Name{}, github.AccessRead}, "no access": {repo, ""}, "another access": {repo, "admin"}} {
		if token, err := app.Token(ctx, bad.repo, bad.a); !errors.Is(err, forge.ErrRefused) || token != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	o.hub.TakeComplaints() // of what was asked wrongly on purpose
}
