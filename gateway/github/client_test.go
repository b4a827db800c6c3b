package github_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/github"
	"github.com/ramus-dev/ramus/internal/clocktest"
)

var repo = forge.Name{Owner: "acme", Repo: "app"}

const secretToken = "ghp_0123456789"

// hub is GitHub's API as far as one test needs it. It takes secretToken alone.
type hub struct {
	mux   *http.ServeMux
	http  *httptest.Server
	clock *clocktest.Clock

	mu     sync.Mutex      // guards all below
	asked  []string        // method, path and query of every request
	pauses []time.Duration // of the client
}

// newHub starts one at a path, as an Enterprise Server has it, and a client for it.
func newHub(t *testing.T) (*hub, *github.Client) {
	t.Helper()
	h := &hub{mux: http.NewServeMux(), clock: clocktest.At(time.Unix(1700000000, 0))}
	h.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.asked = append(h.asked, r.Method+" "+strings.TrimPrefix(r.URL.RequestURI(), "/api/v3"))
		h.mu.Unlock()
		if r.Header.Get("Authorization") != "Bearer "+secretToken {
			say(w, http.StatusUnauthorized, "Bad credentials")
			return
		}
		h.mux.ServeHTTP(w, r)
	}))
	t.Cleanup(h.http.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := &github.Client{URL: h.http.URL + "/api/v3", Tokens: github.Token(secretToken),
		HTTP: &http.Client{Transport: transport},
		Log:  slog.New(slog.DiscardHandler), Now: h.clock.Now,
		Sleep: func(ctx context.Context, d time.Duration) error {
			h.mu.Lock()
			h.pauses = append(h.pauses, d)
			h.mu.Unlock()
			h.clock.Add(d)
			return context.Cause(ctx)
		}}
	h.answer("GET /user", map[string]any{"login": "ramus"})
	return h, client
}

func (h *hub) handle(pattern string, f http.HandlerFunc) {
	method, path, _ := strings.Cut(pattern, " ")
	h.mux.HandleFunc(method+" /api/v3"+path, f)
}

func (h *hub) answer(pattern string, with any) {
	h.handle(pattern, func(w http.ResponseWriter, r *http.Request) { _ = json.NewEncoder(w).Encode(with) })
}

// count is how many requests began so.
func (h *hub) count(prefix string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range h.asked {
		if strings.HasPrefix(a, prefix) {
			n++
		}
	}
	return n
}

// say answers with a status and GitHub's message.
func say(w http.ResponseWriter, status int, message string, header ...string) {
	for i := 0; i < len(header); i += 2 {
		w.Header().Set(header[i], header[i+1])
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": message})
}

type object = map[string]any

func user(login string) object { return object{"login": login, "type": "User"} }

// thread is the comments of pull request 7 at one of its two places.
type thread struct {
	mu   sync.Mutex // guards list
	list []object
	// lost: what is posted is kept, and the answer gets lost so often.
	lost int
}

func (h *hub) thread(path string) *thread {
	th := &thread{}
	h.handle("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		th.mu.Lock()
		defer th.mu.Unlock()
		_ = json.NewEncoder(w).Encode(th.list)
	})
	h.handle("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		th.mu.Lock()
		defer th.mu.Unlock()
		var one object
		if err := json.NewDecoder(r.Body).Decode(&one); err != nil {
			say(w, http.StatusBadRequest, err.Error())
			return
		}
		one["id"], one["user"] = len(th.list)+1, user("Ramus")
		one["in_reply_to_id"] = one["in_reply_to"]
		th.list = append(th.list, one)
		if th.lost > 0 {
			th.lost--
			say(w, http.StatusBadGateway, "no")
			return
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(one)
	})
	return th
}

const (
	conversation = "/repos/acme/app/issues/7/comments"
	onLines      = "/repos/acme/app/pulls/7/comments"
)

