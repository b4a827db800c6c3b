package gitea_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/forge/forgetest"
	"github.com/ramus-dev/ramus/gateway/gitea"
	"github.com/ramus-dev/ramus/internal/giteaserver"
)

const hookSecret = "the secret of the webhook"

// TestReal runs the suite of forges on a real Gitea.
func TestReal(t *testing.T) {
	program, err := giteaserver.Find()
	if os.Getenv("RAMUS_TEST") != "full" || err != nil {
		t.Skip("runs with RAMUS_TEST=full:", err)
	}
	s, err := giteaserver.Start(t.Context(), program, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &real{Server: s, tokens: map[string]string{}}
	for _, login := range []string{"ramus", "reviewer", "visitor"} {
		if r.tokens[login], err = s.AddUser(t.Context(), login); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Do(t.Context(), r.tokens["ramus"], http.MethodPost, "/orgs", map[string]any{"username": "acme"}, nil); err != nil {
		t.Fatal(err)
	}
	forgetest.Run(t, r.world)
}

// real is a Gitea with people.
type real struct {
	*giteaserver.Server
	tokens map[string]string // by login
	n      int
}

// world is a repository of the organization acme.
type world struct {
	*real
	t    *testing.T
	name string
	work string // a clone of the reviewer

	mu    sync.Mutex // guards hooks
	hooks []forgetest.Webhook
}

func (r *real) world(t *testing.T) forgetest.World {
	r.n++
	w := &world{real: r, t: t, name: fmt.Sprintf("app-%d", r.n), work: t.TempDir()}
	w.do("ramus", http.MethodPost, "/orgs/acme/repos",
		map[string]any{"name": w.name, "auto_init": true, "default_branch": "main", "private": true}, nil)
	w.do("ramus", http.MethodPut, w.path("collaborators/reviewer"), map[string]any{"permission": "write"}, nil)
	w.do("ramus", http.MethodPut, w.path("collaborators/visitor"), map[string]any{"permission": "read"}, nil)
	hook := httptest.NewServer(http.HandlerFunc(w.receive))
	t.Cleanup(hook.Close)
	w.do("ramus", http.MethodPost, w.path("hooks"), map[string]any{"type": "gitea", "active": true,
		"config": map[string]any{"url": hook.URL, "content_type": "json", "secret": hookSecret},
		"events": []string{"push", "delete", "pull_request", "pull_request_comment", "pull_request_review_approved",
			"pull_request_review_rejected", "pull_request_review_comment", "status", "issue_comment"}}, nil)
	w.git("clone", "-q", strings.Replace(r.URL, "://", "://reviewer:"+r.tokens["reviewer"]+"@", 1)+"/acme/"+w.name+
		".git", ".")
	return w
}

func (w *world) path(rest string) string { return "/repos/acme/" + w.name + "/" + rest }

func (w *world) do(login, method, path string, in, out any) {
	w.t.Helper()
	if err := w.Do(w.t.Context(), w.tokens[login], method, path, in, out); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) git(args ...string) string {
	w.t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=R", "-c", "user.email=reviewer@example.org"}, args...)...)
	cmd.Dir = w.work
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("git %v: %v: %s", args[0], err, out)
	}
	return strings.TrimSpace(string(out))
}

// receive keeps a webhook.
func (w *world) receive(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, forge.MaxDelivery))
	if err == nil {
		w.mu.Lock()
		w.hooks = append(w.hooks, forgetest.Webhook{Header: r.Header.Clone(), Body: body})
		w.mu.Unlock()
	}
}

func (w *world) Client(rt http.RoundTripper) forge.Forge { return client(w.URL, w.tokens["ramus"], rt) }
func (w *world) Repo() forge.Name                        { return forge.Name{Owner: "acme", Repo: w.name} }
func (w *world) Writer() string                          { return "reviewer" }
func (w *world) Reader() string                          { return "visitor" }

func (w *world) Push(branch string, files map[string]string) string {
	w.t.Helper()
	if strings.Contains(w.git("branch", "--list", branch), branch) {
		w.git("checkout", "-q", branch)
	} else {
		w.git("checkout", "-q", "-b", branch, "origin/main")
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(w.work, name), []byte(text), 0o644); err != nil {
			w.t.Fatal(err)
		}
	}
	w.git("add", "-A")
	w.git("commit", "-q", "-m", "Change")
	w.git("push", "-q", "origin", branch)
	return w.git("rev-parse", "HEAD")
}

func (w *world) Review(number int, state, body string, lines ...forgetest.Line) {
	w.t.Helper()
	event := map[string]string{forge.ReviewApproved: "APPROVED", forge.ReviewChanges: "REQUEST_CHANGES",
		forge.ReviewCommented: "COMMENT"}[state]
	var comments []map[string]any
	for _, l := range lines {
		comments = append(comments, map[string]any{"path": l.Path, "new_position": l.Line, "body": l.Body})
	}
	w.do("reviewer", http.MethodPost, w.path(fmt.Sprintf("pulls/%d/reviews", number)),
		map[string]any{"event": event, "body": body, "comments": comments}, nil)
}

func (w *world) Comment(user string, number int, body string) {
	w.t.Helper()
	w.do(user, http.MethodPost, w.path(fmt.Sprintf("issues/%d/comments", number)), map[string]any{"body": body}, nil)
}

func (w *world) Status(commit, name, state string) {
	w.t.Helper()
	w.do("reviewer", http.MethodPost, w.path("statuses/"+commit), map[string]any{"context": name, "state": state}, nil)
}

func (w *world) StatusOf(commit, name string) (state, text string) {
	w.t.Helper()
	var list []struct {
		ID                           int64
		Status, Context, Description string
	}
	w.do("reviewer", http.MethodGet, w.path("commits/"+commit+"/statuses"), nil, &list)
	newest := int64(0)
	for _, s := range list {
		if s.Context == name && s.ID > newest {
			newest, state, text = s.ID, s.Status, s.Description
		}
	}
	return state, text
}

func (w *world) Merge(number int) {
	w.t.Helper()
	// Gitea tests in the background whether a pull request can be merged.
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		err := w.Do(w.t.Context(), w.tokens["reviewer"], http.MethodPost, w.path(fmt.Sprintf("pulls/%d/merge", number)),
			map[string]any{"Do": "merge"}, nil)
		if err == nil {
			return
		}
		if time.Since(begin) > 30*time.Second {
			w.t.Fatal(err)
		}
	}
}

func (w *world) Close(number int) {
	w.t.Helper()
	w.do("reviewer", http.MethodPatch, w.path(fmt.Sprintf("pulls/%d", number)), map[string]any{"state": "closed"}, nil)
}

func (w *world) HasBranch(branch string) bool {
	return w.git("ls-remote", "origin", "refs/heads/"+branch) != ""
}

func (w *world) Webhooks() []forgetest.Webhook {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]forgetest.Webhook{}, w.hooks...)
}

func (w *world) Parse(hook forgetest.Webhook, secret bool) (forge.Delivery, error) {
	if !secret {
		return gitea.ParseDelivery(hook.Header, hook.Body, "another secret")
	}
	return gitea.ParseDelivery(hook.Header, hook.Body, hookSecret)
}
