package githubtest

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// pullRequest is a pull request.
type pullRequest struct {
	r         *repository
	id        int64
	number    int
	title     string
	body      string
	state     string // open, closed
	draft     bool
	author    *user
	app       bool // the author acted through the App
	head      string
	headSHA   string
	base      string
	merged    bool
	merge     string // the commit on the base
	mergedBy  *user
	created   time.Time
	updated   time.Time
	closed    time.Time
	requested []*user
	labels    []string
	comments  []*issueComment
	lines     []*lineComment
	reviews   []*pullReview
	// examined is the state for which mergeable is known. GitHub computes mergeable in the background, so the first
	// request gets null.
	examined  string
	mergeable bool
}

// touch records the time of a change. s.mu is held.
func (s *Server) touch(p *pullRequest) { p.updated = s.Now() }

// pull returns a pull request by its number. s.mu is held.
func (r *repository) pull(number int) *pullRequest {
	for _, p := range r.pulls {
		if p.number == number {
			return p
		}
	}
	return nil
}

// thePull returns the pull request of the path.
func (c *call) thePull() (*pullRequest, *answer) {
	number := c.value("pull_number")
	if number == "" {
		number = c.value("issue_number")
	}
	n, _ := strconv.Atoi(number) // digits, see match
	if p := c.repo.pull(n); p != nil {
		return p, nil
	}
	a := notFound.answer()
	return nil, &a
}

// keepHead keeps the commits of a pull request by the ref refs/pull/N/head.
func (s *Server) keepHead(p *pullRequest) {
	if _, err := s.run(p.r.dir, nil, "update-ref", fmt.Sprintf("refs/pull/%d/head", p.number), p.headSHA); err != nil {
		s.Log.Error("cannot keep a pull request's commits", "err", err)
	}
}

const maxText = 65536 // characters of a body

// tooLong refuses a body that is too long.
func tooLong(resource, body string) error {
	if n := utf8.RuneCountInString(body); n > maxText {
		return invalid(object{"resource": resource, "code": "custom", "field": "body",
			"message": fmt.Sprintf("body is too long (maximum is %d characters)", maxText)})
	}
	return nil
}

// openPull opens a pull request. s.mu is held.
func (s *Server) openPull(r *repository, by *actor, title, body, head, base string, draft bool) (*pullRequest, error) {
	field := func(name, code string) error {
		return invalid(object{"resource": "PullRequest", "field": name, "code": code})
	}
	custom := func(format string, args ...any) error {
		return invalid(object{"resource": "PullRequest", "code": "custom", "message": fmt.Sprintf(format, args...)})
	}
	if owner, branch, ok := strings.Cut(head, ":"); ok {
		if !strings.EqualFold(owner, s.Account) {
			return nil, field("head", "invalid")
		}
		head = branch
	}
	switch {
	case strings.TrimSpace(title) == "":
		return nil, field("title", "missing_field")
	case utf8.RuneCountInString(title) > 256:
		return nil, custom("title is too long (maximum is 256 characters)")
	case r.heads[base] == "":
		return nil, field("base", "invalid")
	case r.heads[head] == "":
		return nil, field("head", "invalid")
	}
	if err := tooLong("PullRequest", body); err != nil {
		return nil, err
	}
	for _, p := range r.pulls {
		if p.state == "open" && p.head == head && p.base == base {
			return nil, custom("A pull request already exists for %s:%s.", s.Account, head)
		}
	}
	if _, err := s.mergeBase(r, r.heads[base], r.heads[head]); err != nil {
		return nil, custom("The %s branch has no history in common with %s", head, base)
	}
	if s.descends(r, r.heads[base], r.heads[head]) {
		return nil, custom("No commits between %s and %s", base, head)
	}
	r.numbers++
	p := &pullRequest{r: r, id: s.id(), number: r.numbers, title: title, body: body, state: "open", draft: draft,
		author: by.user, app: by.app,
		head: head, headSHA: r.heads[head], base: base, created: s.Now(), updated: s.Now()}
	r.pulls = append(r.pulls, p)
	s.keepHead(p)
	s.change(p.change("open", by.user, strings.TrimSpace(title+"\n\n"+body)))
	s.emitPull(p, "opened", by.user, nil)
	return p, nil
}

