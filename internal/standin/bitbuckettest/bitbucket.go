package bitbuckettest

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
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
			t.Errorf("Bitbucket complains: %s", c)
		}
	})
	return h
}

// Open returns a stand-in over a folder, before its start.
func Open(root string) *hub.Hub {
	h := &hub.Hub{Root: root}
	h.Form = form{h}
	h.Open()
	h.Route("GET /2.0/user", me)
	h.Route("GET /2.0/workspaces/{owner}/permissions/repositories/{repo}", on(hub.Admin, permissions))
	for pattern, f := range map[string]hub.Handler{
		"GET ":                              on(hub.Reader, repository),
		"GET /pullrequests":                 on(hub.Reader, pulls),
		"POST /pullrequests":                on(hub.Writer, create),
		"GET /pullrequests/{id}":            onPull(hub.Reader, get),
		"PUT /pullrequests/{id}":            onPull(hub.Writer, update),
		"GET /pullrequests/{id}/comments":   onPull(hub.Reader, comments),
		"POST /pullrequests/{id}/comments":  onPull(hub.Reader, say),
		"GET /commit/{sha}/statuses":        on(hub.Reader, statuses),
		"POST /commit/{sha}/statuses/build": on(hub.Writer, setStatus),
		"DELETE /refs/branches/{branch...}": on(hub.Writer, deleteBranch),
	} {
		method, path, _ := strings.Cut(pattern, " ")
		h.Route(method+" /2.0/repositories/{owner}/{repo}"+path, f)
	}
	return h
}

type form struct{ h *hub.Hub }

// Token returns the access token of a request, or the API token of its user.
func (form) Token(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return token
}

// Identity returns the UUID of a user.
func (form) Identity(u *hub.User) string { return fmt.Sprintf("{00000000-0000-4000-8000-%012x}", u.ID) }

func (form) Refusal(_ int, message string) any {
	return hub.Object{"type": "error", "error": hub.Object{"message": message}}
}

// Sign adds the signature of Bitbucket.
func (form) Sign(header http.Header, body []byte, secret string) {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	header.Set("X-Hub-Signature", "sha256="+hex.EncodeToString(mac.Sum(nil)))
}

// Webhook returns a webhook of a repository.
func (f form) Webhook(e hub.Event) (http.Header, any) {
	header := http.Header{}
	header.Set("X-Request-UUID", rand.Text())
	header.Set("X-Attempt-Number", "1")
	body := hub.Object{"repository": f.repository(e.Repo)}
	if e.User != nil {
		body["actor"] = f.user(e.User)
	}
	key := ""
	switch e.Kind {
	case "pull":
		key = "pullrequest:" + map[string]string{"open": "created", "close": "rejected", "merge": "fulfilled",
			"update": "updated"}[e.Action]
		body["pullrequest"] = f.pull(e.Repo, e.Pull)
	case "verdict":
		action := map[string]string{"approved": "approved", "changes_requested": "changes_request_created"}[e.Action]
		if action == "" {
			return nil, nil
		}
		key = "pullrequest:" + action
		body["pullrequest"] = f.pull(e.Repo, e.Pull)
	case "comment":
		key = "pullrequest:comment_created"
		body["pullrequest"], body["comment"] = f.pull(e.Repo, e.Pull), f.comment(e.Repo, e.Pull, e.Comment)
	case "push":
		key = "repo:push"
		at := func(sha string) any {
			if sha == "" {
				return nil
			}
			return hub.Object{"type": "branch", "name": e.Branch, "target": hub.Object{"hash": sha}}
		}
		body["push"] = hub.Object{"changes": []any{hub.Object{"new": at(e.After), "old": at(e.Before)}}}
	case "status":
		key = "repo:commit_status_updated"
		status := f.status(e.Status)
		status["commit"] = hub.Object{"hash": e.Status.Commit}
		body["commit_status"] = status
	default:
		return nil, nil
	}
	header.Set("X-Event-Key", key)
	return header, body
}