func TestSayOnce(t *testing.T) {
	h, c := newHub(t)
	th := h.thread(conversation)
	th.lost = 1
	for range 3 {
		got, err := c.Say(t.Context(), repo, 7, "done", "task/1")
		if err != nil || got.ID != 1 || !got.Issue {
			t.Fatal(got, err)
		}
	}
	if _, err := c.Say(t.Context(), repo, 7, "done again", "task/2"); err != nil {
		t.Error(err)
	}
	if len(h.pauses) != 1 {
		t.Errorf("pauses %v for one answer that was lost of two", h.pauses)
	}
	// An issue's comment is answered in its issue.
	if got, err := c.Reply(t.Context(), repo, 7, forge.Comment{ID: 9, Issue: true}, "done", "task/1"); err != nil || got.ID != 1 {
		t.Error(got, err)
	}
	if len(th.list) != 2 {
		t.Errorf("posted %v", th.list)
	}
	if n := h.count("GET /user"); n != 1 {
		t.Errorf("asked %d times who ramus is", n)
	}
	if _, err := c.Say(t.Context(), repo, 7, "done", ""); err == nil {
		t.Error("posted without a mark")
	}
}

func TestSayAtOnce(t *testing.T) {
	h, c := newHub(t)
	th := h.thread(conversation)
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			if _, err := c.Say(t.Context(), repo, 7, "done", fmt.Sprint(i%4)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if len(th.list) != 4 {
		t.Errorf("%d posts for four marks", len(th.list))
	}
}

func TestMarksOfOthers(t *testing.T) {
	h, c := newHub(t)
	th := h.thread(conversation)
	first, err := c.Say(t.Context(), repo, 7, "one", "1")
	if err != nil {
		t.Fatal(err)
	}
	body := th.list[0]["body"].(string)
	mark := strings.TrimSpace(strings.TrimPrefix(body, "one"))
	th.list = []object{
		{"id": 1, "body": body, "user": user("mallory")},
		// Ramus itself quotes what somebody wrote.
		{"id": 2, "body": "> " + mark + "\n\nsomething else\n\n<!-- ramus:00000000000000000000000000000000 -->",
			"user": user("ramus")},
	}
	again, err := c.Say(t.Context(), repo, 7, "one", "1")
	if err != nil || again.ID != 3 || again.Body != first.Body {
		t.Error(again, err)
	}
	// GitHub may change the white space.
	th.list[2]["body"] = strings.ReplaceAll(body, "\n", "\r\n") + "\r\n"
	if again, err = c.Say(t.Context(), repo, 7, "one", "1"); err != nil || again.ID != 3 {
		t.Error(again, err)
	}
}

func TestReply(t *testing.T) {
	h, c := newHub(t)
	th := h.thread(onLines)
	th.lost = 2
	for _, to := range []forge.Comment{{ID: 5, Path: "a.go"}, {ID: 6, InReplyTo: 5, Path: "a.go"}} {
		for range 2 {
			got, err := c.Reply(t.Context(), repo, 7, to, "done", fmt.Sprint(to.ID))
			if err != nil || got.InReplyTo != 5 || got.Issue {
				t.Error(got, err)
			}
		}
	}
	if len(th.list) != 2 {
		t.Errorf("%d answers to two comments", len(th.list))
	}
}

func TestFailures(t *testing.T) {
	const second = time.Second
	for _, one := range []struct {
		status int
		header []string
		body   string
		want   error         // nil: it is asked again
		pause  time.Duration // the longest of the first two pauses; they may be half as long where the client chose
	}{
		{status: 404, want: forge.ErrNotFound}, {status: 410, want: forge.ErrNotFound},
		{status: 400, want: forge.ErrRefused}, {status: 401, want: forge.ErrRefused}, {status: 403, want: forge.ErrRefused},
		{status: 409, want: forge.ErrRefused}, {status: 422, want: forge.ErrRefused}, {status: 451, want: forge.ErrRefused},
		{status: 403, header: []string{"X-RateLimit-Remaining", "12"}, want: forge.ErrRefused},
		{status: 403, header: []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "in 100"}, pause: 101 * second},
		{status: 429, header: []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "in 100"}, pause: 101 * second},
		{status: 429, header: []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "99999999999"},
			pause: time.Hour + time.Minute},
		{status: 429, header: []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "soon"}, pause: 2 * time.Minute},
		{status: 429, header: []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "in 0"}, pause: 2 * time.Minute},
		{status: 429, header: []string{"X-RateLimit-Remaining", "12", "X-RateLimit-Reset", "99999999999"}, pause: 2 * time.Minute},
		{status: 429, header: []string{"Retry-After", "7"}, pause: 7 * second},
		{status: 403, header: []string{"Retry-After", "7"}, pause: 7 * second},
		{status: 429, header: []string{"Retry-After", "7", "X-RateLimit-Remaining", "12", "X-RateLimit-Reset", "in 100"}, pause: 7 * second},
		{status: 403, header: []string{"Retry-After", "999999999"}, pause: time.Hour + time.Minute},
		{status: 403, body: `{"message":"m","documentation_url":"https://docs.github.com/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits"}`, pause: 2 * time.Minute},
		{status: 500, pause: second}, {status: 502, pause: second},
		{status: 503, header: []string{"Retry-After", "3"}, pause: 3 * second},
		{status: 429, header: []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1699999999"},
			pause: 2 * time.Minute},
		{status: 200, body: "<html>", pause: second}, {status: 200, body: "null", pause: second}, {status: 200,
			body: "{}", pause: second}, {status: 500, body: "<html>", pause: second}, {status: 408, pause: second},
	} {
		t.Run(fmt.Sprint(one.status, one.header), func(t *testing.T) {
			h, c := newHub(t)
			n := 0
			h.handle("GET /repos/acme/app/pulls/7", func(w http.ResponseWriter, r *http.Request) {
				switch n++; {
				case n > 2:
					// That nothing is left is no reason not to take the answer.
					w.Header().Set("X-RateLimit-Remaining", "0")
					w.Header().Set("X-RateLimit-Reset", "99999999999")
					_, _ = io.WriteString(w, `{"number":7,"state":"open"}`)
				case one.body != "":
					w.WriteHeader(one.status)
					_, _ = io.WriteString(w, one.body)
				default:
					header := slices.Clone(one.header)
					for i := range header {
						if after, ok := strings.CutPrefix(header[i], "in "); ok {
							seconds, _ := strconv.ParseInt(after, 10, 64)
							header[i] = fmt.Sprint(h.clock.Now().Unix() + seconds)
						}
					}
					say(w, one.status, "the message", header...)
				}
			})
			for range 2 {
				p, err := c.Pull(t.Context(), repo, 7)
				if one.want == nil {
					if err != nil || p.Number != 7 || n < 3 {
						t.Fatal(p, err, n)
					}
					continue
				}
				if !errors.Is(err, one.want) || !strings.Contains(err.Error(), "the message") || strings.Contains(err.Error(), "http://") {
					t.Fatal(p, err, n)
				}
			}
			longest := slices.Max(append(h.pauses, 0))
			if longest > one.pause || longest < one.pause/2 {
				t.Errorf("pauses %v, want at most %v", h.pauses, one.pause)
			}
		})
	}
}

