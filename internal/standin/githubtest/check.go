package githubtest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/internal/standin/githost"
)

// checkRun is a check run.
type checkRun struct {
	id         int64
	name       string
	sha        string
	branch     string
	status     string
	conclusion string
	app        string // slug of the App that made it
	title      string
	summary    string
	text       string
	details    string
	external   string
	started    time.Time
	completed  time.Time
}

// workflowRun is a run of a workflow of GitHub Actions.
type workflowRun struct {
	id         int64
	number     int
	attempt    int
	name       string
	sha        string
	branch     string
	status     string
	conclusion string
	by         *user
	created    time.Time
}

// conclusions are those that GitHub accepts.
var conclusions = []string{"action_required", "cancelled", "failure", "neutral", "success", "skipped", "stale",
	"timed_out", "startup_failure"}

// ofCommit returns the pull requests with this head, in the form of check runs. s.mu is held.
func (s *Server) ofCommit(r *repository, sha string) []any {
	list := []any{}
	for _, p := range r.pulls {
		if p.headSHA != sha || p.state != "open" {
			continue
		}
		small := object{"id": r.id, "url": s.repoURL(r), "name": r.name}
		list = append(list, object{"url": s.pullURL(p), "id": p.id, "number": p.number,
			"head": object{"ref": p.head, "sha": p.headSHA, "repo": small},
			"base": object{"ref": p.base, "sha": r.heads[p.base], "repo": small}})
	}
	return list
}

// checkObject returns the JSON of a check run. s.mu is held.
func (s *Server) checkObject(r *repository, k *checkRun) object {
	api := fmt.Sprintf("%s/check-runs/%d", s.repoURL(r), k.id)
	html := fmt.Sprintf("%s/%s/%s/runs/%d", s.URL(), s.Account, r.name, k.id)
	text := func(v string) any {
		if v == "" {
			return nil
		}
		return v
	}
	app := s.appObject(false)
	if k.app != s.Slug {
		app["id"], app["slug"], app["name"] = 15368, k.app, k.app
	}
	details := k.details
	if details == "" {
		details = html
	}
	pulls := s.ofCommit(r, k.sha)
	return object{"id": k.id, "name": k.name, "node_id": node("CR", k.id), "head_sha": k.sha, "external_id": k.external,
		"url": api, "html_url": html,
		"details_url": details, "status": k.status, "conclusion": text(k.conclusion), "started_at": stamp(k.started),
		"completed_at": stamp(k.completed),
		"output": object{"title": text(k.title), "summary": text(k.summary), "text": text(k.text),
			"annotations_count": 0, "annotations_url": api + "/annotations"},
		"check_suite": object{"id": k.id + 1_000_000, "node_id": node("CS", k.id), "head_branch": k.branch,
			"head_sha": k.sha, "status": k.status,
			"conclusion": text(k.conclusion), "url": fmt.Sprintf("%s/check-suites/%d", s.repoURL(r), k.id+1_000_000),
			"before": githost.Zero, "after": k.sha,
			"pull_requests": pulls, "app": app, "created_at": stamp(k.started), "updated_at": stamp(k.started)},
		"app": app, "pull_requests": pulls}
}

// emitCheck emits a check_run event. s.mu is held.
func (s *Server) emitCheck(r *repository, k *checkRun, action string, by *user) {
	ch := Change{Repo: r.name, Kind: "check", User: by.login, Ref: k.conclusion, SHA: k.sha,
		Text: strings.TrimSpace(k.name + ": " + k.title)}
	for _, p := range r.pulls {
		if p.headSHA == k.sha && p.state == "open" {
			ch.Number = p.number
		}
	}
	s.change(ch)
	s.emit(r, by, "check_run", action,
		object{"action": action, "check_run": s.checkObject(r, k), "repository": s.repoObject(r)})
}

type checkOutput struct {
	Title       string `json:"title"`
	Summary     string `json:"summary"`
	Text        string `json:"text"`
	Annotations []any  `json:"annotations"`
	Images      []any  `json:"images"`
}

type askedCheck struct {
	Name       string       `json:"name"`
	SHA        string       `json:"head_sha"`
	Details    string       `json:"details_url"`
	External   string       `json:"external_id"`
	Status     string       `json:"status"`
	Started    time.Time    `json:"started_at"`
	Conclusion string       `json:"conclusion"`
	Completed  time.Time    `json:"completed_at"`
	Output     *checkOutput `json:"output"`
	Actions    []any        `json:"actions"`
}

