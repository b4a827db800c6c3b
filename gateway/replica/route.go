package replica

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/ramus-dev/ramus/gateway/gather"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
)

// Elsewhere returns the handler of a call that another replica answers, or nil. It is [route.Mux.Elsewhere].
func (f *Front) Elsewhere(c *route.Call, r route.Route, local bool) http.Handler {
	if route.Via(c.R.Context()) != "" {
		return nil // it was passed on once
	}
	if repo := f.repoOf(c, r); repo != "" {
		return f.passRepo(c.R, repo, local)
	}
	if f.Home != f.Group.Name && isOfPeople(r) {
		return f.pass(passing{replica: f.Home, local: local})
	}
	return f.gathered(r, local)
}

// passRepo returns the handler of a request for a repository that another replica answers, or nil.
func (f *Front) passRepo(r *http.Request, repo string, local bool) http.Handler {
	if f.isHere(r.Context(), repo) {
		// A move is not held by itself.
		if isMove(r) || f.passGate(r.Context(), repo, isPush(r)) != nil || f.isHere(r.Context(), repo) {
			return f.answerLost(r, repo)
		}
	}
	return f.pass(passing{repo: repo, local: local})
}

// Pass returns the handler of a request for work that another replica answers, or nil. It is [gather.Others].
func (f *Front) Pass(r *http.Request, w gather.Work, local bool) http.Handler {
	repo := w.Repo
	if repo == "" {
		repo = f.places.find(r.Context(), f, w)
	}
	if repo == "" {
		return nil
	}
	return f.passRepo(r, repo, local)
}

// PassTo returns the handler of a request for another replica, or nil. It is [gather.Others].
func (f *Front) PassTo(replica string, local bool) http.Handler {
	if replica == f.Group.Name {
		return nil
	}
	if _, ok := f.Group.Named(replica); !ok {
		return nil
	}
	return f.pass(passing{replica: replica, local: local})
}

// isPush reports whether a request pushes to a repository.
func isPush(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/git-receive-pack") }

// isMove reports whether a request moves a repository.
func isMove(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, "/api/repos/") && strings.HasSuffix(r.URL.Path, "/move")
}

// isHere reports whether this replica answers for a repository: its own, and those that no replica has.
func (f *Front) isHere(ctx context.Context, repo string) bool {
	if gitd.CheckName(repo) != nil {
		return true // which refuses it
	}
	owner, ok := f.Group.Find(repo)
	if !ok {
		// Another replica may have made it a moment ago.
		if _, err := f.Git.Repo(repo); err == nil || !f.places.mayLook(repo) {
			return true
		}
		owner, ok = f.Group.Look(ctx, repo)
	}
	if ok && owner.Self {
		f.arrive(ctx, repo)
	}
	return !ok || owner.Self
}

// IsElsewhere reports whether another replica owns a repository.
func (f *Front) IsElsewhere(repo string) bool {
	owner, ok := f.Group.Find(repo)
	return ok && !owner.Self
}

// repoOf returns the repository that a call is for. Returns "" if it is for none, or for one that is not known.
func (f *Front) repoOf(c *route.Call, r route.Route) string {
	if r.Access == route.AccessGit {
		return gitd.RepoOf(c.R.URL.Path)
	}
	if repo := c.R.PathValue("repo"); repo != "" {
		return repo
	}
	if strings.Contains(r.Pattern, "{run}") || strings.Contains(r.Pattern, "{caller}") || strings.Contains(r.Pattern, "{workspace}") ||
		strings.Contains(r.Pattern, "{task}") {
		if repo := f.repoOfWork(c); repo != "" {
			return repo
		}
	}
	q := c.R.URL.Query()
	if name := c.R.PathValue("tournament"); name != "" {
		return f.places.find(c.R.Context(), f, gather.Work{Tournament: name})
	}
	if id := c.R.PathValue("share"); id != "" {
		return f.places.find(c.R.Context(), f, gather.Work{Link: id})
	}
	for _, key := range []string{"repo", "repository"} {
		if repo := q.Get(key); repo != "" {
			return repo
		}
	}
	for _, key := range []string{"caller", "of"} {
		if caller := q.Get(key); caller != "" && strings.HasPrefix(r.Pattern, "/api/") {
			if repo := f.places.find(c.R.Context(), f, gather.Work{Caller: callerOf(caller)}); repo != "" {
				return repo
			}
		}
	}
	if isOfBody(r) {
		return f.repoInBody(c)
	}
	return ""
}