func TestDownUntilTheEnd(t *testing.T) {
	h, c := newHub(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	n := 0
	h.handle("GET /repos/acme/app/pulls/7", func(w http.ResponseWriter, r *http.Request) {
		if n++; n == 100 {
			cancel(why)
		}
		say(w, http.StatusServiceUnavailable, "down")
	})
	_, err := c.Pull(ctx, repo, 7)
	if !errors.Is(err, why) || errors.Is(err, forge.ErrRefused) || n != 100 {
		t.Error(err, n)
	}
	if last := h.pauses[len(h.pauses)-1]; last > time.Minute || last < 30*time.Second {
		t.Errorf("the last pause was %v", last)
	}
	ctx, cancel = context.WithCancelCause(t.Context())
	c.Sleep = func(ctx context.Context, d time.Duration) error { cancel(why); return context.Cause(ctx) }
	other := &github.Client{URL: "http://127.0.0.1:1", Tokens: c.Tokens, Log: c.Log, Now: c.Now, Sleep: c.Sleep}
	if _, err := other.Pull(ctx, repo, 7); !errors.Is(err, why) {
		t.Error(err)
	}
}

// TestTokenRenewed: a token that GitHub does not take any more is given up once.
func TestTokenRenewed(t *testing.T) {
	h, c := newHub(t)
	h.answer("GET /repos/acme/app/pulls/7", object{"number": 7})
	for _, one := range []struct {
		tokens []string
		good   bool
	}{{[]string{"old", secretToken}, true}, {[]string{"old", "older", secretToken}, false}} {
		tokens := &tokenList{list: one.tokens}
		other := &github.Client{URL: c.URL, Tokens: tokens, HTTP: c.HTTP, Log: c.Log, Now: c.Now, Sleep: c.Sleep}
		_, err := other.Pull(t.Context(), repo, 7)
		var refused *forge.RefusedError
		if one.good != (err == nil) || err != nil && (!errors.As(err, &refused) || !refused.OfToken()) {
			t.Errorf("%v: %v", one.tokens, err)
		}
		if len(tokens.list) < len(one.tokens)-1 {
			t.Errorf("%d of %d tokens are left", len(tokens.list), len(one.tokens))
		}
	}
	if len(h.pauses) > 0 {
		t.Errorf("pauses %v", h.pauses)
	}
}

type tokenList struct{ list []string }

func (l *tokenList) Token(context.Context, forge.Name, github.Access) (string, error) {
	return l.list[0], nil
}

func (l *tokenList) Forget(token string) {
	if token == l.list[0] {
		l.list = l.list[1:]
	}
}

func TestRedirects(t *testing.T) {
	h, c := newHub(t)
	strange := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("asked another host, with %q", r.Header.Get("Authorization"))
	}))
	defer strange.Close()
	at := h.thread("/repositories/12/issues/7/comments")
	for _, method := range []string{"GET", "POST"} {
		h.handle(method+" "+conversation, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, h.http.URL+"/api/v3/repositories/12/issues/7/comments?"+r.URL.RawQuery,
				http.StatusMovedPermanently)
		})
	}
	if got, err := c.Say(t.Context(), repo, 7, "done", "1"); err != nil || got.ID != 1 || len(at.list) != 1 {
		t.Error(got, err)
	}
	for i, to := range []string{strange.URL + "/x", strings.Replace(h.http.URL, "http://", "https://", 1),
		"http://u:p@" + strings.TrimPrefix(h.http.URL, "http://"), "",
		fmt.Sprintf("%s/api/v3/repos/acme/app/pulls/%d", h.http.URL, 14)} {
		number := 10 + i
		h.handle(fmt.Sprintf("GET /repos/acme/app/pulls/%d", number), func(w http.ResponseWriter, r *http.Request) {
			if to != "" {
				w.Header().Set("Location", to)
			}
			w.WriteHeader(http.StatusTemporaryRedirect)
		})
		if _, err := c.Pull(t.Context(), repo, number); !errors.Is(err, forge.ErrRefused) {
			t.Errorf("%q: %v", to, err)
		}
	}
}

