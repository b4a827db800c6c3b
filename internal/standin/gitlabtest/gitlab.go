package gitlabtest

import (
	"crypto/rand"
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
			t.Errorf("GitLab complains: %s", c)
		}
	})
	return h
}

// Open returns a stand-in over a folder, before its start.
func Open(root string) *hub.Hub {
	h := &hub.Hub{Root: root}
	h.Form = form{h}
	h.Open()
	for pattern, f := range map[string]hub.Handler{
		"GET /user":                                                           me,
		"GET /users":                                                          users,
		"GET /projects/{id}/members/all/{user}":                               on(hub.Reader, member),
		"GET /projects/{id}":                                                  on(hub.Reader, project),
		"GET /projects/{id}/merge_requests":                                   on(hub.Reader, mergeRequests),
		"POST /projects/{id}/merge_requests":                                  on(hub.Writer, create),
		"GET /projects/{id}/merge_requests/{iid}":                             onPull(hub.Reader, get),
		"PUT /projects/{id}/merge_requests/{iid}":                             onPull(hub.Writer, update),
		"GET /projects/{id}/merge_requests/{iid}/approvals":                   onPull(hub.Reader, approvals),
		"GET /projects/{id}/merge_requests/{iid}/reviewers":                   onPull(hub.Reader, reviewers),
		"GET /projects/{id}/merge_requests/{iid}/discussions":                 onPull(hub.Reader, discussions),
		"POST /projects/{id}/merge_requests/{iid}/discussions/{thread}/notes": onPull(hub.Reader, reply),
		"POST /projects/{id}/merge_requests/{iid}/notes":                      onPull(hub.Reader, say),
		"GET /projects/{id}/repository/commits/{sha}/statuses":                on(hub.Reader, statuses),
		"POST /projects/{id}/statuses/{sha}":                                  on(hub.Writer, setStatus),
		"DELETE /projects/{id}/repository/branches/{branch}":                  on(hub.Writer, deleteBranch),
	} {
		method, path, _ := strings.Cut(pattern, " ")
		h.Route(method+" /api/v4"+path, f)
	}
	return h
}

type form struct{ h *hub.Hub }

// Token returns the token of the header that OAuth uses, or of GitLab's own.
func (form) Token(r *http.Request) string {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return token
	}
	return r.Header.Get("PRIVATE-TOKEN")
}

// Identity returns the name of a user.
func (form) Identity(u *hub.User) string { return u.Login }

func (form) Refusal(status int, message string) any {
	if status == http.StatusConflict {
		return hub.Object{"message": []string{message}}
	}
	return hub.Object{"message": fmt.Sprintf("%d %s", status, message)}
}

// Sign adds the secret token. GitLab does not sign.
func (form) Sign(header http.Header, _ []byte, secret string) { header.Set("X-Gitlab-Token", secret) }

// Webhook returns a webhook of a project.
func (f form) Webhook(e hub.Event) (http.Header, any) {
	header := http.Header{}
	id := rand.Text()
	header.Set("X-Gitlab-Event-UUID", id)
	header.Set("Idempotency-Key", id)
	header.Set("X-Gitlab-Instance", f.h.URL())
	body := hub.Object{"project": hub.Object{"id": e.Repo.ID, "path_with_namespace": e.Repo.FullName(),
		"web_url": f.h.URL() + "/" + e.Repo.FullName()}}
	if e.User != nil {
		body["user"] = f.user(e.User)
	}
	switch e.Kind {
	case "pull", "verdict":
		action := e.Action
		if e.Kind == "verdict" {
			if e.Action != "approved" {
				return nil, nil // GitLab tells of its note
			}
			action = "approved"
		}
		header.Set("X-Gitlab-Event", "Merge Request Hook")
		body["object_kind"] = "merge_request"
		attributes := f.mergeRequest(e.Repo, e.Pull)
		attributes["action"] = action
		body["object_attributes"] = attributes
	case "comment":
		header.Set("X-Gitlab-Event", "Note Hook")
		body["object_kind"] = "note"
		body["object_attributes"] = hub.Object{"id": e.Comment.ID, "note": e.Comment.Body,
			"noteable_type": "MergeRequest", "action": "create"}
		body["merge_request"] = f.mergeRequest(e.Repo, e.Pull)
	case "push":
		header.Set("X-Gitlab-Event", "Push Hook")
		body["object_kind"], body["ref"], body["before"], body["after"] = "push", "refs/heads/"+e.Branch,
			orZero(e.Before), orZero(e.After)
	case "status":
		header.Set("X-Gitlab-Event", "Pipeline Hook")
		body["object_kind"] = "pipeline"
		body["object_attributes"] = hub.Object{"id": e.Status.ID, "ref": e.Status.Branch, "sha": e.Status.Commit,
			"status": state(e.Status.State)}
	default:
		return nil, nil
	}
	return header, body
}