// apply applies a request to a check.
func (k *checkRun) apply(ask askedCheck, now time.Time) error {
	if ask.Conclusion != "" && !slices.Contains(conclusions, ask.Conclusion) {
		return invalid(object{"resource": "CheckRun", "code": "invalid", "field": "conclusion"})
	}
	if ask.Status == "completed" && ask.Conclusion == "" {
		return invalid(object{"resource": "CheckRun", "code": "missing_field", "field": "conclusion"})
	}
	for into, v := range map[*string]string{&k.name: ask.Name, &k.details: ask.Details, &k.external: ask.External, &k.status: ask.Status} {
		if v != "" {
			*into = v
		}
	}
	if ask.Output != nil {
		k.title, k.summary, k.text = ask.Output.Title, ask.Output.Summary, ask.Output.Text
	}
	if ask.Conclusion != "" {
		k.status, k.conclusion, k.completed = "completed", ask.Conclusion, now
	}
	return nil
}

func (c *call) createCheck() answer {
	var ask askedCheck
	if a := c.read(&ask); a != nil {
		return *a
	}
	s := c.s
	if ask.Name == "" || ask.SHA == "" {
		return refused(http.StatusUnprocessableEntity, "Invalid request.\n\n\"name\", \"head_sha\" weren't supplied.")
	}
	if _, err := s.run(c.repo.dir, nil, "cat-file", "-e", ask.SHA+"^{commit}"); !hexadecimal.MatchString(ask.SHA) || err != nil {
		return refused(http.StatusUnprocessableEntity, "No commit found for SHA: "+ask.SHA)
	}
	k := &checkRun{id: s.id(), sha: ask.SHA, status: "queued", app: s.Slug, started: s.Now(), branch: c.repo.branchOf(ask.SHA)}
	if err := k.apply(ask, s.Now()); err != nil {
		return failed(err)
	}
	c.repo.checks = append(c.repo.checks, k)
	s.emitCheck(c.repo, k, "created", c.who.user)
	return created(s.checkObject(c.repo, k))
}

// branchOf returns the branch whose tip is the commit.
func (r *repository) branchOf(sha string) string {
	for branch, tip := range r.heads {
		if tip == sha {
			return branch
		}
	}
	return ""
}

// theCheck returns the check of the path.
func (c *call) theCheck() (*checkRun, *answer) {
	for _, k := range c.repo.checks {
		if k.id == c.number("check_run_id") {
			return k, nil
		}
	}
	a := notFound.answer()
	return nil, &a
}

func (c *call) getCheck() answer {
	k, a := c.theCheck()
	if a != nil {
		return *a
	}
	return ok(c.s.checkObject(c.repo, k))
}

func (c *call) editCheck() answer {
	k, a := c.theCheck()
	if a != nil {
		return *a
	}
	var ask askedCheck
	if a := c.read(&ask); a != nil {
		return *a
	}
	if k.app != c.s.Slug {
		return refused(http.StatusForbidden, "Invalid app_id `"+fmt.Sprint(c.s.App)+
			"` - check run can only be modified by the GitHub App that created it.")
	}
	if err := k.apply(ask, c.s.Now()); err != nil {
		return failed(err)
	}
	if k.status == "completed" {
		c.s.emitCheck(c.repo, k, "completed", c.who.user)
	}
	return ok(c.s.checkObject(c.repo, k))
}

// checksOf returns the check runs of a commit, the newest of each name unless filter=all.
func (c *call) checksOf() answer {
	sha, a := c.resolve()
	if a != nil {
		return *a
	}
	query := c.r.URL.Query()
	var list []any
	seen := map[string]bool{}
	for _, k := range slices.Backward(c.repo.checks) {
		if k.sha != sha || query.Get("check_name") != "" && query.Get("check_name") != k.name ||
			query.Get("status") != "" && query.Get("status") != k.status {
			continue
		}
		if seen[k.name] && query.Get("filter") != "all" {
			continue
		}
		seen[k.name] = true
		list = append(list, c.s.checkObject(c.repo, k))
	}
	return c.pageOf("check_runs", list)
}

// commitStatus is a status of a commit.
type commitStatus struct {
	id                              int64
	sha, context, state, text, link string
	at                              time.Time
}

func (c *call) statusObject(k *commitStatus) object {
	return object{"id": k.id, "node_id": node("SC", k.id), "state": k.state, "context": k.context,
		"description": k.text, "target_url": k.link,
		"url": c.repoURL() + "/statuses/" + k.sha, "created_at": stamp(k.at), "updated_at": stamp(k.at),
		"creator": c.s.userObject(c.who.user)}
}