func (f form) user(u *hub.User) hub.Object {
	kind := "user"
	if u.Bot {
		kind = "app_user"
	}
	return hub.Object{"type": kind, "uuid": f.Identity(u), "nickname": u.Login, "display_name": strings.ToUpper(u.Login)}
}

func (form) repository(r *hub.Repo) hub.Object {
	return hub.Object{"type": "repository", "full_name": r.FullName(), "name": r.Name,
		"mainbranch": hub.Object{"name": "main"}}
}

func stamp(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000000-07:00") }

func (f form) url(r *hub.Repo, p *hub.Pull) string {
	return fmt.Sprintf("%s/%s/pull-requests/%d", f.h.URL(), r.FullName(), p.Number)
}

func (f form) pull(r *hub.Repo, p *hub.Pull) hub.Object {
	end := func(branch, sha string) hub.Object {
		return hub.Object{"branch": hub.Object{"name": branch}, "commit": hub.Object{"hash": sha[:min(12, len(sha))]},
			"repository": f.repository(r)}
	}
	reviewers, participants := []any{}, []any{}
	for _, u := range p.Requested {
		reviewers = append(reviewers, f.user(u))
	}
	newest := map[*hub.User]*hub.Verdict{}
	var order []*hub.User
	for _, v := range p.Verdicts {
		if v.State == "commented" {
			continue
		}
		if newest[v.By] == nil {
			order = append(order, v.By)
		}
		newest[v.By] = v
	}
	for _, u := range order {
		v := newest[u]
		participants = append(participants,
			hub.Object{"user": f.user(u), "role": "PARTICIPANT", "approved": v.State == "approved", "state": v.State,
				"participated_on": stamp(v.Created)})
	}
	out := hub.Object{"type": "pullrequest", "id": p.Number, "title": p.Title, "description": p.Body, "draft": p.Draft,
		"merge_commit": nil,
		"state":        map[string]string{"open": "OPEN", "closed": "DECLINED", "merged": "MERGED"}[p.State],
		"author":       f.user(p.Author),
		"source":       end(p.Head, p.HeadSHA), "destination": end(p.Base, r.HeadOf(p.Base)), "reviewers": reviewers,
		"participants": participants,
		"links":        hub.Object{"html": hub.Object{"href": f.url(r, p)}}, "updated_on": stamp(p.Updated)}
	if p.Merge != "" {
		out["merge_commit"] = hub.Object{"hash": p.Merge[:12]}
	}
	return out
}

func (f form) comment(r *hub.Repo, p *hub.Pull, m *hub.Comment) hub.Object {
	out := hub.Object{"type": "pullrequest_comment", "id": m.ID,
		"content": hub.Object{"raw": m.Body, "markup": "markdown"}, "user": f.user(m.Author),
		"created_on": stamp(m.Created), "deleted": false, "pending": false,
		"links": hub.Object{"html": hub.Object{"href": fmt.Sprintf("%s#comment-%d", f.url(r, p), m.ID)}}}
	if m.ReplyTo != 0 {
		out["parent"] = hub.Object{"id": m.ReplyTo}
	}
	if m.Path != "" {
		in := hub.Object{"path": m.Path, "from": nil, "to": m.Line}
		if m.Old {
			in["from"], in["to"] = m.Line, nil
		}
		out["inline"] = in
	}
	return out
}

func (form) status(s *hub.Status) hub.Object {
	state := map[string]string{"success": "SUCCESSFUL", "failure": "FAILED", "pending": "INPROGRESS"}[s.State]
	return hub.Object{"type": "build", "key": s.Name, "name": s.Name, "state": state, "url": s.URL,
		"description": s.Description, "refname": nil, "updated_on": stamp(s.Created)}
}

func me(c *hub.Call) (int, any, error) { return http.StatusOK, c.Form.(form).user(c.By), nil }

// values answers with a page of a list, with the address of the next page.
func values(c *hub.Call, all []any) (int, any, error) {
	q := c.R.URL.Query()
	n, _ := strconv.Atoi(q.Get("pagelen"))
	if n <= 0 {
		n = 10
	}
	if n > 50 {
		return 0, nil, hub.Refuse(http.StatusBadRequest, "Invalid pagelen")
	}
	page, _ := strconv.Atoi(q.Get("page"))
	page = max(page, 1)
	from := min((page-1)*n, len(all))
	to := min(from+n, len(all))
	out := hub.Object{"values": append([]any{}, all[from:to]...), "pagelen": n, "page": page, "size": len(all)}
	if to < len(all) {
		q.Set("page", strconv.Itoa(page+1))
		next := url.URL{Scheme: "http", Host: c.R.Host, Path: c.R.URL.Path, RawQuery: q.Encode()}
		out["next"] = next.String()
	}
	return http.StatusOK, out, nil
}

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
		p := r.Pull(c.Number("id"))
		if p == nil {
			return 0, nil, hub.Refuse(http.StatusNotFound, "pull request not found")
		}
		return f(c, r, p)
	})
}

