package githubtest_test

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-github/v66/github"

	"github.com/ramus-dev/ramus/internal/clocktest"
	"github.com/ramus-dev/ramus/internal/standin/githubtest"
)

// world is a stand-in with a repository and a clone of it that an App works in.
type world struct {
	t     *testing.T
	hub   *githubtest.Server
	repo  *githubtest.Repo
	clock *clocktest.Clock
	token string
	api   *github.Client
	work  string
}

func newWorld(t *testing.T, options ...func(*githubtest.Server)) *world {
	t.Helper()
	w := &world{t: t, clock: clocktest.At(time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC))}
	w.hub = githubtest.New(t, append([]func(*githubtest.Server){func(s *githubtest.Server) { s.Now = w.clock.Now }},
		options...)...)
	var err error
	if w.repo, err = w.hub.AddRepo("app", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := w.repo.Push("developer", "main", "Begin", map[string]string{"a.txt": lines(1, 30), "b.txt": "b\n"}); err != nil {
		t.Fatal(err)
	}
	w.api = w.client(w.bearer())
	w.token = w.mint([]string{"app"}, &github.InstallationPermissions{Contents: github.String("write"),
		PullRequests: github.String("write"), Checks: github.String("read")})
	w.api = w.client(w.token)
	w.work = t.TempDir()
	return w
}

func lines(from, to int) string {
	var b strings.Builder
	for n := from; n <= to; n++ {
		b.WriteString("line " + strconv.Itoa(n) + "\n")
	}
	return b.String()
}

// bearer is an assertion of the App's.
func (w *world) bearer() string {
	text, err := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.RegisteredClaims{Issuer: strconv.FormatInt(w.hub.App, 10),
		IssuedAt:  jwt.NewNumericDate(w.clock.Now().Add(-time.Minute)),
		ExpiresAt: jwt.NewNumericDate(w.clock.Now().Add(8 * time.Minute))}).SignedString(w.hub.Key)
	if err != nil {
		w.t.Fatal(err)
	}
	return text
}

func (w *world) client(token string) *github.Client {
	w.t.Helper()
	c, err := github.NewClient(nil).WithAuthToken(token).WithEnterpriseURLs(w.hub.API(), w.hub.API())
	if err != nil {
		w.t.Fatal(err)
	}
	c.UserAgent = "test"
	return c
}

func (w *world) mint(repos []string, p *github.InstallationPermissions) string {
	w.t.Helper()
	t, _, err := w.client(w.bearer()).Apps.CreateInstallationToken(w.t.Context(), w.hub.Installation,
		&github.InstallationTokenOptions{Repositories: repos, Permissions: p})
	if err != nil {
		w.t.Fatal(err)
	}
	return t.GetToken()
}

