package githubtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-github/v66/github"

	"github.com/ramus-dev/ramus/internal/standin/githubtest"
)

// ask sends a request as it is and returns the answer.
func (w *world) ask(method, path, token, body string, header ...string) (*http.Response, string) {
	w.t.Helper()
	req, err := http.NewRequest(method, w.hub.API()+strings.TrimPrefix(path, "/"), strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("User-Agent", "test")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp, string(text)
}

// pull opens a pull request of a branch with line 15 changed.
func (w *world) pull(branch string) {
	w.t.Helper()
	w.change(branch)
	_, _, err := w.api.PullRequests.Create(w.t.Context(), "acme", "app",
		&github.NewPullRequest{Title: github.String("Fix"), Head: github.String(branch), Base: github.String("main")})
	if err != nil {
		w.t.Fatal(err)
	}
}

const thePull = "repos/acme/app/pulls/1"

func TestWhoMayAsk(t *testing.T) {
	w := newWorld(t)
	w.pull("fix")
	if _, err := w.hub.AddRepo("other", ""); err != nil {
		t.Fatal(err)
	}
	w.hub.AddUser("stranger", "")
	reads := w.mint([]string{"app"}, &github.InstallationPermissions{Contents: github.String("read")})
	stranger, visitor := w.hub.AddToken("stranger", nil, nil), w.hub.AddToken("visitor", nil, nil)
	fine := w.hub.AddToken("developer", []string{"app"}, map[string]string{"pull_requests": "read"})
	for _, c := range []struct {
		name, method, path, token, body string
		status                          int
		said                            string
	}{
		{"nobody", "GET", thePull, "", "", 401, "Requires authentication"},
		{"somebody else", "GET", thePull, "ghs_invented", "", 401, "Bad credentials"},
		{"another repository", "GET", "repos/acme/other", w.token, "", 404, "Not Found"},
		{"another account", "GET", "repos/elsewhere/app", w.token, "", 404, "Not Found"},
		{"too little to read", "GET", thePull, reads, "", 403, "Resource not accessible by integration"},
		{"too little to write", "PATCH", thePull, fine, `{"title":"x"}`, 403,
			"Resource not accessible by personal access token"},
		{"fine-grained", "GET", thePull, fine, "", 200, `"number":1`},
		{"fine-grained elsewhere", "GET", "repos/acme/other", fine, "", 404, "Not Found"},
		{"a stranger", "GET", thePull, stranger, "", 404, "Not Found"},
		{"a reader", "GET", thePull, visitor, "", 200, `"number":1`},
		{"a reader who edits", "PATCH", thePull, visitor, `{"title":"x"}`, 403, "push access"},
		{"a reader who merges", "PUT", thePull + "/merge", visitor, "", 403, "push access"},
		{"an installation is no user", "GET", "user", w.token, "", 403, "Resource not accessible by integration"},
		{"a user", "GET", "user", visitor, "", 200, `"login":"visitor"`},
		{"only Apps check", "POST", "repos/acme/app/check-runs", visitor, `{"name":"x"}`, 403, "Resource not accessible"},
		{"no JSON", "POST", "repos/acme/app/pulls", w.token, `{`, 400, "Problems parsing JSON"},
		{"a version to come", "GET", thePull, w.token, "", 400, "version"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var header []string
			if c.status == 400 && c.method == "GET" {
				header = []string{"X-GitHub-Api-Version", "2099-01-01"}
			}
			resp, said := w.ask(c.method, c.path, c.token, c.body, header...)
			if resp.StatusCode != c.status || !strings.Contains(said, c.said) {
				t.Errorf("%d %s", resp.StatusCode, said)
			}
		})
	}
	if resp, _ := w.ask("GET", thePull, reads, ""); resp.Header.Get("X-Accepted-Github-Permissions") != "pull_requests=read" {
		t.Error(resp.Header)
	}
	w.hub.Revoke(fine)
	if resp, _ := w.ask("GET", thePull, fine, ""); resp.StatusCode != 401 {
		t.Error("a revoked token is taken")
	}
	w.clock.Add(time.Hour)
	if resp, _ := w.ask("GET", thePull, w.token, ""); resp.StatusCode != 401 {
		t.Error("an expired token is taken")
	}
	if resp, _ := w.ask("GET", thePull, visitor, ""); resp.StatusCode != 200 {
		t.Error("a user's token has expired")
	}
	w.complaints()
	// What only a mistake can earn.
	resp, _ := w.ask("GET", thePull, visitor, "", "User-Agent", "")
	if resp.StatusCode != 403 {
		t.Error("a request without a User-Agent is answered with", resp.Status)
	}
	w.ask("POST", "repos/acme/app/issues/1/comments", visitor, `{"body":"x","text":"y"}`)
	w.ask("GET", "repos/acme/app/milk", visitor, "")
	w.ask("GET", "repos/acme/app/pulls?head=fix", visitor, "")
	w.ask("GET", "repos/acme/app/pulls?per_page=1000", visitor, "")
	w.ask("GET", "repos/acme/app?access_token=x", visitor, "")
	w.complaints("User-Agent", `unknown field "text"`, "no route", "without an owner", "per_page=1000", "a token in the URL")
}