func repository(c *hub.Call, r *hub.Repo) (int, any, error) {
	return http.StatusOK, c.Form.(form).repository(r), nil
}

func permissions(c *hub.Call, _ *hub.Repo) (int, any, error) {
	if q := c.R.URL.Query().Get("q"); q != "" && q != `permission>"read"` {
		return 0, nil, hub.Refuse(http.StatusBadRequest, "cannot parse the query")
	}
	list := []any{}
	for _, u := range c.Users() {
		if u.Level >= hub.Writer {
			list = append(list, hub.Object{"type": "repository_permission",
				"permission": []string{"none", "read", "write", "admin"}[u.Level], "user": c.Form.(form).user(u)})
		}
	}
	return values(c, list)
}

var filter = regexp.MustCompile(`^state="OPEN" AND source\.branch\.name="([^"]*)" AND destination\.branch\.name="([^"]*)"$`)

func pulls(c *hub.Call, r *hub.Repo) (int, any, error) {
	m := filter.FindStringSubmatch(c.R.URL.Query().Get("q"))
	if m == nil {
		return 0, nil, hub.Refuse(http.StatusBadRequest, "cannot parse the query")
	}
	list := []any{}
	for _, p := range slices.Backward(r.Pulls) {
		if p.State == "open" && p.Head == m[1] && p.Base == m[2] {
			list = append(list, c.Form.(form).pull(r, p))
		}
	}
	return values(c, list)
}

// An end of a pull request in a request.
type end struct {
	Branch struct {
		Name string `json:"name"`
	} `json:"branch"`
}

const (
	maxTitle = 255
	maxText  = 32768
)

func create(c *hub.Call, r *hub.Repo) (int, any, error) {
	var in struct {
		Title       string `json:"title"`
		Description string `json:"description"`
		Source      end    `json:"source"`
		Destination end    `json:"destination"`
		Draft       bool   `json:"draft"`
	}
	if err := c.Read(&in); err != nil {
		return 0, nil, err
	}
	if in.Title == "" || len([]rune(in.Title)) > maxTitle || len([]rune(in.Description)) > maxText {
		return 0, nil, hub.Refuse(http.StatusBadRequest, "title: required; or a field is too long")
	}
	if there := r.Between(in.Source.Branch.Name, in.Destination.Branch.Name); there != nil {
		// Bitbucket changes the one that is there.
		there.Title, there.Body = in.Title, in.Description
		return http.StatusCreated, c.Form.(form).pull(r, there), nil
	}
	p, err := r.Open(c.By, in.Source.Branch.Name, in.Destination.Branch.Name, in.Title, in.Description)
	if err != nil {
		return 0, nil, hub.Refuse(http.StatusBadRequest, err.Error())
	}
	p.Draft = in.Draft
	return http.StatusCreated, c.Form.(form).pull(r, p), nil
}

func get(c *hub.Call, r *hub.Repo, p *hub.Pull) (int, any, error) {
	return http.StatusOK, c.Form.(form).pull(r, p), nil
}