// TestNames: what is no name never becomes a path.
func TestNames(t *testing.T) {
	h, c := newHub(t)
	for _, n := range []forge.Name{{}, {Owner: "acme"}, {Repo: "app"}, {Owner: "acme", Repo: ".."},
		{Owner: "..", Repo: "app"}, {Owner: "acme", Repo: "a/b"}, {Owner: "acme", Repo: "app?x"}} {
		if _, err := c.Pull(t.Context(), n, 7); !errors.Is(err, forge.ErrRefused) {
			t.Errorf("%q: %v", n, err)
		}
	}
	for _, ref := range []string{"", "..", "../../pulls", "a//b", "/a", "a/./b"} {
		if err := c.DeleteBranch(t.Context(), repo, ref); !errors.Is(err, forge.ErrRefused) {
			t.Errorf("%q: %v", ref, err)
		}
		if _, err := c.Checks(t.Context(), repo, ref); !errors.Is(err, forge.ErrRefused) {
			t.Errorf("%q: %v", ref, err)
		}
	}
	for _, login := range []string{"", "../x", "renovate[bot]", "a/b", "a?b"} {
		if may, err := c.CanWrite(t.Context(), repo, login); may || err != nil {
			t.Errorf("%q: %v %v", login, may, err)
		}
	}
	for _, url := range []string{"ftp://api.example.org/", "api.example.org", "https://", ":"} {
		other := &github.Client{URL: url, Tokens: c.Tokens}
		if _, err := other.Pull(t.Context(), repo, 7); !errors.Is(err, forge.ErrRefused) {
			t.Errorf("%q: %v", url, err)
		}
	}
	if _, err := (&github.Client{URL: c.URL}).Pull(t.Context(), repo, 7); !errors.Is(err, forge.ErrRefused) {
		t.Error(err)
	}
	if len(h.asked) > 0 {
		t.Errorf("asked %v", h.asked)
	}
}