func orZero(sha string) string {
	if sha == "" {
		return strings.Repeat("0", 40)
	}
	return sha
}

// state returns GitLab's name of the state of a status.
func state(s string) string {
	switch s {
	case "failure":
		return "failed"
	case "pending":
		return "running"
	}
	return s
}

func (form) user(u *hub.User) hub.Object {
	return hub.Object{"id": u.ID, "username": u.Login, "name": u.Login, "state": "active"}
}

func (f form) mergeRequest(r *hub.Repo, p *hub.Pull) hub.Object {
	states := map[string]string{"open": "opened", "closed": "closed", "merged": "merged"}
	reviewers := []any{}
	for _, u := range p.Requested {
		reviewers = append(reviewers, f.user(u))
	}
	return hub.Object{"id": p.ID, "iid": p.Number, "project_id": r.ID, "title": p.Title, "description": p.Body,
		"state":         states[p.State],
		"draft":         strings.HasPrefix(p.Title, "Draft: "),
		"web_url":       fmt.Sprintf("%s/%s/-/merge_requests/%d", f.h.URL(), r.FullName(), p.Number),
		"source_branch": p.Head, "target_branch": p.Base, "source_project_id": r.ID, "target_project_id": r.ID,
		"sha":              p.HeadSHA,
		"merge_commit_sha": orNil(p.Merge), "squash_commit_sha": nil, "author": f.user(p.Author), "reviewers": reviewers,
		"labels": append([]string{}, p.Labels...), "updated_at": p.Updated.UTC().Format(time.RFC3339Nano)}
}