// change returns a Change of a pull request.
func (p *pullRequest) change(kind string, by *user, text string) Change {
	return Change{Repo: p.r.name, Number: p.number, Kind: kind, User: by.login, Text: text, Ref: p.head, SHA: p.headSHA}
}

// closePull closes a pull request without a merge. s.mu is held.
func (s *Server) closePull(p *pullRequest, by *user) {
	p.state, p.closed = "closed", s.Now()
	s.touch(p)
	s.change(p.change("close", by, ""))
	s.emitPull(p, "closed", by, nil)
}

// reopenPull reopens a pull request. s.mu is held.
func (s *Server) reopenPull(p *pullRequest, by *user) error {
	switch {
	case p.merged:
		return invalid(object{"resource": "PullRequest", "code": "custom", "field": "state",
			"message": "state cannot be changed. The pull request cannot be reopened."})
	case p.r.heads[p.head] == "":
		return invalid(object{"resource": "PullRequest", "code": "custom", "field": "state",
			"message": fmt.Sprintf("state cannot be changed. The %s branch has been deleted.", p.head)})
	case !s.descends(p.r, p.r.heads[p.head], p.headSHA):
		return invalid(object{"resource": "PullRequest", "code": "custom", "field": "state",
			"message": fmt.Sprintf("state cannot be changed. The %s branch was force-pushed or recreated.", p.head)})
	}
	p.state, p.closed, p.headSHA = "open", time.Time{}, p.r.heads[p.head]
	s.touch(p)
	s.keepHead(p)
	s.change(p.change("reopen", by, ""))
	s.emitPull(p, "reopened", by, nil)
	return nil
}

// mergedPull records that the commits are now in the base. s.mu is held.
func (s *Server) mergedPull(p *pullRequest, commit string, by *user) {
	p.state, p.closed, p.merged, p.merge, p.mergedBy = "closed", s.Now(), true, commit, by
	s.touch(p)
	s.change(p.change("merge", by, commit))
	s.emitPull(p, "closed", by, nil)
}

// canMerge reports whether git can merge the pull request now. s.mu is held.
func (s *Server) canMerge(p *pullRequest) bool {
	_, err := s.fact(p.r, "merge-tree", "--write-tree", p.r.heads[p.base], p.headSHA)
	return err == nil
}

// mergePullNow merges a pull request with git and moves the base. s.mu and the repository's writing are held.
func (s *Server) mergePullNow(p *pullRequest, by *user, method, sha, title, message string) (string, error) {
	r := p.r
	base := r.heads[p.base]
	switch {
	case p.state != "open":
		return "", &refusal{status: http.StatusMethodNotAllowed, message: "Pull Request is not mergeable"}
	case p.draft:
		return "", &refusal{status: http.StatusMethodNotAllowed, message: "Pull Request is still a draft"}
	case sha != "" && sha != p.headSHA:
		return "", &refusal{status: http.StatusConflict,
			message: "Head branch was modified. Review and try the merge again."}
	}
	tree, err := s.fact(r, "merge-tree", "--write-tree", base, p.headSHA)
	if err != nil {
		return "", &refusal{status: http.StatusMethodNotAllowed, message: "Pull Request is not mergeable"}
	}
	env := s.identity(by)
	var commit string
	switch method {
	case "", "merge":
		if title == "" {
			title = fmt.Sprintf("Merge pull request #%d from %s/%s", p.number, s.Account, p.head)
		}
		if message == "" {
			message = p.title
		}
		commit, err = s.run(r.dir, env, "commit-tree", tree, "-p", base, "-p", p.headSHA, "-m", title, "-m", message)
	case "squash":
		if title == "" {
			title = fmt.Sprintf("%s (#%d)", p.title, p.number)
		}
		args := []string{"commit-tree", tree, "-p", base, "-m", title}
		if message != "" {
			args = append(args, "-m", message)
		}
		commit, err = s.run(r.dir, env, args...)
	case "rebase":
		commit, err = s.rebase(r, by, base, p.headSHA)
	default:
		return "", &refusal{status: http.StatusUnprocessableEntity,
			message: fmt.Sprintf("Invalid request.\n\n%s is not a member of [\"merge\", \"squash\", \"rebase\"].", method)}
	}
	if err != nil {
		return "", err
	}
	// The merge is recorded before the base moves, because the move would otherwise merge the pull request as well.
	p.state, p.closed, p.merged, p.merge, p.mergedBy = "closed", s.Now(), true, commit, by
	if err := s.point(r, p.base, commit, by); err != nil {
		return "", err
	}
	s.mergedPull(p, commit, by)
	return commit, nil
}