func TestTokensForMoreThanNeeded(t *testing.T) {
	w := newWorld(t)
	apps, ctx := w.client(w.bearer()).Apps, t.Context()
	mint := func(repos []string, p *github.InstallationPermissions) error {
		_, _, err := apps.CreateInstallationToken(ctx, w.hub.Installation,
			&github.InstallationTokenOptions{Repositories: repos, Permissions: p})
		return err
	}
	read := &github.InstallationPermissions{Contents: github.String("read")}
	w.refused(mint([]string{"none"}, read), 422, "does not exist or is not accessible")
	w.complaints()
	w.refused(mint([]string{"app"}, &github.InstallationPermissions{Secrets: github.String("read")}), 422,
		"not granted to this installation")
	w.complaints("secrets=read, which the installation has not got")
	for want, err := range map[string]error{
		"more than is needed":  mint([]string{"app"}, &github.InstallationPermissions{Issues: github.String("write")}),
		"for 0 repositories":   mint(nil, read),
		"with all permissions": mint([]string{"app"}, nil),
	} {
		if err != nil {
			t.Error(want, err)
		}
	}
	if got := strings.Join(w.hub.TakeComplaints(), "\n"); !strings.Contains(got, "more than is needed") ||
		!strings.Contains(got, "for 0 repositories") || !strings.Contains(got, "all permissions") {
		t.Error(got)
	}
	found, _, err := apps.FindRepositoryInstallation(ctx, "acme", "app")
	if err != nil || found.GetID() != w.hub.Installation {
		t.Error(found, err)
	}
}

