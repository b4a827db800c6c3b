package giteatest

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/internal/standin/hub"
)

// New starts a stand-in that ends with the test. A complaint fails the test.
func New(t *testing.T) *hub.Hub {
	t.Helper()
	h := Open(t.TempDir())
	if err := h.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		for _, c := range h.Complaints() {
			t.Errorf("Gitea complains: %s", c)
		}
	})
	return h
}

// Open returns a stand-in over a folder, before its start.
func Open(root string) *hub.Hub {
	h := &hub.Hub{Root: root}
	h.Form = form{h}
	h.Open()
	h.Route("GET /api/v1/user", me)
	for pattern, f := range map[string]hub.Handler{
		"GET ":                                 on(hub.Reader, repository),
		"GET /collaborators/{user}/permission": on(hub.Admin, permission),
		"GET /labels":                          on(hub.Reader, labels),
		"POST /labels":                         on(hub.Writer, makeLabel),
		"GET /pulls":                           on(hub.Reader, pulls),
		"POST /pulls":                          on(hub.Reader, create),
		"GET /pulls/{index}":                   onPull(hub.Reader, get),
		"PATCH /pulls/{index}":                 onPull(hub.Writer, edit),
		"POST /issues/{index}/labels":          onPull(hub.Writer, label),
		"POST /pulls/{index}/requested_reviewers":      onPull(hub.Reader, request),
		"GET /pulls/{index}/reviews":                   onPull(hub.Reader, reviews),
		"POST /pulls/{index}/reviews":                  onPull(hub.Reader, makeReview),
		"GET /pulls/{index}/reviews/{review}/comments": onPull(hub.Reader, reviewComments),
		"GET /issues/{index}/comments":                 onPull(hub.Reader, comments),
		"POST /issues/{index}/comments":                onPull(hub.Reader, say),
		"GET /commits/{sha}/statuses":                  on(hub.Reader, statuses),
		"POST /statuses/{sha}":                         on(hub.Writer, setStatus),
		"DELETE /branches/{branch...}":                 on(hub.Writer, deleteBranch),
	} {
		method, path, _ := strings.Cut(pattern, " ")
		h.Route(method+" /api/v1/repos/{owner}/{repo}"+path, f)
	}
	return h
}

type form struct{ h *hub.Hub }

// Token returns the token of a request.
func (form) Token(r *http.Request) string {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "token ")
	return token
}

// Identity returns the login.
func (form) Identity(u *hub.User) string { return u.Login }

func (f form) Refusal(_ int, message string) any {
	return hub.Object{"message": message, "url": f.h.URL() + "/api/swagger"}
}

// Sign adds the signatures of Gitea.
func (form) Sign(header http.Header, body []byte, secret string) {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	sum := hex.EncodeToString(mac.Sum(nil))
	header.Set("X-Gitea-Signature", sum)
	header.Set("X-Hub-Signature-256", "sha256="+sum)
}

// Webhook returns a webhook of a repository.
func (f form) Webhook(e hub.Event) (http.Header, any) {
	header := http.Header{}
	header.Set("X-Gitea-Delivery", rand.Text())
	body := hub.Object{"repository": f.repository(e.Repo)}
	if e.User != nil {
		body["sender"] = f.user(e.User)
	}
	event := ""
	switch e.Kind {
	case "pull":
		event = "pull_request"
		body["action"] = map[string]string{"open": "opened", "close": "closed", "merge": "closed", "reopen": "reopened",
			"update": "synchronized"}[e.Action]
		body["number"], body["pull_request"] = e.Pull.Number, f.pull(e.Repo, e.Pull)
	case "verdict":
		event = map[string]string{"approved": "pull_request_approved", "changes_requested": "pull_request_rejected",
			"commented": "pull_request_comment"}[e.Action]
		body["action"], body["number"], body["pull_request"] = "reviewed", e.Pull.Number, f.pull(e.Repo, e.Pull)
	case "comment":
		if e.Comment.Path != "" {
			return nil, nil // it comes with its review
		}
		event = "issue_comment"
		body["action"], body["is_pull"] = "created", true
		body["issue"], body["comment"] = hub.Object{"number": e.Pull.Number}, f.comment(e.Repo, e.Pull, e.Comment)
	case "push":
		if e.After == "" {
			event = "delete"
			body["ref"], body["ref_type"] = e.Branch, "branch"
			break
		}
		event = "push"
		body["ref"], body["before"], body["after"] = "refs/heads/"+e.Branch, e.Before, e.After
	case "status":
		event = "status"
		body["sha"], body["context"], body["state"], body["id"] = e.Status.Commit, e.Status.Name, e.Status.State, e.Status.ID
	default:
		return nil, nil
	}
	header.Set("X-Gitea-Event", event)
	return header, body
}