// rebase copies the commits of head that are not in base onto base.
func (s *Server) rebase(r *repository, by *user, base, head string) (string, error) {
	work, err := os.MkdirTemp(s.hooks, "work")
	if err != nil {
		return "", err
	}
	if _, err := s.run(r.dir, nil, "worktree", "add", "--quiet", "--force", "--detach", work, base); err != nil {
		return "", err
	}
	defer func() {
		_, _ = s.run(r.dir, nil, "worktree", "remove", "--force",
			work)
	}() // its folder is removed with the hooks
	if _, err := s.run(work, s.identity(by), "cherry-pick", "--no-merges", base+".."+head); err != nil {
		return "", &refusal{status: http.StatusMethodNotAllowed, message: "This branch can't be rebased"}
	}
	return s.run(work, nil, "rev-parse", "HEAD")
}

// pullURL returns the URL of a pull request in the API.
func (s *Server) pullURL(p *pullRequest) string {
	return s.repoURL(p.r) + "/pulls/" + strconv.Itoa(p.number)
}

// pullPage returns the URL of a pull request's page.
func (s *Server) pullPage(p *pullRequest) string {
	return s.URL() + "/" + s.Account + "/" + p.r.name + "/pull/" + strconv.Itoa(p.number)
}

// association returns an author's association with the repository.
func (s *Server) association(r *repository, u *user) string {
	switch {
	case u.kind == "Bot":
		return "NONE"
	case rank(r.role(u)) >= rank("admin"):
		return "MEMBER"
	case rank(r.role(u)) > 0:
		return "COLLABORATOR"
	}
	return "NONE"
}

func (s *Server) usersObject(list []*user) []any {
	all := []any{}
	for _, u := range list {
		all = append(all, s.userObject(u))
	}
	return all
}

func (s *Server) labelsObject(p *pullRequest) []any {
	all := []any{}
	for i, name := range p.labels {
		all = append(all, object{"id": p.id*100 + int64(i), "node_id": node("LA", p.id),
			"url": s.repoURL(p.r) + "/labels/" + name, "name": name,
			"color": "ededed", "default": false, "description": nil})
	}
	return all
}