func TestPages(t *testing.T) {
	h, c := newHub(t)
	pages := 3
	h.handle("GET "+onLines, func(w http.ResponseWriter, r *http.Request) {
		page := 1
		_, _ = fmt.Sscan(r.URL.Query().Get("page"), &page)
		if page < pages {
			w.Header().Set("Link", fmt.Sprintf(`<http://example.org/elsewhere?page=%d>; rel="next"`, page+1))
		}
		var list []object
		for i := range 100 {
			// The oldest are on the last page.
			list = append(list, object{"id": page*100 + i,
				"created_at": time.Unix(int64(1700000000-page*100+i), 0).UTC().Format(time.RFC3339)})
		}
		_ = json.NewEncoder(w).Encode(list)
	})
	h.answer("GET "+conversation, []object{{"id": 1, "created_at": "2001-01-01T00:00:00Z"}})
	all, err := c.Comments(t.Context(), repo, 7)
	if err != nil || len(all) != 301 || !all[0].Issue || all[1].ID != 300 || all[300].ID != 199 {
		t.Errorf("%d comments, %v", len(all), err)
	}
	pages = 1000
	if _, err := c.Comments(t.Context(), repo, 7); !errors.Is(err, forge.ErrRefused) {
		t.Error(err)
	}
	if n := h.count("GET " + onLines); n != 3+51 {
		t.Errorf("read %d pages", n)
	}
}

func pull(number int, head string, id int, state string) object {
	return object{"number": number, "state": state, "head": object{"ref": head, "repo": object{"id": id}},
		"base": object{"ref": "main", "repo": object{"id": 1}}}
}

func TestCreatePullOnce(t *testing.T) {
	h, c := newHub(t)
	var there []object
	h.handle("GET /repos/acme/app/pulls", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("head") != "acme:work" {
			t.Errorf("asked for %v", q)
		}
		var list []object
		for _, p := range there {
			if state := q.Get("state"); state == "all" || state == p["state"] {
				list = append(list, p)
			}
		}
		_ = json.NewEncoder(w).Encode(list)
	})
	h.handle("POST /repos/acme/app/pulls", func(w http.ResponseWriter, r *http.Request) {
		var ask object
		_ = json.NewDecoder(r.Body).Decode(&ask)
		if ask["title"] != "One line" || ask["draft"] != true {
			t.Errorf("asked for %v", ask)
		}
		if len(there) > 2 || ask["base"] != "main" {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w,
				`{"message":"Validation Failed","errors":[{"resource":"PullRequest","code":"custom","message":"No."},{"resource":"PullRequest","field":"base","code":"invalid"}]}`)
			return
		}
		there = append(there, pull(3, "work", 1, "open"))
		say(w, http.StatusInternalServerError, "lost")
	})
	// A pull request of a fork, and an old one.
	there = []object{pull(1, "work", 2, "open"), pull(2, "work", 1, "closed")}
	want := forge.NewPull{Head: "work", Base: "main", Title: "One\n line ", Draft: true}
	for range 2 {
		if p, err := c.CreatePull(t.Context(), repo, want); err != nil || p.Number != 3 || !p.Open {
			t.Error(p, err)
		}
	}
	want.Base = "gone"
	p, err := c.CreatePull(t.Context(), repo, want)
	if !errors.Is(err, forge.ErrRefused) || p.Number != 0 ||
		!strings.Contains(err.Error(), "Validation Failed; No.; PullRequest base invalid") {
		t.Error(p, err)
	}
}