func update(c *hub.Call, r *hub.Repo, p *hub.Pull) (int, any, error) {
	var in struct {
		Title       string `json:"title"`
		Description string `json:"description"`
		Reviewers   []struct {
			UUID string `json:"uuid"`
		} `json:"reviewers"`
	}
	if err := c.Read(&in); err != nil {
		return 0, nil, err
	}
	var requested []*hub.User
	for _, one := range in.Reviewers {
		i := slices.IndexFunc(c.Users(), func(u *hub.User) bool { return c.Form.Identity(u) == one.UUID })
		if i < 0 || c.Users()[i] == p.Author {
			return 0, nil, hub.Refuse(http.StatusBadRequest, "reviewers: invalid")
		}
		requested = append(requested, c.Users()[i])
	}
	if in.Title == "" || len([]rune(in.Description)) > maxText {
		return 0, nil, hub.Refuse(http.StatusBadRequest, "title: required; or a field is too long")
	}
	p.Title, p.Body, p.Requested = in.Title, in.Description, requested
	r.Changed(p, c.By, "update")
	return http.StatusOK, c.Form.(form).pull(r, p), nil
}

func comments(c *hub.Call, r *hub.Repo, p *hub.Pull) (int, any, error) {
	list := []any{}
	for _, v := range p.Verdicts {
		if v.Body != "" {
			list = append(list, c.Form.(form).comment(r, p,
				&hub.Comment{ID: v.ID, Author: v.By, Body: v.Body, Created: v.Created}))
		}
	}
	for _, m := range p.Comments {
		list = append(list, c.Form.(form).comment(r, p, m))
	}
	return values(c, list)
}

func say(c *hub.Call, r *hub.Repo, p *hub.Pull) (int, any, error) {
	var in struct {
		Content struct {
			Raw string `json:"raw"`
		} `json:"content"`
		Parent *struct {
			ID int64 `json:"id"`
		} `json:"parent"`
	}
	if err := c.Read(&in); err != nil {
		return 0, nil, err
	}
	if strings.TrimSpace(in.Content.Raw) == "" || len([]rune(in.Content.Raw)) > maxText {
		return 0, nil, hub.Refuse(http.StatusBadRequest, "content: required, or too long")
	}
	m := hub.Comment{Author: c.By, Body: in.Content.Raw}
	if in.Parent != nil {
		m.ReplyTo = in.Parent.ID
		known := slices.ContainsFunc(p.Verdicts, func(v *hub.Verdict) bool { return v.ID == m.ReplyTo })
		for _, to := range p.Comments {
			if to.ID == m.ReplyTo {
				m.Path, m.Line, m.Old, known = to.Path, to.Line, to.Old, true
			}
		}
		if !known {
			return 0, nil, hub.Refuse(http.StatusNotFound, "parent not found")
		}
	}
	return http.StatusCreated, c.Form.(form).comment(r, p, r.AddComment(p, m)), nil
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
		list = append(list, c.Form.(form).status(newest[name]))
	}
	return values(c, list)
}

func setStatus(c *hub.Call, r *hub.Repo) (int, any, error) {
	var in struct {
		Key         string `json:"key"`
		Name        string `json:"name"`
		State       string `json:"state"`
		URL         string `json:"url"`
		Description string `json:"description"`
	}
	if err := c.Read(&in); err != nil {
		return 0, nil, err
	}
	own := map[string]string{"SUCCESSFUL": "success", "FAILED": "failure", "INPROGRESS": "pending"}[in.State]
	if own == "" || in.Key == "" || in.URL == "" {
		return 0, nil, hub.Refuse(http.StatusBadRequest, "key, state and url are required")
	}
	s := r.AddStatus(hub.Status{Commit: c.R.PathValue("sha"), Name: in.Key, State: own, Description: in.Description,
		URL: in.URL})
	return http.StatusCreated, c.Form.(form).status(s), nil
}

func deleteBranch(c *hub.Call, r *hub.Repo) (int, any, error) {
	branch := c.R.PathValue("branch")
	switch {
	case r.HeadOf(branch) == "":
		return 0, nil, hub.Refuse(http.StatusNotFound, "Branch not found")
	case r.Protected(branch) || branch == "main":
		return 0, nil, hub.Refuse(http.StatusForbidden, "the branch is protected")
	}
	return http.StatusNoContent, nil, r.DeleteBranch(c.By, branch)
}