// repoOfWork returns the repository of the caller or the run in the path of a call.
func (f *Front) repoOfWork(c *route.Call) string {
	ctx := c.R.Context()
	if run := c.R.PathValue("run"); run != "" {
		if caller := c.R.PathValue("caller"); caller != "" && !strings.Contains(run, "/") {
			run = caller + "/" + run
		}
		return f.places.find(ctx, f, gather.Work{Run: run})
	}
	for _, key := range []string{"caller", "workspace", "task"} {
		if name := c.R.PathValue(key); name != "" {
			if of, ok := workspace.CallerOf(name); ok {
				name = of.String()
			}
			return f.places.find(ctx, f, gather.Work{Caller: name})
		}
	}
	return ""
}

// isOfBody reports whether the body of a request may name its repository.
func isOfBody(r route.Route) bool {
	return r.Method == http.MethodPost && (strings.HasPrefix(r.Pattern, "/api/") || slices.Contains(forms, r.Pattern) ||
		r.Access == route.AccessHook) && r.Pattern != "/api/repos" && !isOfPeople(r)
}

// forms are the paths of forms that name a repository, or a workspace to begin from.
var forms = []string{"/dashboard/ask", "/workspaces/new", "/workspaces/warm"}

const (
	// peekMax bounds the part of a body that is read to find its repository, in bytes, and peekWait the time.
	peekMax  = 1 << 20
	peekWait = 30 * time.Second
	formType = "application/x-www-form-urlencoded"
)

// repoInBody reads the first value of a body, and returns the repository in it. The rest of a body may be the input of a
// command, which a person still types.
func (f *Front) repoInBody(c *route.Call) string {
	if c.R.Body == nil || c.R.ContentLength == 0 {
		return ""
	}
	rc := http.NewResponseController(c.W)
	_ = rc.EnableFullDuplex() // HTTP/2 always is
	_ = rc.SetReadDeadline(time.Now().Add(peekWait))
	defer rc.SetReadDeadline(time.Time{})
	var seen bytes.Buffer
	head := io.TeeReader(io.LimitReader(c.R.Body, peekMax), &seen)
	var first []byte
	if strings.HasPrefix(c.R.Header.Get("Content-Type"), formType) {
		first, _ = io.ReadAll(head)
	} else {
		var value json.RawMessage
		_ = json.NewDecoder(head).Decode(&value)
		first = value
	}
	rest := c.R.Body
	c.R.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&seen, rest), rest}
	repo, caller := named(first, c.R.Header.Get("Content-Type"))
	if caller != "" {
		if found := f.places.find(c.R.Context(), f, gather.Work{Caller: caller}); found != "" {
			return found
		}
	}
	return repo
}

// named returns the repository and the caller that a body names, as far as it names any. What is no such text is not an
// error here, because the owner of the route refuses it.
func named(body []byte, contentType string) (repo, caller string) {
	if strings.HasPrefix(contentType, formType) {
		q, _ := url.ParseQuery(string(body))
		if of, ok := workspace.CallerOf(q.Get("from")); ok {
			caller = of.String()
		}
		return cmp.Or(q.Get("repo"), q.Get("repository")), cmp.Or(q.Get("caller"), caller)
	}
	var m struct {
		Repo       json.RawMessage `json:"repo"`
		Repository json.RawMessage `json:"repository"`
		Caller     json.RawMessage `json:"caller"`
		Of         string          `json:"of"`
		Workflow   string          `json:"workflow"`
	}
	if json.Unmarshal(body, &m) != nil {
		return "", ""
	}
	repo, caller = text(m.Repo), text(m.Caller)
	if repo == "" {
		repo = text(m.Repository)
	}
	if repo == "" && m.Workflow != "" {
		var w struct {
			Repo struct {
				ID string `yaml:"id"`
			} `yaml:"repo"`
		}
		_ = yaml.Unmarshal([]byte(m.Workflow), &w)
		repo = w.Repo.ID
	}
	if caller == "" && m.Of != "" {
		caller = callerOf(m.Of)
	}
	return repo, caller
}

// callerOf returns the caller of a name like CALLER, CALLER/RUN, CALLER@STEP or CALLER/RUN@STEP.
func callerOf(name string) string {
	name, _, _ = strings.Cut(name, "/")
	name, _, _ = strings.Cut(name, "@")
	return name
}

// text returns a JSON string, or "" for everything else.
func text(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s)
	return s
}

// ofPeople are the beginnings of the paths of people, their sessions and tokens, and of credentials of the server.
var ofPeople = []string{"/auth", "/sign-in", "/api/sign-in", "/api/people", "/people", "/api/sessions", "/api/tokens", "/api/credentials",
	"/api/keys", "/settings", "/api/triggers", "/hooks/", "/webhooks/", "/slack", "/api/nodes", "/nodes", "/api/bootstrap", "/forge"}

// isOfPeople reports whether the home answers a route.
func isOfPeople(r route.Route) bool {
	return slices.ContainsFunc(ofPeople, func(prefix string) bool { return strings.HasPrefix(r.Pattern, prefix) })
}