func TestPull(t *testing.T) {
	h, c := newHub(t)
	h.answer("GET /repos/acme/app/pulls/7", object{"number": 7, "html_url": "https://example.org/7", "title": "T",
		"body": nil, "state": "closed", "merged": true,
		"merge_commit_sha": "abc", "head": object{"ref": "work", "sha": "def", "repo": nil},
		"base": object{"ref": "main"}, "user": nil,
		"requested_reviewers": []any{user("ann"), nil}, "labels": []any{object{"name": "bot"}, nil},
		"updated_at": "2024-01-02T03:04:05Z"})
	h.answer("GET /repos/acme/app/pulls/8", object{"number": 8, "state": "open", "merge_commit_sha": "abc"})
	p, err := c.Pull(t.Context(), repo, 7)
	if err != nil || p.Open || !p.Merged || p.MergeCommit != "abc" || p.HeadSHA != "def" || len(p.Requested) != 2 ||
		len(p.Labels) != 2 || p.UpdatedAt.Year() != 2024 {
		t.Error(p, err)
	}
	if p, err := c.Pull(t.Context(), repo, 8); err != nil || !p.Open || p.MergeCommit != "" {
		t.Error(p, err)
	}
}

func TestReviews(t *testing.T) {
	h, c := newHub(t)
	h.answer("GET /repos/acme/app/pulls/7/reviews", []any{
		object{"id": 2, "state": "APPROVED", "user": user("ann"), "submitted_at": "2024-01-02T03:04:06Z"},
		object{"id": 1, "state": "CHANGES_REQUESTED", "user": object{"login": "x[bot]", "type": "Bot"},
			"submitted_at": "2024-01-02T03:04:05Z"},
		object{"id": 3, "state": "PENDING"}})
	all, err := c.Reviews(t.Context(), repo, 7)
	if err != nil || len(all) != 2 || all[0].ID != 1 || all[0].State != forge.ReviewChanges || !all[0].Bot ||
		all[1].State != forge.ReviewApproved {
		t.Error(all, err)
	}
}