// pullObject returns the JSON of a pull request in a list. s.mu is held.
func (s *Server) pullObject(p *pullRequest) object {
	api, html, issue := s.pullURL(p), s.pullPage(p), s.repoURL(p.r)+"/issues/"+strconv.Itoa(p.number)
	side := func(branch, sha string) object {
		return object{"label": s.Account + ":" + branch, "ref": branch, "sha": sha,
			"user": s.userObject(s.user(s.Account, "Organization")), "repo": s.repoObject(p.r)}
	}
	base := p.r.heads[p.base]
	var merge any
	if p.merge != "" {
		merge = p.merge
	}
	var body any
	if p.body != "" {
		body = p.body
	}
	href := func(url string) object { return object{"href": url} }
	return object{"url": api, "id": p.id, "node_id": node("PR", p.id), "html_url": html, "diff_url": html + ".diff",
		"patch_url": html + ".patch",
		"issue_url": issue, "number": p.number, "state": p.state, "locked": false, "title": p.title,
		"user": s.userObject(p.author), "body": body,
		"created_at": stamp(p.created), "updated_at": stamp(p.updated), "closed_at": stamp(p.closed),
		"merged_at":        stamp(p.mergedAt()),
		"merge_commit_sha": merge, "assignee": nil, "assignees": []any{},
		"requested_reviewers": s.usersObject(p.requested), "requested_teams": []any{},
		"labels": s.labelsObject(p), "milestone": nil, "draft": p.draft, "commits_url": api + "/commits",
		"review_comments_url": api + "/comments",
		"review_comment_url":  s.repoURL(p.r) + "/pulls/comments{/number}", "comments_url": issue + "/comments",
		"statuses_url": s.repoURL(p.r) + "/statuses/" + p.headSHA, "head": side(p.head, p.headSHA),
		"base": side(p.base, base),
		"_links": object{"self": href(api), "html": href(html), "issue": href(issue), "comments": href(issue + "/comments"),
			"review_comments": href(api + "/comments"), "review_comment": href(s.repoURL(p.r) + "/pulls/comments{/number}"),
			"commits": href(api + "/commits"), "statuses": href(s.repoURL(p.r) + "/statuses/" + p.headSHA)},
		"author_association": s.association(p.r, p.author), "auto_merge": nil, "active_lock_reason": nil}
}

func (p *pullRequest) mergedAt() time.Time {
	if p.merged {
		return p.closed
	}
	return time.Time{}
}

// wholePull returns the complete JSON of a pull request. s.mu is held.
func (s *Server) wholePull(p *pullRequest) object {
	o := s.pullObject(p)
	o["merged"], o["merged_by"], o["rebaseable"], o["maintainer_can_modify"] = p.merged, nil, nil, false
	if p.mergedBy != nil {
		o["merged_by"] = s.userObject(p.mergedBy)
	}
	o["comments"], o["review_comments"] = len(p.comments), len(p.lines)
	added, removed, files := s.diffSize(p)
	o["commits"], o["additions"], o["deletions"], o["changed_files"] = len(s.commitsOf(p)), added, removed, files
	o["mergeable"], o["mergeable_state"] = nil, "unknown"
	if p.state == "open" {
		if p.examined != p.headSHA+p.r.heads[p.base] {
			return o
		}
		if p.mergeable {
			o["mergeable"], o["mergeable_state"] = true, "clean"
			if p.draft {
				o["mergeable_state"] = "draft"
			}
		} else {
			o["mergeable"], o["mergeable_state"] = false, "dirty"
		}
	}
	return o
}

// emitPull emits a pull_request event. s.mu is held.
func (s *Server) emitPull(p *pullRequest, action string, by *user, more object) {
	o := object{"action": action, "number": p.number, "pull_request": s.wholePull(p), "repository": s.repoObject(p.r)}
	for name, v := range more {
		o[name] = v
	}
	s.emit(p.r, by, "pull_request", action, o)
}

// pulls returns the list of pull requests. The default is the open ones, the newest first.
func (c *call) pulls() answer {
	query := c.r.URL.Query()
	for name := range query {
		if !slices.Contains([]string{"state", "head", "base", "sort", "direction", "per_page", "page"}, name) {
			c.s.complain("%s: an unknown parameter %s", c.r.URL.Path, name)
		}
	}
	state := query.Get("state")
	if state == "" {
		state = "open"
	}
	if head := query.Get("head"); head != "" && !strings.Contains(head, ":") {
		c.s.complain("%s: head=%s without an owner, which GitHub takes for no filter at all", c.r.URL.Path, head)
		query.Del("head")
	}
	list := []*pullRequest{}
	for _, p := range c.repo.pulls {
		if (state == "all" || p.state == state) && (query.Get("base") == "" || p.base == query.Get("base")) &&
			(query.Get("head") == "" || strings.EqualFold(query.Get("head"), c.s.Account+":"+p.head)) {
			list = append(list, p)
		}
	}
	if query.Get("sort") == "updated" {
		slices.SortStableFunc(list, func(a, b *pullRequest) int { return a.updated.Compare(b.updated) })
	}
	if up := query.Get("direction") == "asc"; !up {
		slices.Reverse(list)
	}
	var all []any
	for _, p := range list {
		all = append(all, c.s.pullObject(p))
	}
	return c.page(all)
}