func TestPullsThatAreRefused(t *testing.T) {
	w := newWorld(t)
	w.pull("fix")
	ctx, s := t.Context(), github.String
	if _, err := w.repo.Push("developer", "same", "x", nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		p    github.NewPullRequest
		said string
	}{
		{github.NewPullRequest{Title: s("T"), Head: s("none"), Base: s("main")}, "head"},
		{github.NewPullRequest{Title: s("T"), Head: s("fix"), Base: s("none")}, "base"},
		{github.NewPullRequest{Title: s("T"), Head: s("main"), Base: s("main")}, "No commits between main and main"},
		{github.NewPullRequest{Title: s("T"), Head: s("main"), Base: s("fix")}, "No commits between fix and main"},
		{github.NewPullRequest{Title: s(" "), Head: s("same"), Base: s("main")}, "title"},
		{github.NewPullRequest{Head: s("same"), Base: s("main")}, `"title" wasn't supplied`},
		{github.NewPullRequest{Title: s(strings.Repeat("t", 257)), Head: s("same"), Base: s("main")}, "title is too long"},
		{github.NewPullRequest{Title: s("T"), Head: s("same"), Base: s("main"), Body: s(strings.Repeat("ä", 65537))},
			"body is too long"},
		{github.NewPullRequest{Title: s("T"), Head: s("fix"), Base: s("main")}, "already exists"},
		{github.NewPullRequest{Title: s("T"), Head: s("elsewhere:fix"), Base: s("main")}, "head"},
	} {
		_, _, err := w.api.PullRequests.Create(ctx, "acme", "app", &c.p)
		w.refused(err, 422, c.said)
	}
	reviews := func(users ...string) error {
		_, _, err := w.api.PullRequests.RequestReviewers(ctx, "acme", "app", 1, github.ReviewersRequest{Reviewers: users})
		return err
	}
	w.refused(reviews("nobody"), 422, "not a collaborator")
	w.refused(reviews("reviewer", "nobody"), 422, "not a collaborator")
	if got := w.repo.Pull(1).Requested; len(got) != 0 {
		t.Error("some were asked:", got)
	}
	w.complaints()
	w.refused(reviews("ramus[bot]"), 422, "author")
	w.complaints("asked of its author")
	_, _, err := w.api.PullRequests.CreateReview(ctx, "acme", "app", 1,
		&github.PullRequestReviewRequest{Event: s("APPROVE")})
	w.refused(err, 422, "Can not approve your own pull request")
	_, _, err = w.api.PullRequests.CreateComment(ctx, "acme", "app", 1, &github.PullRequestComment{Body: s("x"),
		Path: s("a.txt"), Line: github.Int(2), CommitID: s(w.repo.Head("fix"))})
	w.refused(err, 422, "line must be part of the diff")
	_, _, err = w.api.PullRequests.CreateComment(ctx, "acme", "app", 1, &github.PullRequestComment{Body: s("x"),
		Path: s("b.txt"), Line: github.Int(1), CommitID: s(w.repo.Head("fix"))})
	w.refused(err, 422, "path must be part of the diff")
	_, _, err = w.api.PullRequests.CreateComment(ctx, "acme", "app", 1, &github.PullRequestComment{Body: s("x"),
		Path: s("a.txt"), Line: github.Int(15), CommitID: s(w.repo.Head("main"))})
	w.refused(err, 422, "commit_id")
	top, err := w.repo.CommentLine("reviewer", 1, "a.txt", 15, "Why?")
	if err != nil {
		t.Fatal(err)
	}
	answer, _, err := w.api.PullRequests.CreateCommentInReplyTo(ctx, "acme", "app", 1, "So.", top)
	if err != nil || answer.GetInReplyTo() != top {
		t.Fatal(answer, err)
	}
	_, _, err = w.api.PullRequests.CreateCommentInReplyTo(ctx, "acme", "app", 1, "And so.", answer.GetID())
	w.refused(err, 422, "in_reply_to")
	w.complaints("an answer itself")
	_, _, err = w.api.Issues.CreateComment(ctx, "acme", "app", 1, &github.IssueComment{Body: s(" ")})
	w.refused(err, 422, "blank")
	_, _, err = w.api.PullRequests.Merge(ctx, "acme", "app", 1, "", &github.PullRequestOptions{SHA: w.repo.Head("main")})
	w.refused(err, 409, "Head branch was modified")
	if _, err := w.repo.Push("developer", "main", "In the way",
		map[string]string{"a.txt": lines(1, 14) + "else\n" + lines(16, 30)}); err != nil {
		t.Fatal(err)
	}
	_, _, err = w.api.PullRequests.Merge(ctx, "acme", "app", 1, "", nil)
	w.refused(err, 405, "not mergeable")
}