func TestRequestReview(t *testing.T) {
	h, c := newHub(t)
	var asked [][]string
	h.handle("POST /repos/acme/app/pulls/7/requested_reviewers", func(w http.ResponseWriter, r *http.Request) {
		var ask struct{ Reviewers []string }
		_ = json.NewDecoder(r.Body).Decode(&ask)
		asked = append(asked, ask.Reviewers)
		switch {
		case slices.Contains(ask.Reviewers, "author"):
			say(w, http.StatusUnprocessableEntity, "Review cannot be requested from pull request author.")
		case slices.Contains(ask.Reviewers, "nobody"):
			say(w, http.StatusNotFound, "Not Found")
		default:
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"number":7}`)
		}
	})
	for _, one := range []struct {
		users []string
		want  string
		err   error
	}{
		{nil, "[]", nil},
		{[]string{"ramus[bot]", ""}, "[]", nil},
		{[]string{"ann", "bob", "x[bot]"}, "[[ann bob]]", nil},
		{[]string{"ann", "author", "bob"}, "[[ann author bob] [ann] [author] [bob]]", nil},
		{[]string{"author"}, "[[author]]", nil},
		{[]string{"nobody"}, "[[nobody]]", forge.ErrNotFound},
	} {
		asked = nil
		err := c.RequestReview(t.Context(), repo, 7, one.users)
		if got := fmt.Sprint(asked); got != one.want || !errors.Is(err, one.err) {
			t.Errorf("%v: asked %s, want %s: %v", one.users, got, one.want, err)
		}
	}
}

func TestDeleteBranch(t *testing.T) {
	h, c := newHub(t)
	h.handle("DELETE /repos/acme/app/git/refs/heads/{branch...}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("branch") == "ramus/conv-1" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		say(w, http.StatusUnprocessableEntity, "no")
	})
	h.answer("GET /repos/acme/app/git/ref/heads/main", object{"ref": "refs/heads/main"})
	for branch, want := range map[string]error{"ramus/conv-1": nil, "gone": nil, "main": forge.ErrRefused} {
		if err := c.DeleteBranch(t.Context(), repo, branch); !errors.Is(err, want) {
			t.Errorf("%s: %v", branch, err)
		}
	}
}

func TestCanWrite(t *testing.T) {
	h, c := newHub(t)
	for login, level := range map[string]string{"ann": "admin", "bob": "write", "cy": "read", "di": "none"} {
		h.answer("GET /repos/acme/app/collaborators/"+login+"/permission", object{"permission": level})
	}
	for login, want := range map[string]bool{"ann": true, "bob": true, "cy": false, "di": false, "ed": false} {
		if may, err := c.CanWrite(t.Context(), repo, login); may != want || err != nil {
			t.Errorf("%s: %v %v", login, may, err)
		}
	}
}

func TestChecks(t *testing.T) {
	h, c := newHub(t)
	h.answer("GET /repos/acme/app/commits/abc/check-runs", object{"total_count": 2, "check_runs": []any{
		object{"id": 1, "name": "test", "head_sha": "abc", "status": "completed", "conclusion": "failure",
			"pull_requests": []any{object{"number": 7}},
			"output":        object{"title": "3 failed", "summary": "s", "text": nil},
			"check_suite":   object{"head_branch": "work"}}, nil}})
	h.answer("GET /repos/acme/app/commits/def/check-runs", nil)
	all, err := c.Checks(t.Context(), repo, "abc")
	if err != nil || len(all) != 2 || !all[0].Failed() || all[0].Branch != "work" || all[0].Title != "3 failed" ||
		fmt.Sprint(all[0].Pulls) != "[7]" || all[1].Failed() {
		t.Error(all, err)
	}
	if all, err := c.Checks(t.Context(), repo, "def"); err != nil || len(all) > 0 {
		t.Error(all, err)
	}
	for conclusion, want := range map[string]bool{"success": false, "failure": true, "timed_out": true,
		"startup_failure": true, "cancelled": false, "skipped": false, "neutral": false, "action_required": false,
		"": false} {
		if got := (forge.Check{Status: "completed", Conclusion: conclusion}).Failed(); got != want {
			t.Errorf("%s: %v", conclusion, got)
		}
	}
	if (forge.Check{Status: "in_progress", Conclusion: "failure"}).Failed() {
		t.Error("failed before its end")
	}
}

func TestEditAndLabel(t *testing.T) {
	h, c := newHub(t)
	var changes []object
	note := func(w http.ResponseWriter, r *http.Request) {
		var change object
		_ = json.NewDecoder(r.Body).Decode(&change)
		changes = append(changes, change)
		if r.Method == "PATCH" {
			_, _ = io.WriteString(w, `{"number":7}`)
			return
		}
		_, _ = io.WriteString(w, `[]`)
	}
	h.handle("PATCH /repos/acme/app/pulls/7", note)
	h.handle("POST /repos/acme/app/issues/7/labels", func(w http.ResponseWriter, r *http.Request) {
		var labels []string
		_ = json.NewDecoder(r.Body).Decode(&labels)
		changes = append(changes, object{"labels": labels})
		_, _ = io.WriteString(w, `[]`)
	})
	ctx := t.Context()
	_, err1 := c.EditPull(ctx, repo, 7, "new", "")
	_, err2 := c.EditPull(ctx, repo, 7, "", "text")
	err := errors.Join(err1, err2, c.AddLabels(ctx, repo, 7, nil), c.AddLabels(ctx, repo, 7, []string{"bot"}))
	if got := fmt.Sprint(changes); err != nil || got != "[map[title:new] map[body:text] map[labels:[bot]]]" {
		t.Error(got, err)
	}
}