func orNil(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func me(c *hub.Call) (int, any, error) {
	u := c.Form.(form).user(c.By)
	u["bot"] = c.By.Bot
	return http.StatusOK, u, nil
}

func users(c *hub.Call) (int, any, error) {
	name := c.R.URL.Query().Get("username")
	list := []any{}
	for _, u := range c.Users() {
		if strings.EqualFold(u.Login, name) {
			list = append(list, c.Form.(form).user(u))
		}
	}
	return http.StatusOK, list, nil
}

// on adds the project of the path.
func on(need hub.Level, f func(*hub.Call, *hub.Repo) (int, any, error)) hub.Handler {
	return func(c *hub.Call) (int, any, error) {
		id := c.R.PathValue("id")
		i := strings.LastIndexByte(id, '/')
		if i < 0 {
			return 0, nil, hub.Refuse(http.StatusNotFound, "Project Not Found")
		}
		r, err := c.Find(id[:i], id[i+1:], need)
		if err != nil {
			if refused, ok := err.(*hub.Refusal); ok && refused.Status == http.StatusNotFound {
				refused.Message = "Project Not Found"
			}
			return 0, nil, err
		}
		return f(c, r)
	}
}

// onPull adds the merge request of the path.
func onPull(need hub.Level, f func(*hub.Call, *hub.Repo, *hub.Pull) (int, any, error)) hub.Handler {
	return on(need, func(c *hub.Call, r *hub.Repo) (int, any, error) {
		p := r.Pull(c.Number("iid"))
		if p == nil {
			return 0, nil, hub.Refuse(http.StatusNotFound, "Not found")
		}
		return f(c, r, p)
	})
}

func project(_ *hub.Call, r *hub.Repo) (int, any, error) {
	return http.StatusOK, hub.Object{"id": r.ID, "path_with_namespace": r.FullName(), "default_branch": "main"}, nil
}

func member(c *hub.Call, _ *hub.Repo) (int, any, error) {
	u := c.UserByID(int64(c.Number("user")))
	if u == nil || u.Level == hub.Nobody {
		return 0, nil, hub.Refuse(http.StatusNotFound, "Not found")
	}
	m := c.Form.(form).user(u)
	m["access_level"] = map[hub.Level]int{hub.Reader: 20, hub.Writer: 30, hub.Admin: 40}[u.Level]
	return http.StatusOK, m, nil
}

func mergeRequests(c *hub.Call, r *hub.Repo) (int, any, error) {
	q := c.R.URL.Query()
	list := []any{}
	for _, p := range r.Pulls {
		one := c.Form.(form).mergeRequest(r, p)
		if (q.Get("state") == "" || one["state"] == q.Get("state")) &&
			(q.Get("source_branch") == "" || p.Head == q.Get("source_branch")) &&
			(q.Get("target_branch") == "" || p.Base == q.Get("target_branch")) {
			list = append(list, one)
		}
	}
	return http.StatusOK, hub.Page(c, list, "per_page"), nil
}

const maxTitle = 255

func create(c *hub.Call, r *hub.Repo) (int, any, error) {
	var in struct {
		Source      string `json:"source_branch"`
		Target      string `json:"target_branch"`
		Title       string `json:"title"`
		Description string `json:"description"`
	}
	if err := c.Read(&in); err != nil {
		return 0, nil, err
	}
	switch there := r.Between(in.Source, in.Target); {
	case in.Title == "" || in.Source == "" || in.Target == "":
		return 0, nil, hub.Refuse(http.StatusBadRequest, "title, source_branch, target_branch are missing")
	case len([]rune(in.Title)) > maxTitle:
		return 0, nil, hub.Refuse(http.StatusBadRequest, "title is too long (maximum is 255 characters)")
	case there != nil:
		return 0, nil, hub.Refuse(http.StatusConflict,
			fmt.Sprintf("Another open merge request already exists for this source branch: !%d", there.Number))
	case r.HeadOf(in.Source) == "" || r.HeadOf(in.Target) == "":
		return 0, nil, hub.Refuse(http.StatusBadRequest, "Source branch \""+in.Source+"\" does not exist")
	}
	p, err := r.Open(c.By, in.Source, in.Target, in.Title, in.Description)
	if err != nil {
		return 0, nil, err
	}
	obey(c, r, p, in.Description)
	return http.StatusCreated, c.Form.(form).mergeRequest(r, p), nil
}

func get(c *hub.Call, r *hub.Repo, p *hub.Pull) (int, any, error) {
	return http.StatusOK, c.Form.(form).mergeRequest(r, p), nil
}

func update(c *hub.Call, r *hub.Repo, p *hub.Pull) (int, any, error) {
	var in struct {
		Title       *string `json:"title"`
		Description *string `json:"description"`
		AddLabels   string  `json:"add_labels"`
		Reviewers   []int64 `json:"reviewer_ids"`
	}
	if err := c.Read(&in); err != nil {
		return 0, nil, err
	}
	if in.Title != nil {
		if *in.Title == "" || len([]rune(*in.Title)) > maxTitle {
			return 0, nil, hub.Refuse(http.StatusBadRequest, "title is invalid")
		}
		p.Title = *in.Title
	}
	if in.Description != nil {
		p.Body = *in.Description
		obey(c, r, p, p.Body)
	}
	for label := range strings.SplitSeq(in.AddLabels, ",") {
		if label != "" && !slices.Contains(p.Labels, label) {
			p.Labels = append(p.Labels, label)
		}
	}
	if in.Reviewers != nil {
		p.Requested = nil
		for _, id := range in.Reviewers {
			if u := c.UserByID(id); u != nil && u.Level >= hub.Reader {
				p.Requested = append(p.Requested, u)
			}
		}
	}
	r.Changed(p, c.By, "update")
	return http.StatusOK, c.Form.(form).mergeRequest(r, p), nil
}

// latest returns the newest verdict of each person, except mere comments.
func latest(p *hub.Pull) []*hub.Verdict {
	var list []*hub.Verdict
	for _, v := range p.Verdicts {
		if v.State == "commented" {
			continue
		}
		list = slices.DeleteFunc(list, func(other *hub.Verdict) bool { return other.By == v.By })
		list = append(list, v)
	}
	return list
}

func approvals(c *hub.Call, _ *hub.Repo, p *hub.Pull) (int, any, error) {
	by := []any{}
	for _, v := range latest(p) {
		if v.State == "approved" {
			by = append(by, hub.Object{"user": c.Form.(form).user(v.By),
				"approved_at": v.Created.UTC().Format(time.RFC3339Nano)})
		}
	}
	return http.StatusOK, hub.Object{"iid": p.Number, "approved_by": by}, nil
}

func reviewers(c *hub.Call, _ *hub.Repo, p *hub.Pull) (int, any, error) {
	list := []any{}
	verdicts := latest(p)
	for _, v := range verdicts {
		list = append(list, hub.Object{"user": c.Form.(form).user(v.By),
			"state": map[string]string{"approved": "approved", "changes_requested": "requested_changes"}[v.State]})
	}
	for _, u := range p.Requested {
		if !slices.ContainsFunc(verdicts, func(v *hub.Verdict) bool { return v.By == u }) {
			list = append(list, hub.Object{"user": c.Form.(form).user(u), "state": "unreviewed"})
		}
	}
	return http.StatusOK, list, nil
}

func note(f form, m *hub.Comment) hub.Object {
	out := hub.Object{"id": m.ID, "type": nil, "body": m.Body, "author": f.user(m.Author), "system": m.System,
		"noteable_type": "MergeRequest",
		"created_at":    m.Created.UTC().Format(time.RFC3339Nano), "resolvable": m.Path != ""}
	if m.Path != "" {
		position := hub.Object{"position_type": "text", "head_sha": m.Commit, "old_path": m.Path, "new_path": m.Path,
			"new_line": m.Line, "old_line": nil}
		if m.Old {
			position["new_line"], position["old_line"] = nil, m.Line
		}
		out["type"], out["position"] = "DiffNote", position
	}
	return out
}

func discussions(c *hub.Call, _ *hub.Repo, p *hub.Pull) (int, any, error) {
	f := c.Form.(form)
	var order []string
	threads := map[string][]any{}
	add := func(m *hub.Comment) {
		if threads[m.Thread] == nil {
			order = append(order, m.Thread)
		}
		threads[m.Thread] = append(threads[m.Thread], note(f, m))
	}
	for _, v := range p.Verdicts {
		if v.Body != "" {
			add(&hub.Comment{ID: v.ID + 1<<40, Thread: fmt.Sprintf("%039x1", v.ID), Author: v.By, Body: v.Body,
				Created: v.Created})
		}
		if v.State == "changes_requested" {
			add(&hub.Comment{ID: v.ID, Thread: fmt.Sprintf("%039x2", v.ID), Author: v.By, Body: "requested changes",
				System: true, Created: v.Created})
		}
	}
	for _, m := range p.Comments {
		add(m)
	}
	list := []any{}
	for _, id := range order {
		list = append(list, hub.Object{"id": id, "individual_note": len(threads[id]) == 1, "notes": threads[id]})
	}
	return http.StatusOK, hub.Page(c, list, "per_page"), nil
}

// commands are those that the stand-in obeys.
var commands = []string{"/merge", "/close", "/request_review", "/approve"}

// obey carries out the commands of a text, and returns the rest of the text.
func obey(c *hub.Call, r *hub.Repo, p *hub.Pull, body string) string {
	var rest []string
	for line := range strings.Lines(body) {
		word, argument, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(line, "/") || !slices.Contains(commands, word) {
			rest = append(rest, line)
			continue
		}
		switch word {
		case "/merge":
			p.State = "merged"
		case "/close":
			p.State = "closed"
		case "/request_review":
			for name := range strings.FieldsSeq(argument) {
				u := c.User(strings.TrimPrefix(name, "@"))
				if u != nil && !slices.Contains(p.Requested, u) {
					p.Requested = append(p.Requested, u)
				}
				p.Verdicts = slices.DeleteFunc(p.Verdicts,
					func(v *hub.Verdict) bool { return v.By == u && v.State == "changes_requested" })
			}
		}
		r.Changed(p, c.By, "update")
	}
	return strings.TrimSpace(strings.Join(rest, ""))
}

func post(c *hub.Call, r *hub.Repo, p *hub.Pull, m hub.Comment) (int, any, error) {
	var in struct {
		Body string `json:"body"`
	}
	if err := c.Read(&in); err != nil {
		return 0, nil, err
	}
	if strings.TrimSpace(in.Body) == "" {
		return 0, nil, hub.Refuse(http.StatusBadRequest, "body is missing")
	}
	if m.Body = obey(c, r, p, in.Body); m.Body == "" {
		return http.StatusAccepted, hub.Object{"commands_changes": hub.Object{}, "summary": []string{"done"}}, nil
	}
	m.Author = c.By
	return http.StatusCreated, note(c.Form.(form), r.AddComment(p, m)), nil
}

func say(c *hub.Call, r *hub.Repo, p *hub.Pull) (int, any, error) {
	return post(c, r, p, hub.Comment{})
}

func reply(c *hub.Call, r *hub.Repo, p *hub.Pull) (int, any, error) {
	id := c.R.PathValue("thread")
	for _, m := range p.Comments {
		if m.Thread == id {
			return post(c, r, p, hub.Comment{Thread: id, ReplyTo: m.ID, Path: m.Path, Line: m.Line, Old: m.Old,
				Commit: m.Commit})
		}
	}
	return 0, nil, hub.Refuse(http.StatusNotFound, "Discussion Not Found")
}

func statuses(c *hub.Call, r *hub.Repo) (int, any, error) {
	newest := map[string]*hub.Status{}
	var order []string
	for _, s := range r.Statuses {
		if s.Commit == c.R.PathValue("sha") {
			if newest[s.Name] == nil {
				order = append(order, s.Name)
			}
			newest[s.Name] = s
		}
	}
	list := []any{}
	for _, name := range order {
		s := newest[name]
		list = append(list, hub.Object{"id": s.ID, "sha": s.Commit, "ref": s.Branch, "status": state(s.State),
			"name": s.Name, "description": s.Description,
			"target_url": s.URL, "allow_failure": false})
	}
	return http.StatusOK, hub.Page(c, list, "per_page"), nil
}

// setStatus sets a status. Like GitLab, it refuses the state that the status has.
func setStatus(c *hub.Call, r *hub.Repo) (int, any, error) {
	var in struct {
		State       string `json:"state"`
		Name        string `json:"name"`
		Description string `json:"description"`
		TargetURL   string `json:"target_url"`
	}
	if err := c.Read(&in); err != nil {
		return 0, nil, err
	}
	own := map[string]string{"success": "success", "failed": "failure", "pending": "pending", "running": "pending"}[in.State]
	if own == "" || in.Name == "" {
		return 0, nil, hub.Refuse(http.StatusBadRequest, "state does not have a valid value")
	}
	sha := c.R.PathValue("sha")
	for _, s := range slices.Backward(r.Statuses) {
		if s.Commit == sha && s.Name == in.Name {
			if s.State == own {
				return 0, nil, hub.Refuse(http.StatusBadRequest, "Cannot transition status via :enqueue from :"+in.State)
			}
			break
		}
	}
	s := r.AddStatus(hub.Status{Commit: sha, Name: in.Name, State: own, Description: in.Description, URL: in.TargetURL})
	return http.StatusCreated,
		hub.Object{"id": s.ID, "sha": sha, "status": in.State, "name": in.Name, "description": in.Description}, nil
}

func deleteBranch(c *hub.Call, r *hub.Repo) (int, any, error) {
	branch := c.R.PathValue("branch")
	switch {
	case r.HeadOf(branch) == "":
		return 0, nil, hub.Refuse(http.StatusNotFound, "Branch Not Found")
	case r.Protected(branch) || branch == "main":
		return 0, nil, hub.Refuse(http.StatusForbidden, "Protected branch can't be removed")
	}
	return http.StatusNoContent, nil, r.DeleteBranch(c.By, branch)
}