func (c *call) createPull() answer {
	var ask struct {
		Title    *string `json:"title"`
		Head     *string `json:"head"`
		HeadRepo string  `json:"head_repo"`
		Base     *string `json:"base"`
		Body     string  `json:"body"`
		Draft    bool    `json:"draft"`
		Issue    int     `json:"issue"`
		Modify   bool    `json:"maintainer_can_modify"`
	}
	if a := c.read(&ask); a != nil {
		return *a
	}
	for name, v := range map[string]*string{"title": ask.Title, "head": ask.Head, "base": ask.Base} {
		if v == nil {
			return refused(http.StatusUnprocessableEntity, fmt.Sprintf("Invalid request.\n\n%q wasn't supplied.", name))
		}
	}
	p, err := c.s.openPull(c.repo, c.who, *ask.Title, ask.Body, *ask.Head, *ask.Base, ask.Draft)
	if err != nil {
		return failed(err)
	}
	a := created(c.s.wholePull(p))
	c.set("Location", c.s.pullURL(p))
	return a
}

func (c *call) getPull() answer {
	p, a := c.thePull()
	if a != nil {
		return *a
	}
	switch accept := c.r.Header.Get("Accept"); {
	case strings.Contains(accept, ".diff"):
		return answer{status: http.StatusOK, kind: "application/vnd.github.v3.diff; charset=utf-8",
			body: []byte(c.s.wholeDiff(p))}
	default:
		a := ok(c.s.wholePull(p))
		if now := p.headSHA + c.repo.heads[p.base]; p.examined != now && p.state == "open" {
			p.examined, p.mergeable = now, c.s.canMerge(p)
		}
		return a
	}
}

func (c *call) editPull() answer {
	p, a := c.thePull()
	if a != nil {
		return *a
	}
	var ask struct {
		Title  *string `json:"title"`
		Body   *string `json:"body"`
		State  *string `json:"state"`
		Base   *string `json:"base"`
		Modify *bool   `json:"maintainer_can_modify"`
	}
	if a := c.read(&ask); a != nil {
		return *a
	}
	s := c.s
	if !c.who.app && c.who.user != p.author && rank(c.repo.role(c.who.user)) < rank("write") {
		return refused(http.StatusForbidden, "Must have push access to repository")
	}
	changes := object{}
	if ask.Title != nil {
		if strings.TrimSpace(*ask.Title) == "" {
			return failed(invalid(object{"resource": "PullRequest", "code": "missing_field", "field": "title"}))
		}
		if p.title != *ask.Title {
			changes["title"] = object{"from": p.title}
			p.title = *ask.Title
		}
	}
	if ask.Body != nil {
		if err := tooLong("PullRequest", *ask.Body); err != nil {
			return failed(err)
		}
		if p.body != *ask.Body {
			changes["body"] = object{"from": p.body}
			p.body = *ask.Body
		}
	}
	if ask.Base != nil && *ask.Base != p.base {
		if c.repo.heads[*ask.Base] == "" {
			return failed(invalid(object{"resource": "PullRequest", "field": "base", "code": "invalid"}))
		}
		changes["base"] = object{"ref": object{"from": p.base}, "sha": object{"from": c.repo.heads[p.base]}}
		p.base = *ask.Base
	}
	if len(changes) > 0 {
		s.touch(p)
		s.change(p.change("edit", c.who.user, p.title))
		s.emitPull(p, "edited", c.who.user, object{"changes": changes})
	}
	if ask.State != nil && *ask.State != p.state {
		switch *ask.State {
		case "closed":
			s.closePull(p, c.who.user)
		case "open":
			if err := s.reopenPull(p, c.who.user); err != nil {
				return failed(err)
			}
		default:
			return failed(invalid(object{"resource": "PullRequest", "field": "state", "code": "invalid"}))
		}
	}
	return ok(s.wholePull(p))
}