func (form) user(u *hub.User) hub.Object {
	return hub.Object{"id": u.ID, "login": u.Login, "username": u.Login, "email": u.Login + "@example.org"}
}

func (f form) repository(r *hub.Repo) hub.Object {
	return hub.Object{"id": r.ID, "name": r.Name, "full_name": r.FullName(), "default_branch": "main",
		"owner": hub.Object{"login": r.Owner}}
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func (f form) pull(r *hub.Repo, p *hub.Pull) hub.Object {
	state := "open"
	if p.State != "open" {
		state = "closed"
	}
	requested, names := []any{}, []any{}
	for _, u := range p.Requested {
		requested = append(requested, f.user(u))
	}
	for _, name := range p.Labels {
		names = append(names, hub.Object{"name": name})
	}
	out := hub.Object{"id": p.ID, "number": p.Number, "title": p.Title, "body": p.Body, "state": state,
		"merged": p.State == "merged", "merge_commit_sha": nil,
		"draft": strings.HasPrefix(p.Title, "WIP: "), "html_url": f.url(r, p), "user": f.user(p.Author),
		"requested_reviewers": requested, "labels": names,
		"head":       hub.Object{"ref": p.Head, "sha": p.HeadSHA, "repo_id": r.ID},
		"base":       hub.Object{"ref": p.Base, "sha": r.HeadOf(p.Base), "repo_id": r.ID},
		"updated_at": stamp(p.Updated)}
	if p.Merge != "" {
		out["merge_commit_sha"] = p.Merge
	}
	return out
}

func (f form) url(r *hub.Repo, p *hub.Pull) string {
	return fmt.Sprintf("%s/%s/pulls/%d", f.h.URL(), r.FullName(), p.Number)
}

func (f form) comment(r *hub.Repo, p *hub.Pull, m *hub.Comment) hub.Object {
	out := hub.Object{"id": m.ID, "user": f.user(m.Author), "body": m.Body, "created_at": stamp(m.Created),
		"updated_at": stamp(m.Created),
		"html_url":   fmt.Sprintf("%s#issuecomment-%d", f.url(r, p), m.ID)}
	if m.Path != "" {
		out["path"], out["position"], out["original_position"] = m.Path, m.Line, 0
		out["commit_id"], out["pull_request_review_id"], out["diff_hunk"] = m.Commit, m.Verdict,
			"@@ -0,0 +1,3 @@\n+one\n+two"
		if m.Old {
			out["position"], out["original_position"] = 0, m.Line
		}
	}
	return out
}

func me(c *hub.Call) (int, any, error) { return http.StatusOK, c.Form.(form).user(c.By), nil }

// on adds the repository of the path.
func on(need hub.Level, f func(*hub.Call, *hub.Repo) (int, any, error)) hub.Handler {
	return func(c *hub.Call) (int, any, error) {
		r, err := c.Find(c.R.PathValue("owner"), c.R.PathValue("repo"), need)
		if err != nil {
			return 0, nil, err
		}
		return f(c, r)
	}
}

// onPull adds the pull request of the path.
func onPull(need hub.Level, f func(*hub.Call, *hub.Repo, *hub.Pull) (int, any, error)) hub.Handler {
	return on(need, func(c *hub.Call, r *hub.Repo) (int, any, error) {
		p := r.Pull(c.Number("index"))
		if p == nil {
			return 0, nil, hub.Refuse(http.StatusNotFound, "The target couldn't be found.")
		}
		return f(c, r, p)
	})
}

func repository(c *hub.Call, r *hub.Repo) (int, any, error) {
	return http.StatusOK, c.Form.(form).repository(r), nil
}

func permission(c *hub.Call, _ *hub.Repo) (int, any, error) {
	u := c.User(c.R.PathValue("user"))
	if u == nil {
		return 0, nil, hub.Refuse(http.StatusNotFound, "user does not exist")
	}
	level := []string{"none", "read", "write", "admin"}[u.Level]
	return http.StatusOK, hub.Object{"permission": level, "role_name": level, "user": c.Form.(form).user(u)}, nil
}

func labels(c *hub.Call, r *hub.Repo) (int, any, error) {
	list := []any{}
	for _, l := range r.Labels {
		list = append(list, hub.Object{"id": l.ID, "name": l.Name})
	}
	return http.StatusOK, hub.Page(c, list, "limit"), nil
}

func makeLabel(c *hub.Call, r *hub.Repo) (int, any, error) {
	var in struct{ Name, Color string }
	if err := c.Read(&in); err != nil {
		return 0, nil, err
	}
	if in.Name == "" || len(in.Color) != 7 || in.Color[0] != '#' {
		return 0, nil, hub.Refuse(http.StatusUnprocessableEntity, "name or color is invalid")
	}
	l := hub.Label{ID: int64(len(r.Labels) + 1), Name: in.Name}
	r.Labels = append(r.Labels, l)
	return http.StatusCreated, hub.Object{"id": l.ID, "name": l.Name}, nil
}

func pulls(c *hub.Call, r *hub.Repo) (int, any, error) {
	list := []any{}
	for _, p := range slices.Backward(r.Pulls) {
		if want := c.R.URL.Query().Get("state"); want == "all" || (p.State == "open") == (want != "closed") {
			list = append(list, c.Form.(form).pull(r, p))
		}
	}
	return http.StatusOK, hub.Page(c, list, "limit"), nil
}

const maxTitle = 255

func create(c *hub.Call, r *hub.Repo) (int, any, error) {
	var in struct{ Head, Base, Title, Body string }
	if err := c.Read(&in); err != nil {
		return 0, nil, err
	}
	if in.Title == "" || len([]rune(in.Title)) > maxTitle {
		return 0, nil, hub.Refuse(http.StatusUnprocessableEntity, "[Title]: Required")
	}
	p, err := r.Open(c.By, in.Head, in.Base, in.Title, in.Body)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, c.Form.(form).pull(r, p), nil
}

func get(c *hub.Call, r *hub.Repo, p *hub.Pull) (int, any, error) {
	return http.StatusOK, c.Form.(form).pull(r, p), nil
}

func edit(c *hub.Call, r *hub.Repo, p *hub.Pull) (int, any, error) {
	var in struct{ Title, Body *string }
	if err := c.Read(&in); err != nil {
		return 0, nil, err
	}
	if in.Title != nil {
		p.Title = *in.Title
	}
	if in.Body != nil {
		p.Body = *in.Body
	}
	r.Changed(p, c.By, "update")
	return http.StatusCreated, c.Form.(form).pull(r, p), nil
}

func label(c *hub.Call, r *hub.Repo, p *hub.Pull) (int, any, error) {
	var in struct{ Labels []int64 }
	if err := c.Read(&in); err != nil {
		return 0, nil, err
	}
	for _, l := range r.Labels {
		if slices.Contains(in.Labels, l.ID) && !slices.Contains(p.Labels, l.Name) {
			p.Labels = append(p.Labels, l.Name)
		}
	}
	return http.StatusOK, []any{}, nil
}

func request(c *hub.Call, r *hub.Repo, p *hub.Pull) (int, any, error) {
	var in struct{ Reviewers []string }
	if err := c.Read(&in); err != nil {
		return 0, nil, err
	}
	for _, name := range in.Reviewers {
		u := c.User(name)
		switch {
		case u == nil:
			return 0, nil, hub.Refuse(http.StatusNotFound, "User '"+name+"' not exist")
		case u == p.Author:
			return 0, nil, hub.Refuse(http.StatusUnprocessableEntity, "poster of pr can't be reviewer")
		case !slices.Contains(p.Requested, u):
			p.Requested = append(p.Requested, u)
		}
	}
	r.Changed(p, c.By, "update")
	return http.StatusCreated, []any{}, nil
}

func reviews(c *hub.Call, _ *hub.Repo, p *hub.Pull) (int, any, error) {
	f := c.Form.(form)
	list := []any{}
	for _, u := range p.Requested {
		list = append(list, hub.Object{"id": u.ID + 1_000_000, "user": f.user(u), "state": "REQUEST_REVIEW",
			"submitted_at": stamp(p.Updated)})
	}
	for _, v := range p.Verdicts {
		n := 0
		for _, m := range p.Comments {
			if m.Verdict == v.ID {
				n++
			}
		}
		state := map[string]string{"approved": "APPROVED", "changes_requested": "REQUEST_CHANGES",
			"commented": "COMMENT"}[v.State]
		list = append(list, hub.Object{"id": v.ID, "user": f.user(v.By), "state": state, "body": v.Body,
			"commit_id": v.Commit, "comments_count": n,
			"dismissed": false, "submitted_at": stamp(v.Created)})
	}
	return http.StatusOK, hub.Page(c, list, "limit"), nil
}

func makeReview(c *hub.Call, r *hub.Repo, p *hub.Pull) (int, any, error) {
	var in struct {
		Event    string `json:"event"`
		Body     string `json:"body"`
		Comments []struct {
			Path string `json:"path"`
			Body string `json:"body"`
			New  int    `json:"new_position"`
			Old  int    `json:"old_position"`
		} `json:"comments"`
	}
	if err := c.Read(&in); err != nil {
		return 0, nil, err
	}
	state := map[string]string{"APPROVED": "approved", "REQUEST_CHANGES": "changes_requested",
		"COMMENT": "commented"}[in.Event]
	switch {
	case state == "":
		return 0, nil, hub.Refuse(http.StatusUnprocessableEntity, "a pending review needs a body")
	case state != "commented" && c.By == p.Author:
		return 0, nil, hub.Refuse(http.StatusUnprocessableEntity, "approve your own pull is not allowed")
	case in.Body == "" && len(in.Comments) == 0 && state != "approved":
		return 0, nil, hub.Refuse(http.StatusUnprocessableEntity, "review event COMMENT requires a body or a comment")
	}
	v := r.AddVerdict(p, hub.Verdict{By: c.By, State: state, Body: in.Body})
	for _, m := range in.Comments {
		r.AddComment(p, hub.Comment{Author: c.By, Body: m.Body, Path: m.Path, Line: max(m.New, m.Old), Old: m.Old > 0,
			Commit: p.HeadSHA, Verdict: v.ID})
	}
	return http.StatusOK, hub.Object{"id": v.ID, "state": in.Event, "user": c.Form.(form).user(c.By)}, nil
}

func reviewComments(c *hub.Call, r *hub.Repo, p *hub.Pull) (int, any, error) {
	list := []any{}
	for _, m := range p.Comments {
		if m.Verdict != 0 && m.Verdict == int64(c.Number("review")) {
			list = append(list, c.Form.(form).comment(r, p, m))
		}
	}
	return http.StatusOK, list, nil
}

func comments(c *hub.Call, r *hub.Repo, p *hub.Pull) (int, any, error) {
	list := []any{}
	for _, m := range p.Comments {
		if m.Path == "" {
			list = append(list, c.Form.(form).comment(r, p, m))
		}
	}
	return http.StatusOK, list, nil
}

func say(c *hub.Call, r *hub.Repo, p *hub.Pull) (int, any, error) {
	var in struct{ Body string }
	if err := c.Read(&in); err != nil {
		return 0, nil, err
	}
	if in.Body == "" {
		return 0, nil, hub.Refuse(http.StatusUnprocessableEntity, "[Body]: Required")
	}
	return http.StatusCreated, c.Form.(form).comment(r, p, r.AddComment(p, hub.Comment{Author: c.By, Body: in.Body})), nil
}

func statuses(c *hub.Call, r *hub.Repo) (int, any, error) {
	list := []any{}
	for _, s := range slices.Backward(r.Statuses) {
		if s.Commit == c.R.PathValue("sha") {
			list = append(list, hub.Object{"id": s.ID, "status": s.State, "context": s.Name,
				"description": s.Description, "target_url": s.URL})
		}
	}
	return http.StatusOK, hub.Page(c, list, "limit"), nil
}

func setStatus(c *hub.Call, r *hub.Repo) (int, any, error) {
	var in struct {
		State       string `json:"state"`
		Context     string `json:"context"`
		Description string `json:"description"`
		TargetURL   string `json:"target_url"`
	}
	if err := c.Read(&in); err != nil {
		return 0, nil, err
	}
	s := r.AddStatus(hub.Status{Commit: c.R.PathValue("sha"), Name: in.Context, State: in.State,
		Description: in.Description, URL: in.TargetURL})
	return http.StatusCreated, hub.Object{"id": s.ID, "status": s.State, "context": s.Name,
		"description": s.Description, "target_url": s.URL}, nil
}

func deleteBranch(c *hub.Call, r *hub.Repo) (int, any, error) {
	branch := c.R.PathValue("branch")
	switch {
	case r.HeadOf(branch) == "":
		return 0, nil, hub.Refuse(http.StatusNotFound, "branch does not exist")
	case r.Protected(branch) || branch == "main":
		return 0, nil, hub.Refuse(http.StatusForbidden, "branch protected")
	}
	return http.StatusNoContent, nil, r.DeleteBranch(c.By, branch)
}