// createStatus sets a status of a commit.
func (c *call) createStatus() answer {
	var ask struct {
		State       string `json:"state"`
		TargetURL   string `json:"target_url"`
		Description string `json:"description"`
		Context     string `json:"context"`
	}
	if a := c.read(&ask); a != nil {
		return *a
	}
	sha, a := c.resolve()
	if a != nil {
		return *a
	}
	if !slices.Contains([]string{"error", "failure", "pending", "success"}, ask.State) || len([]rune(ask.Description)) > 140 {
		return refused(http.StatusUnprocessableEntity, "Validation Failed")
	}
	k := &commitStatus{id: c.s.id(), sha: sha, context: ask.Context, state: ask.State, text: ask.Description,
		link: ask.TargetURL, at: c.s.Now()}
	c.repo.statuses = append(c.repo.statuses, k)
	return created(c.statusObject(k))
}

// status returns the combined commit status.
func (c *call) status() answer {
	sha, a := c.resolve()
	if a != nil {
		return *a
	}
	list, seen := []any{}, map[string]bool{}
	for _, k := range slices.Backward(c.repo.statuses) {
		if k.sha == sha && !seen[k.context] {
			seen[k.context] = true
			list = append(list, c.statusObject(k))
		}
	}
	return ok(object{"state": "pending", "statuses": list, "sha": sha, "total_count": len(list),
		"repository": c.s.repoObject(c.repo),
		"commit_url": c.repoURL() + "/commits/" + sha, "url": c.repoURL() + "/commits/" + sha + "/status"})
}

// StatusOf returns the state and the text of a status of a commit.
func (r *Repo) StatusOf(sha, context string) (state, text string) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	for _, k := range slices.Backward(r.r.statuses) {
		if k.sha == sha && k.context == context {
			return k.state, k.text
		}
	}
	return "", ""
}

// runObject returns the JSON of a workflow run. s.mu is held.
func (s *Server) runObject(r *repository, w *workflowRun) object {
	api := fmt.Sprintf("%s/actions/runs/%d", s.repoURL(r), w.id)
	var conclusion any
	if w.conclusion != "" {
		conclusion = w.conclusion
	}
	o := object{"id": w.id, "name": w.name, "node_id": node("WFR", w.id), "head_branch": w.branch, "head_sha": w.sha,
		"path": ".github/workflows/" + strings.ToLower(w.name) + ".yml", "display_title": w.name,
		"run_number": w.number, "event": "push",
		"status": w.status, "conclusion": conclusion, "workflow_id": 77, "check_suite_id": w.id + 1_000_000,
		"check_suite_node_id": node("CS", w.id),
		"url":                 api, "html_url": fmt.Sprintf("%s/%s/%s/actions/runs/%d", s.URL(), s.Account, r.name, w.id),
		"pull_requests": s.ofCommit(r, w.sha),
		"created_at":    stamp(w.created), "updated_at": stamp(w.created), "actor": s.userObject(w.by),
		"run_attempt":          w.attempt,
		"referenced_workflows": []any{}, "run_started_at": stamp(w.created), "triggering_actor": s.userObject(w.by),
		"previous_attempt_url": nil,
		"workflow_url":         s.repoURL(r) + "/actions/workflows/77", "head_commit": s.pushCommit(r, w.sha),
		"repository": s.repoObject(r), "head_repository": s.repoObject(r)}
	for _, name := range []string{"jobs", "logs", "artifacts", "cancel", "rerun"} {
		o[name+"_url"] = api + "/" + name
	}
	return o
}

// emitRun emits a workflow_run event. s.mu is held.
func (s *Server) emitRun(r *repository, w *workflowRun, action string) {
	s.change(Change{Repo: r.name, Kind: "workflow", User: w.by.login, Ref: w.conclusion, SHA: w.sha, Text: w.name})
	s.emit(r, w.by, "workflow_run", action,
		object{"action": action, "workflow_run": s.runObject(r, w), "repository": s.repoObject(r),
			"workflow": object{"id": 77, "node_id": "W_77", "name": w.name,
				"path": ".github/workflows/" + strings.ToLower(w.name) + ".yml", "state": "active",
				"created_at": epoch, "updated_at": epoch, "url": s.repoURL(r) + "/actions/workflows/77",
				"html_url": s.URL() + "/" + s.Account + "/" + r.name + "/actions", "badge_url": s.URL() + "/badge.svg"}})
}

func (c *call) workflowRuns() answer {
	query := c.r.URL.Query()
	var list []any
	for _, w := range slices.Backward(c.repo.runs) {
		if (query.Get("head_sha") == "" || query.Get("head_sha") == w.sha) &&
			(query.Get("branch") == "" || query.Get("branch") == w.branch) &&
			(query.Get("status") == "" || query.Get("status") == w.status || query.Get("status") == w.conclusion) {
			list = append(list, c.s.runObject(c.repo, w))
		}
	}
	return c.pageOf("workflow_runs", list)
}

func (c *call) workflowRun() answer {
	for _, w := range c.repo.runs {
		if w.id == c.number("run_id") {
			return ok(c.s.runObject(c.repo, w))
		}
	}
	return notFound.answer()
}