func (c *call) isMerged() answer {
	p, a := c.thePull()
	if a != nil {
		return *a
	}
	if !p.merged {
		return notFound.answer()
	}
	return nothing()
}

func (c *call) mergePull() answer {
	p, a := c.thePull()
	if a != nil {
		return *a
	}
	var ask struct {
		Title   string `json:"commit_title"`
		Message string `json:"commit_message"`
		SHA     string `json:"sha"`
		Method  string `json:"merge_method"`
	}
	if a := c.read(&ask); a != nil {
		return *a
	}
	commit, err := c.s.mergePullNow(p, c.who.user, ask.Method, ask.SHA, ask.Title, ask.Message)
	if err != nil {
		return failed(err)
	}
	return ok(object{"sha": commit, "merged": true, "message": "Pull Request successfully merged"})
}

func (c *call) pullCommits() answer {
	p, a := c.thePull()
	if a != nil {
		return *a
	}
	var list []any
	for _, sha := range c.s.commitsOf(p) {
		list = append(list, c.s.commitObject(c.repo, sha))
	}
	return c.page(list)
}

// commitPulls returns the pull requests that contain a commit.
func (c *call) commitPulls() answer {
	sha, a := c.resolve()
	if a != nil {
		return *a
	}
	var list []any
	for _, p := range c.repo.pulls {
		if slices.Contains(c.s.commitsOf(p), sha) {
			list = append(list, c.s.pullObject(p))
		}
	}
	return c.page(list)
}

// request requests reviews from all of the users, or from none.
func (c *call) request() answer { return c.reviewers(true) }

func (c *call) unrequest() answer { return c.reviewers(false) }

func (c *call) reviewers(add bool) answer {
	p, a := c.thePull()
	if a != nil {
		return *a
	}
	var ask struct {
		Reviewers []string `json:"reviewers"`
		Teams     []string `json:"team_reviewers"`
	}
	if a := c.read(&ask); a != nil {
		return *a
	}
	if len(ask.Teams) > 0 {
		return refused(http.StatusUnprocessableEntity, "Could not resolve to a node with the global id of 'T_0'.")
	}
	var who []*user
	for _, login := range ask.Reviewers {
		var u *user
		for name, known := range c.s.state.users {
			if strings.EqualFold(name, login) {
				u = known
			}
		}
		switch {
		case add && u == p.author:
			c.s.complain("a review of #%d was asked of its author", p.number)
			return refused(http.StatusUnprocessableEntity, "Review cannot be requested from pull request author.")
		case u == nil, u.kind != "User", rank(c.repo.role(u)) == 0:
			if add {
				return refused(http.StatusUnprocessableEntity,
					fmt.Sprintf("Reviews may only be requested from collaborators. One or more of the users or teams you specified is not a collaborator of the %s/%s repository.", c.s.Account, c.repo.name))
			}
			continue
		}
		who = append(who, u)
	}
	c.s.requestReview(p, c.who.user, who, add)
	o := c.s.pullObject(p)
	if add {
		return created(o)
	}
	return ok(o)
}

// requestReview adds or removes requests for review. s.mu is held.
func (s *Server) requestReview(p *pullRequest, by *user, who []*user, add bool) {
	for _, u := range who {
		at, action := slices.Index(p.requested, u), "review_requested"
		switch {
		case add && at < 0:
			p.requested = append(p.requested, u)
		case !add && at >= 0:
			p.requested, action = slices.Delete(p.requested, at, at+1), "review_request_removed"
		default:
			continue
		}
		s.touch(p)
		s.change(p.change("request", by, u.login))
		s.emitPull(p, action, by, object{"requested_reviewer": s.userObject(u)})
	}
}

func (c *call) requested() answer {
	p, a := c.thePull()
	if a != nil {
		return *a
	}
	return ok(object{"users": c.s.usersObject(p.requested), "teams": []any{}})
}