// git runs git in the clone with a token.
func (w *world) git(token string, args ...string) (string, error) {
	w.t.Helper()
	auth := base64.StdEncoding.EncodeToString([]byte("x-access-token:" + token))
	cmd := exec.Command("git", append([]string{"-C", w.work, "-c", "user.name=T", "-c", "user.email=t@example.org",
		"-c", "http.extraHeader=Authorization: Basic " + auth}, args...)...)
	cmd.Env = append(cmd.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (w *world) must(args ...string) string {
	w.t.Helper()
	out, err := w.git(w.token, args...)
	if err != nil {
		w.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return out
}

// change changes line 15 of a.txt in a new branch and pushes it.
func (w *world) change(branch string) {
	w.t.Helper()
	w.must("clone", "-q", w.hub.Upstream("app"), ".")
	w.must("switch", "-q", "-c", branch)
	w.commit("15s/.*/line fifteen/")
	w.must("push", "-q", "origin", branch)
}

func (w *world) commit(sed string) {
	w.t.Helper()
	if out, err := exec.Command("sed", "-i", sed, w.work+"/a.txt").CombinedOutput(); err != nil {
		w.t.Fatal(err, string(out))
	}
	w.must("commit", "-qam", sed)
}

// status is that of go-github's error.
func status(t *testing.T, err error) (int, string) {
	t.Helper()
	var e *github.ErrorResponse
	if !errors.As(err, &e) {
		t.Errorf("%v is no answer of GitHub's", err)
		return 0, ""
	}
	return e.Response.StatusCode, e.Error()
}

func (w *world) refused(err error, want int, text string) {
	w.t.Helper()
	if got, said := status(w.t, err); got != want || !strings.Contains(said, text) {
		w.t.Errorf("%d %s, want %d %s", got, said, want, text)
	}
}

func (w *world) complaints(want ...string) {
	w.t.Helper()
	got := w.hub.TakeComplaints()
	for i, c := range got {
		if i >= len(want) || !strings.Contains(c, want[i]) {
			w.t.Errorf("complaint %q", c)
		}
	}
	if len(got) < len(want) {
		w.t.Errorf("complaints %q, want %q", got, want)
	}
}

func TestThePathOfAPullRequest(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	w.change("fix")
	pulls, issues := w.api.PullRequests, w.api.Issues

	p, resp, err := pulls.Create(ctx, "acme", "app", &github.NewPullRequest{Title: github.String("Fix"),
		Head: github.String("fix"), Base: github.String("main"), Body: github.String("why")})
	if err != nil || p.GetNumber() != 1 || p.GetState() != "open" || p.GetUser().GetLogin() != "ramus[bot]" ||
		p.GetHead().GetSHA() != w.must("rev-parse", "HEAD") {
		t.Fatal(p, err)
	}
	if resp.Rate.Limit != 5000 || resp.Rate.Remaining != 4999 {
		t.Error(resp.Rate)
	}
	if _, _, err := pulls.Create(ctx, "acme", "app", &github.NewPullRequest{Title: github.String("Fix"),
		Head: github.String("fix"), Base: github.String("main")}); err == nil {
		t.Error("a second pull request")
	} else {
		w.refused(err, 422, "A pull request already exists for acme:fix.")
	}
	found, _, err := pulls.List(ctx, "acme", "app", &github.PullRequestListOptions{Head: "acme:fix", State: "all"})
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	if found, _, err = pulls.List(ctx, "acme", "app", &github.PullRequestListOptions{Head: "acme:other"}); err != nil || len(found) != 0 {
		t.Fatal(found, err)
	}

	// It is told whether it can be merged to who asks a second time.
	if p, _, err = pulls.Get(ctx, "acme", "app", 1); err != nil || p.Mergeable != nil && p.GetMergeable() {
		t.Fatal(p.Mergeable, err)
	}
	if p, _, err = pulls.Get(ctx, "acme", "app", 1); err != nil || !p.GetMergeable() || p.GetCommits() != 1 ||
		p.GetAdditions() != 1 || p.GetChangedFiles() != 1 {
		t.Fatal(p, err)
	}
	if _, _, err := pulls.Edit(ctx, "acme", "app", 1, &github.PullRequest{Title: github.String("Fix it")}); err != nil {
		t.Fatal(err)
	}
	if labels, _, err := issues.AddLabelsToIssue(ctx, "acme", "app", 1, []string{"ramus", "ramus"}); err != nil || len(labels) != 1 {
		t.Fatal(labels, err)
	}
	if _, _, err := issues.CreateComment(ctx, "acme", "app", 1, &github.IssueComment{Body: github.String("evidence")}); err != nil {
		t.Fatal(err)
	}

	// People review it.
	line, err := w.repo.CommentLine("reviewer", 1, "a.txt", 15, "Why?")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.repo.CommentLine("reviewer", 1, "a.txt", 2, "outside the diff"); err == nil {
		t.Error("a comment outside the diff")
	}
	if _, err := w.repo.Review("reviewer", 1, "changes_requested", "Say more.",
		githubtest.Line{Path: "a.txt", Line: 16, Body: "and here"}); err != nil {
		t.Fatal(err)
	}
	comments, _, err := pulls.ListComments(ctx, "acme", "app", 1, nil)
	if err != nil || len(comments) != 2 || comments[0].GetID() != line || comments[0].GetLine() != 15 ||
		!strings.HasSuffix(comments[0].GetDiffHunk(), "-line 15\n+line fifteen") ||
		!strings.HasPrefix(comments[0].GetDiffHunk(), "@@ -12,7 +12,7 @@") {
		t.Fatal(comments, err)
	}
	if _, _, err := pulls.CreateCommentInReplyTo(ctx, "acme", "app", 1, "because", line); err != nil {
		t.Fatal(err)
	}
	reviews, _, err := pulls.ListReviews(ctx, "acme", "app", 1, nil)
	if err != nil || len(reviews) != 3 || reviews[1].GetState() != "CHANGES_REQUESTED" || reviews[2].GetState() != "COMMENTED" {
		t.Fatal(reviews, err)
	}

	// The line is changed, so the first comment is outdated, and the second has moved.
	w.commit("15s/.*/line 15a\\nline 15b/")
	w.must("push", "-q", "origin", "fix")
	if comments, _, err = pulls.ListComments(ctx, "acme", "app", 1, nil); err != nil || comments[0].Line != nil ||
		comments[0].GetOriginalLine() != 15 || comments[1].GetLine() != 17 {
		t.Fatal(comments, err)
	}
	if _, _, err := pulls.RequestReviewers(ctx, "acme", "app", 1, github.ReviewersRequest{Reviewers: []string{"reviewer"}}); err != nil {
		t.Fatal(err)
	}
	if got := w.repo.Pull(1); !slices.Equal(got.Requested, []string{"reviewer"}) || got.Title != "Fix it" ||
		len(got.Comments) != 1 || len(got.Lines) != 3 {
		t.Fatal(got)
	}

	if _, err := w.repo.Check("fix", githubtest.Check{Name: "ci", Conclusion: "failure", Title: "1 test failed"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.repo.Check("fix", githubtest.Check{Name: "ci", Conclusion: "success"}); err != nil {
		t.Fatal(err)
	}
	checks, _, err := w.api.Checks.ListCheckRunsForRef(ctx, "acme", "app", w.repo.Head("fix"), nil)
	if err != nil || checks.GetTotal() != 1 || checks.CheckRuns[0].GetConclusion() != "success" ||
		len(checks.CheckRuns[0].PullRequests) != 1 {
		t.Fatal(checks, err)
	}
	if err := w.repo.Approve("reviewer", 1, ""); err != nil {
		t.Fatal(err)
	}
	sha, err := w.repo.Merge("developer", 1, "merge")
	if err != nil {
		t.Fatal(err)
	}
	if p, _, err = pulls.Get(ctx, "acme", "app", 1); err != nil || !p.GetMerged() || p.GetState() != "closed" ||
		p.GetMergeCommitSHA() != sha || p.GetMergedBy().GetLogin() != "developer" {
		t.Fatal(p, err)
	}
	if text, err := w.repo.File("main", "a.txt"); err != nil || !strings.Contains(text, "line 15b") {
		t.Fatal(text, err)
	}
	if _, err := w.api.Git.DeleteRef(ctx, "acme", "app", "refs/heads/fix"); err != nil {
		t.Fatal(err)
	}
	_, err = w.api.Git.DeleteRef(ctx, "acme", "app", "refs/heads/fix")
	w.refused(err, 422, "Reference does not exist")
	if out := w.must("ls-remote", "origin", "refs/pull/1/head", "refs/heads/*"); !strings.Contains(out,
		"refs/pull/1/head") || strings.Contains(out, "heads/fix") {
		t.Error(out)
	}

	var told []string
	for _, d := range w.hub.Deliveries() {
		told = append(told, strings.TrimSuffix(d.Event+"."+d.Action, "."))
		event, err := github.ParseWebHook(d.Event, d.Body)
		if err != nil {
			t.Errorf("%s: %v", d.Event, err)
		}
		if e, is := event.(*github.PullRequestReviewEvent); is && e.GetReview().GetState() != strings.ToLower(e.GetReview().GetState()) {
			t.Errorf("the state %s in an event", e.GetReview().GetState())
		}
	}
	want := []string{"push", "push", "pull_request.opened", "pull_request.edited", "pull_request.labeled",
		"issue_comment.created",
		"pull_request_review.submitted", "pull_request_review_comment.created", "pull_request_review.submitted",
		"pull_request_review_comment.created",
		"pull_request_review.submitted", "pull_request_review_comment.created", "push", "pull_request.synchronize",
		"pull_request.review_requested",
		"check_run.created", "check_run.completed", "check_run.created", "check_run.completed",
		"pull_request_review.submitted", "push", "pull_request.closed", "push"}
	if !slices.Equal(told, want) {
		t.Errorf("events %q\nwant   %q", told, want)
	}
}

func TestHooks(t *testing.T) {
	type got struct {
		id, event string
		valid     bool
	}
	heard := make(chan got, 100)
	fail := make(chan int, 10)
	secret := "the webhook's secret"
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case code := <-fail:
			w.WriteHeader(code)
			return
		default:
		}
		_, err := github.ValidatePayload(r, []byte(secret))
		heard <- got{github.DeliveryID(r), github.WebHookType(r),
			err == nil && strings.HasPrefix(r.UserAgent(), "GitHub-Hookshot/")}
	}))
	defer app.Close()
	w := newWorld(t, func(s *githubtest.Server) { s.HookURL, s.HookSecret = app.URL, secret })
	if g := <-heard; g.event != "push" || !g.valid {
		t.Fatal(g)
	}
	if a := w.hub.Ping(t.Context()); !a.OK() || (<-heard).event != "ping" {
		t.Fatal(a)
	}
	// One that fails is not repeated until somebody asks for it; with the same id then.
	fail <- 500
	if _, err := w.repo.Push("developer", "main", "More", map[string]string{"c.txt": "c"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := w.hub.Until(ctx, "the failed delivery",
		func() bool { u := w.hub.Undelivered(); return len(u) == 1 && len(u[0].Attempts) == 1 }); err != nil {
		t.Fatal(err)
	}
	lost := w.hub.Undelivered()[0]
	if a, err := w.hub.Deliver(ctx, lost.ID); err != nil || !a.OK() {
		t.Fatal(a, err)
	}
	if g := <-heard; g.id != lost.ID {
		t.Fatal(g)
	}
	w.hub.Hold()
	for _, name := range []string{"1", "2", "3"} {
		if _, err := w.repo.Push("developer", "main", name, map[string]string{"c.txt": name}); err != nil {
			t.Fatal(err)
		}
	}
	held := w.hub.Undelivered()
	if len(held) != 3 || len(heard) != 0 {
		t.Fatal(len(held), len(heard))
	}
	slices.Reverse(held)
	for _, d := range held {
		twin, err := w.hub.Copy(d.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{d.ID, d.ID, twin} {
			if a, err := w.hub.Deliver(ctx, id); err != nil || !a.OK() {
				t.Fatal(a, err)
			}
			if g := <-heard; g.id != id || !g.valid {
				t.Fatal(g)
			}
		}
	}
	// The App may ask for them itself.
	list, _, err := w.client(w.bearer()).Apps.ListHookDeliveries(ctx, nil)
	if err != nil || list[0].GetEvent() != "push" || list[0].GetStatusCode() != 200 {
		t.Fatal(list, err)
	}
	if _, _, err := w.client(w.bearer()).Apps.RedeliverHookDelivery(ctx, list[0].GetID()); err != nil &&
		!errors.As(err, new(*github.AcceptedError)) {
		t.Fatal(err)
	}
	if g := <-heard; g.id != list[0].GetGUID() {
		t.Fatal(g)
	}
}

func TestLostAnswers(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	w.change("fix")
	ask := &github.NewPullRequest{Title: github.String("Fix"), Head: github.String("fix"), Base: github.String("main")}
	w.hub.Fail(githubtest.Fault{Route: "POST /repos/{owner}/{repo}/pulls", Lose: true})
	if _, _, err := w.api.PullRequests.Create(ctx, "acme", "app", ask); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if n := len(w.repo.Pulls()); n != 1 {
		t.Fatalf("%d pull requests", n)
	}
	w.commit("3s/.*/x/")
	w.hub.Fail(githubtest.Fault{Route: "git-receive-pack", Skip: 1, Lose: true}) // after the list of refs
	if out, err := w.git(w.token, "push", "-q", "origin", "fix"); err == nil {
		t.Fatal(out)
	}
	if w.repo.Head("fix") != w.must("rev-parse", "HEAD") {
		t.Error("the push did not happen")
	}
	get := func() error {
		_, _, err := w.client(w.token).PullRequests.Get(ctx, "acme", "app", 1)
		return err
	}
	w.hub.Fail(githubtest.Fault{Route: "GET", Status: 502}, githubtest.Fault{Route: "GET", RetryAfter: 30 * time.Second})
	w.refused(get(), 502, "")
	err := get()
	var abuse *github.AbuseRateLimitError
	if !errors.As(err, &abuse) || abuse.GetRetryAfter() != 30*time.Second {
		t.Fatal(err)
	}
	if get() == nil {
		t.Error("an answer before the Retry-After ended")
	}
	w.complaints("before the end of the Retry-After")
	w.clock.Add(30 * time.Second)
	if err := get(); err != nil {
		t.Error(err)
	}
}