func TestGitIsRefused(t *testing.T) {
	w := newWorld(t)
	w.pull("fix")
	reads := w.mint([]string{"app"}, &github.InstallationPermissions{Contents: github.String("read")})
	w.commit("1s/.*/one/")
	w.repo.Protect("main")
	push := func(token, ref, want string) {
		t.Helper()
		if out, err := w.git(token, "push", "origin", ref); err == nil || !strings.Contains(out, want) {
			t.Errorf("push %s: %v %s", ref, err, out)
		}
	}
	push("ghs_invented", "fix", "could not read Username")
	push(reads, "fix", "403")
	push(w.token, "HEAD:refs/heads/main", "GH006: Protected branch update failed for refs/heads/main")
	push(w.token, "HEAD:refs/pull/1/head", "hidden ref")
	if out, err := w.git(reads, "fetch", "origin"); err != nil {
		t.Error(out)
	}
	if err := os.MkdirAll(filepath.Join(w.work, ".github/workflows"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.work, ".github/workflows/ci.yml"), []byte("on: push\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	w.must("add", ".")
	w.must("commit", "-qm", "CI")
	push(w.token, "fix", "without `workflows` permission")
	// A person may.
	if out, err := w.git(w.hub.AddToken("reviewer", nil, nil), "push", "origin", "fix"); err != nil {
		t.Error(out)
	}
	if out, err := w.git(w.hub.AddToken("visitor", nil, nil), "push", "origin", "fix:other"); err == nil {
		t.Error(out)
	}
	if resp, err := http.Get(w.hub.Upstream("app") + "/info/refs?service=git-upload-pack"); err != nil ||
		resp.StatusCode != 401 || resp.Header.Get("WWW-Authenticate") == "" {
		t.Error(resp, err)
	} else {
		resp.Body.Close()
	}
	w.clock.Add(time.Hour)
	push(w.token, "fix", "could not read Username")
}

func TestBranchesDecideOverPulls(t *testing.T) {
	w := newWorld(t)
	w.pull("fix")
	// By force, by the App itself: GitHub takes it where no rule is against it.
	w.must("commit", "-q", "--amend", "-m", "Another")
	w.must("push", "-q", "--force", "origin", "fix")
	if got := w.repo.Pull(1); got.HeadSHA != w.must("rev-parse", "HEAD") {
		t.Error(got.HeadSHA)
	}
	last := func(event string) (d githubtest.Delivery) {
		for _, one := range w.hub.Deliveries() {
			if one.Event == event {
				d = one
			}
		}
		return d
	}
	if body := string(last("push").Body); !strings.Contains(body, `"forced":true`) {
		t.Error(body)
	}
	if _, err := w.repo.ForcePush("reviewer", "fix", "Theirs", map[string]string{"a.txt": "theirs\n"}); err != nil {
		t.Fatal(err)
	}
	if d := last("pull_request"); d.Action != "synchronize" || !strings.Contains(string(d.Body), `"login":"reviewer"`) {
		t.Error(string(d.Body))
	}
	// Gone, and back.
	if err := w.repo.DeleteBranch("developer", "fix"); err != nil {
		t.Fatal(err)
	}
	if got := w.repo.Pull(1); got.State != "closed" || got.Merged {
		t.Error(got)
	}
	if err := w.repo.Reopen("developer", 1); err == nil {
		t.Error("a pull request without a branch was reopened")
	}
	if _, err := w.repo.Git("update-ref", "refs/heads/fix", w.repo.Pull(1).HeadSHA); err != nil {
		t.Fatal(err)
	}
	if _, err := w.repo.Push("developer", "elsewhere", "So that it is seen", nil); err != nil {
		t.Fatal(err)
	}
	if err := w.repo.Reopen("developer", 1); err != nil {
		t.Error(err)
	}
	// What is pushed to the base as it is, is merged.
	w.must("fetch", "-q", "origin", "fix")
	if out, err := w.git(w.hub.AddToken("developer", nil, nil), "push", "-q", "origin", "FETCH_HEAD:main"); err != nil {
		t.Fatal(out)
	}
	if got := w.repo.Pull(1); got.State != "closed" || !got.Merged || got.MergeCommit != w.repo.Head("main") {
		t.Error(got)
	}
}

func TestMergeMethods(t *testing.T) {
	for method, parents := range map[string]int{"merge": 2, "squash": 1, "rebase": 1} {
		t.Run(method, func(t *testing.T) {
			w := newWorld(t)
			w.pull("fix")
			w.commit("1s/.*/one/")
			w.must("push", "-q", "origin", "fix")
			if _, err := w.repo.Push("developer", "main", "Meanwhile", map[string]string{"b.txt": "B\n"}); err != nil {
				t.Fatal(err)
			}
			before := w.repo.Head("main")
			sha, err := w.repo.Merge("developer", 1, method)
			if err != nil {
				t.Fatal(err)
			}
			text, err := w.repo.Git("show", "-s", "--format=%P", sha)
			if err != nil || len(strings.Fields(text)) != parents || sha != w.repo.Head("main") {
				t.Error(text, err)
			}
			count, err := w.repo.Git("rev-list", "--count", "--first-parent", before+".."+sha)
			if want := map[string]string{"merge": "1", "squash": "1", "rebase": "2"}[method]; err != nil || count != want {
				t.Error(count, err)
			}
			for path, want := range map[string]string{"a.txt": "one\nline 2", "b.txt": "B"} {
				if got, err := w.repo.File(sha, path); err != nil || !strings.HasPrefix(got, want) {
					t.Error(path, got, err)
				}
			}
		})
	}
}

func TestPagesAndTags(t *testing.T) {
	w := newWorld(t, func(s *githubtest.Server) { s.PostsPerMinute = -1 })
	w.pull("fix")
	for n := range 35 {
		if _, err := w.repo.Comment("reviewer", 1, fmt.Sprint(n)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, seen := t.Context(), 0
	options := &github.IssueListCommentsOptions{ListOptions: github.ListOptions{PerPage: 10}}
	for {
		list, resp, err := w.api.Issues.ListComments(ctx, "acme", "app", 1, options)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			if c.GetBody() != fmt.Sprint(seen) {
				t.Errorf("comment %d is %s", seen, c.GetBody())
			}
			seen++
		}
		if resp.NextPage == 0 {
			break
		}
		options.Page = resp.NextPage
	}
	if seen != 35 {
		t.Errorf("%d comments", seen)
	}
	path := "repos/acme/app/issues/1/comments"
	resp, text := w.ask("GET", path, w.token, "")
	if strings.Count(text, `"body":`) != 30 || !strings.Contains(resp.Header.Get("Link"), `page=2>; rel="next"`) {
		t.Error(resp.Header)
	}
	again, _ := w.ask("GET", path, w.token, "", "If-None-Match", resp.Header.Get("Etag"))
	if again.StatusCode != http.StatusNotModified || again.Header.Get("X-Ratelimit-Used") != resp.Header.Get("X-Ratelimit-Used") {
		t.Error(again.Status, again.Header)
	}
	if _, err := w.repo.Comment("reviewer", 1, "more"); err != nil {
		t.Fatal(err)
	}
	if more, _ := w.ask("GET", path+"?page=2", w.token, "", "If-None-Match", resp.Header.Get("Etag")); more.StatusCode != 200 {
		t.Error(more.Status)
	}
}

func TestLimits(t *testing.T) {
	w := newWorld(t, func(s *githubtest.Server) { s.Hourly, s.PostsPerMinute = 10, 3 })
	w.pull("fix")
	ctx := t.Context()
	say := func() error {
		_, _, err := w.client(w.token).Issues.CreateComment(ctx, "acme", "app", 1,
			&github.IssueComment{Body: github.String("x")})
		return err
	}
	for range 2 { // the third, after the pull request
		if err := say(); err != nil {
			t.Fatal(err)
		}
	}
	var abuse *github.AbuseRateLimitError
	if err := say(); !errors.As(err, &abuse) || abuse.GetRetryAfter() != time.Minute {
		t.Fatal(err)
	}
	w.clock.Add(time.Minute)
	if err := say(); err != nil {
		t.Fatal(err)
	}
	var limit *github.RateLimitError
	for range 10 {
		if _, _, err := w.client(w.token).PullRequests.Get(ctx, "acme", "app", 1); err != nil && !errors.As(err, &limit) {
			t.Fatal(err)
		}
	}
	if limit == nil || limit.Rate.Remaining != 0 || !limit.Rate.Reset.After(w.clock.Now()) {
		t.Fatal(limit)
	}
	w.clock.Add(limit.Rate.Reset.Sub(w.clock.Now()))
	w.token = w.mint([]string{"app"}, &github.InstallationPermissions{PullRequests: github.String("read")})
	if _, _, err := w.client(w.token).PullRequests.Get(ctx, "acme", "app", 1); err != nil {
		t.Fatal(err)
	}
}

func TestNothingIsLeft(t *testing.T) {
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	before := runtime.NumGoroutine()
	s := &githubtest.Server{Root: t.TempDir(), HookURL: "http://127.0.0.1:1"}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.AddUser("developer", "admin")
	r, err := s.AddRepo("app", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Push("developer", "main", "x", map[string]string{"x": "x"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Settle(ctx); err != nil || len(s.Undelivered()) != 1 {
		t.Error(err)
	}
	s.Down()
	if resp, err := http.Get(s.URL()); err == nil {
		resp.Body.Close()
		t.Error("somebody answers")
	}
	if err := s.Up(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for range 6000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines are left of %d", runtime.NumGoroutine(), before)
}
