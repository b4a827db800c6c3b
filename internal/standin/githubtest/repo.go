package githubtest

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/internal/standin/githost"
)

// repository is a repository with all its objects.
type repository struct {
	s    *Server
	id   int64
	name string
	dir  string
	main string // the default branch

	writing sync.Mutex // held during a write of refs; taken before Server.mu

	// Server.mu guards the fields below.
	issues    []*issue
	heads     map[string]string // branches with their last known tips
	roles     map[string]string // of users, by login
	public    bool
	facts     map[string]fact // see Server.fact
	protected map[string]bool
	numbers   int
	pulls     []*pullRequest // oldest first
	checks    []*checkRun
	statuses  []*commitStatus // oldest first
	runs      []*workflowRun
}

// epoch is the time of all objects that are older than the stand-in.
const epoch = "2020-01-01T00:00:00Z"

// repo returns a repository. It also finds one that has appeared below Root. s.mu is held.
func (s *Server) repo(name string) *repository {
	for known, r := range s.state.repos {
		if strings.EqualFold(known, name) {
			return r
		}
	}
	if name == "" || strings.ContainsAny(name, "/\\") || name[0] == '.' {
		return nil
	}
	if _, err := os.Stat(s.Dir(name) + "/HEAD"); err != nil {
		return nil
	}
	r := &repository{s: s, id: s.id(), name: name, dir: s.Dir(name), main: "main", roles: map[string]string{},
		protected: map[string]bool{}}
	if head, err := s.run(r.dir, nil, "symbolic-ref", "--short", "HEAD"); err == nil {
		r.main = head
	}
	heads, err := s.host().Heads(r.dir)
	if err != nil {
		return nil
	}
	r.heads = heads
	s.state.repos[name] = r
	return r
}

// role returns a user's role in this repository, or the user's role in all.
func (r *repository) role(u *user) string {
	everybody := ""
	if r.public {
		everybody = "read"
	}
	return cmp.Or(r.roles[u.login], r.s.state.roles[u.login], everybody)
}

// follow finds the branches that by has moved, and applies the consequences. s.mu is held.
func (s *Server) follow(r *repository, by *user) error {
	now, err := s.host().Heads(r.dir)
	if err != nil {
		return err
	}
	before := r.heads
	r.heads = now
	names := map[string]bool{}
	for name, sha := range before {
		names[name] = now[name] != sha
	}
	for name, sha := range now {
		names[name] = before[name] != sha
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if names[name] {
			s.branchMoved(r, name, before[name], now[name], by)
		}
	}
	return nil
}

// branchMoved emits the events of a moved branch, and updates its pull requests as GitHub does. s.mu is held.
func (s *Server) branchMoved(r *repository, branch, from, to string, by *user) {
	s.emitPush(r, branch, from, to, by)
	arrived := s.between(r, from, to)
	for _, p := range r.pulls {
		switch {
		case p.state != "open":
		case to == "" && (p.head == branch || p.base == branch):
			s.closePull(p, by)
		case p.head == branch:
			before := p.headSHA
			p.headSHA = to
			s.touch(p)
			s.keepHead(p)
			s.emitPull(p, "synchronize", by, object{"before": before, "after": to})
		case p.base == branch && slices.Contains(arrived, p.headSHA):
			s.mergedPull(p, to, by)
		}
	}
}

// node returns an opaque id.
func node(kind string, id int64) string { return kind + "_" + strconv.FormatInt(id, 36) }

// userObject returns the JSON of an account. s.mu is held.
func (s *Server) userObject(u *user) object {
	if u == nil {
		return nil
	}
	api := s.API() + "users/" + u.login
	return object{"login": u.login, "id": u.id, "node_id": node("U", u.id),
		"avatar_url": s.URL() + "/avatars/" + u.login, "gravatar_id": "",
		"url": api, "html_url": s.URL() + "/" + u.login, "followers_url": api + "/followers",
		"following_url": api + "/following{/other_user}",
		"gists_url":     api + "/gists{/gist_id}", "starred_url": api + "/starred{/owner}{/repo}",
		"subscriptions_url": api + "/subscriptions",
		"organizations_url": api + "/orgs", "repos_url": api + "/repos", "events_url": api + "/events{/privacy}",
		"received_events_url": api + "/received_events", "type": u.kind, "user_view_type": "public", "site_admin": false}
}

// repoObject returns the JSON of a repository. s.mu is held.
func (s *Server) repoObject(r *repository) object {
	full := s.Account + "/" + r.name
	html, api := s.URL()+"/"+full, s.API()+"repos/"+full
	o := object{"id": r.id, "node_id": node("R", r.id), "name": r.name, "full_name": full, "private": true,
		"visibility": "private",
		"owner":      s.userObject(s.user(s.Account, "Organization")), "html_url": html, "description": nil,
		"fork": false, "url": api,
		"created_at": epoch, "updated_at": epoch, "pushed_at": epoch, "git_url": "git://" + s.addr + "/" + full + ".git",
		"ssh_url": "git@" + s.addr + ":" + full + ".git", "clone_url": html + ".git", "svn_url": html,
		"homepage": nil, "size": 0,
		"stargazers_count": 0, "watchers_count": 0, "language": nil, "has_issues": true, "has_projects": true,
		"has_downloads": true,
		"has_wiki":      false, "has_pages": false, "has_discussions": false, "forks_count": 0, "mirror_url": nil,
		"archived": false,
		"disabled": false, "open_issues_count": len(r.pulls), "license": nil, "allow_forking": false, "is_template": false,
		"web_commit_signoff_required": false, "topics": []any{}, "forks": 0, "open_issues": len(r.pulls), "watchers": 0,
		"default_branch": r.main, "allow_squash_merge": true, "allow_merge_commit": true, "allow_rebase_merge": true,
		"allow_auto_merge": false, "delete_branch_on_merge": false}
	if r.public {
		o["private"], o["visibility"] = false, "public"
	}
	for name, path := range map[string]string{"forks": "/forks", "keys": "/keys{/key_id}",
		"collaborators": "/collaborators{/collaborator}",
		"teams":         "/teams", "hooks": "/hooks", "issue_events": "/issues/events{/number}", "events": "/events",
		"assignees": "/assignees{/user}",
		"branches":  "/branches{/branch}", "tags": "/tags", "blobs": "/git/blobs{/sha}", "git_tags": "/git/tags{/sha}",
		"git_refs": "/git/refs{/sha}",
		"trees":    "/git/trees{/sha}", "statuses": "/statuses/{sha}", "languages": "/languages",
		"stargazers":   "/stargazers",
		"contributors": "/contributors", "subscribers": "/subscribers", "subscription": "/subscription",
		"commits":     "/commits{/sha}",
		"git_commits": "/git/commits{/sha}", "comments": "/comments{/number}", "issue_comment": "/issues/comments{/number}",
		"contents": "/contents/{+path}", "compare": "/compare/{base}...{head}", "merges": "/merges",
		"archive":   "/{archive_format}{/ref}",
		"downloads": "/downloads", "issues": "/issues{/number}", "pulls": "/pulls{/number}",
		"milestones":    "/milestones{/number}",
		"notifications": "/notifications{?since,all,participating}", "labels": "/labels{/name}",
		"releases": "/releases{/id}", "deployments": "/deployments"} {
		o[name+"_url"] = api + path
	}
	return o
}

// repoFor is repoObject with the permissions of the requester.
func (c *call) repoFor(r *repository) object {
	o := c.s.repoObject(r)
	role := "read"
	if !c.who.app {
		role = r.role(c.who.user)
	}
	may := object{}
	for name, least := range map[string]string{"pull": "read", "triage": "triage", "push": "write",
		"maintain": "maintain", "admin": "admin"} {
		may[name] = rank(role) >= rank(least)
	}
	o["permissions"] = may
	return o
}

func (c *call) getRepo() answer { return ok(c.repoFor(c.repo)) }

// allRepos returns the repositories that the requester can see, by name.
func (c *call) allRepos() []any {
	s := c.s
	folders, err := os.ReadDir(s.Root + "/" + s.Account)
	if err != nil {
		return nil
	}
	var list []any
	for _, f := range folders {
		if name, is := strings.CutSuffix(f.Name(), ".git"); is {
			if r := s.repo(name); r != nil && s.sees(c.who, r) {
				list = append(list, c.repoFor(r))
			}
		}
	}
	return list
}

func (c *call) userRepos() answer {
	if org := c.value("org"); org != "" && !strings.EqualFold(org, c.s.Account) {
		return notFound.answer()
	}
	return c.page(c.allRepos())
}

func (c *call) installationRepos() answer {
	if id := c.value("installation_id"); id != "" && id != strconv.FormatInt(c.s.Installation, 10) {
		return notFound.answer()
	}
	return c.pageOf("repositories", c.allRepos())
}

func (c *call) userInstallations() answer {
	return c.pageOf("installations", []any{c.s.installationObject()})
}

func (c *call) me() answer {
	o := c.s.userObject(c.who.user)
	o["name"], o["email"] = c.who.user.login, nil
	return ok(o)
}

func (c *call) emails() answer {
	return c.page([]any{
		object{"email": c.who.user.login + "@example.org", "verified": true, "primary": true, "visibility": "private"},
		object{"email": c.who.user.login + "@old.example.org", "verified": false, "primary": false, "visibility": nil}})
}

func (c *call) orgs() answer {
	if c.who.user.left {
		return c.page([]any{})
	}
	org := c.s.user(c.s.Account, "Organization")
	return c.page([]any{object{"login": org.login, "id": org.id, "node_id": node("O", org.id),
		"url":        c.s.API() + "orgs/" + org.login,
		"avatar_url": c.s.URL() + "/avatars/" + org.login, "description": ""}})
}

func (c *call) anyUser() answer {
	for login, u := range c.s.state.users {
		if strings.EqualFold(login, c.value("username")) {
			return ok(c.s.userObject(u))
		}
	}
	return notFound.answer()
}

// permission returns a collaborator's permission. GitHub maps "maintain" and "triage" to the four older roles.
func (c *call) permission() answer {
	for login, u := range c.s.state.users {
		if !strings.EqualFold(login, c.value("username")) {
			continue
		}
		role := c.repo.role(u)
		o := object{"permission": cmp.Or(role, "none"), "role_name": cmp.Or(role, "none"), "user": c.s.userObject(u)}
		switch role {
		case "maintain":
			o["permission"] = "write"
		case "triage":
			o["permission"] = "read"
		}
		return ok(o)
	}
	return refused(http.StatusNotFound, c.value("username")+" is not a user")
}

func (c *call) branchObject(name string) object {
	sha := c.repo.heads[name]
	return object{"name": name, "commit": object{"sha": sha, "url": c.repoURL() + "/commits/" + sha},
		"protected": c.repo.protected[name]}
}

func (c *call) branches() answer {
	var list []any
	for _, name := range slices.Sorted(maps.Keys(c.repo.heads)) {
		list = append(list, c.branchObject(name))
	}
	return c.page(list)
}

func (c *call) branch() answer {
	if c.repo.heads[c.value("branch")] == "" {
		return refused(http.StatusNotFound, "Branch not found")
	}
	return ok(c.branchObject(c.value("branch")))
}

// repoURL returns the URL of the repository in the API.
func (c *call) repoURL() string { return c.s.repoURL(c.repo) }

func (s *Server) repoURL(r *repository) string { return s.API() + "repos/" + s.Account + "/" + r.name }

func (c *call) getRef() answer {
	branch, is := strings.CutPrefix(c.value("ref"), "heads/")
	sha := c.repo.heads[branch]
	if !is || sha == "" {
		return notFound.answer()
	}
	return ok(object{"ref": "refs/heads/" + branch, "node_id": node("REF", c.repo.id),
		"url":    c.repoURL() + "/git/refs/heads/" + branch,
		"object": object{"type": "commit", "sha": sha, "url": c.repoURL() + "/git/commits/" + sha}})
}

func (c *call) deleteRef() answer {
	branch, is := strings.CutPrefix(c.value("ref"), "heads/")
	switch {
	case !is || c.repo.heads[branch] == "":
		return refused(http.StatusUnprocessableEntity, "Reference does not exist")
	case c.repo.protected[branch], branch == c.repo.main:
		return refused(http.StatusUnprocessableEntity, "Cannot delete this branch")
	}
	if err := c.s.point(c.repo, branch, "", c.who.user); err != nil {
		return failed(err)
	}
	return nothing()
}

var hexadecimal = regexp.MustCompile(`^[0-9a-f]{7,40}$`)

// resolve returns the commit of the path's ref.
func (c *call) resolve() (string, *answer) {
	ref := c.value("ref")
	if sha := c.repo.heads[strings.TrimPrefix(ref, "heads/")]; sha != "" {
		return sha, nil
	}
	if hexadecimal.MatchString(ref) {
		if sha, err := c.s.run(c.repo.dir, nil, "rev-parse", "--verify", "--quiet", ref+"^{commit}"); err == nil {
			return sha, nil
		}
	}
	a := refused(http.StatusUnprocessableEntity, "No commit found for SHA: "+ref)
	return "", &a
}

func (c *call) commit() answer {
	sha, a := c.resolve()
	if a != nil {
		return *a
	}
	return ok(c.s.commitObject(c.repo, sha))
}

// commitObject returns the JSON of a commit.
func (s *Server) commitObject(r *repository, sha string) object {
	out, err := s.fact(r, "show", "-s", "--format=%T%n%P%n%an%n%ae%n%aI%n%cn%n%ce%n%cI%n%B", sha)
	f := strings.SplitN(out, "\n", 9)
	if err != nil || len(f) < 9 {
		return object{"sha": sha}
	}
	url := s.repoURL(r)
	parents := []any{}
	for _, p := range strings.Fields(f[1]) {
		parents = append(parents, object{"sha": p, "url": url + "/commits/" + p})
	}
	return object{"sha": sha, "node_id": node("C", r.id), "url": url + "/commits/" + sha,
		"html_url": s.URL() + "/" + s.Account + "/" + r.name + "/commit/" + sha,
		"commit": object{"message": strings.TrimSpace(f[8]), "tree": object{"sha": f[0]}, "comment_count": 0,
			"author":       object{"name": f[2], "email": f[3], "date": f[4]},
			"committer":    object{"name": f[5], "email": f[6], "date": f[7]},
			"verification": object{"verified": false, "reason": "unsigned"}},
		"author": s.userObject(s.byEmail(f[3])), "committer": s.userObject(s.byEmail(f[6])), "parents": parents}
}

// byEmail returns the account of a noreply address, or nil.
func (s *Server) byEmail(email string) *user {
	name, _, _ := strings.Cut(email, "@users.noreply.github.com")
	_, login, _ := strings.Cut(name, "+")
	return s.state.users[login]
}

// pushCommit returns the JSON of a commit in a push event.
func (s *Server) pushCommit(r *repository, sha string) object {
	o := s.commitObject(r, sha)
	inner, isCommit := o["commit"].(object)
	if !isCommit {
		return nil
	}
	who := func(key string, u *user) object {
		p, _ := inner[key].(object)
		out := object{"name": p["name"], "email": p["email"]}
		if u != nil {
			out["username"] = u.login
		}
		return out
	}
	tree, _ := inner["tree"].(object)
	author, _ := inner["author"].(object)
	committer, _ := inner["committer"].(object)
	email := func(p object) string { return fmt.Sprint(p["email"]) }
	c := object{"id": sha, "tree_id": tree["sha"], "distinct": true, "message": inner["message"],
		"timestamp": committer["date"],
		"url":       o["html_url"], "author": who("author", s.byEmail(email(author))),
		"committer": who("committer", s.byEmail(email(committer)))}
	kinds := map[byte]string{'A': "added", 'D': "removed", 'M': "modified"}
	for _, name := range kinds {
		c[name] = []string{}
	}
	out, err := s.fact(r, "diff-tree", "--root", "--no-commit-id", "--name-status", "--no-renames", "-r", sha)
	if err == nil {
		for line := range strings.Lines(out) {
			if status, path, cut := strings.Cut(strings.TrimSpace(line), "\t"); cut && kinds[status[0]] != "" {
				list, _ := c[kinds[status[0]]].([]string)
				c[kinds[status[0]]] = append(list, path)
			}
		}
	}
	return c
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// maxCommits is GitHub's limit of commits in a push event.
const maxCommits = 2048

// between lists the commits that a branch gained by a move, the oldest first. s.mu is held.
func (s *Server) between(r *repository, from, to string) []string {
	if to == "" {
		return nil
	}
	args := []string{"rev-list", "--reverse", "--max-count=" + strconv.Itoa(maxCommits), to}
	main := r.heads[r.main]
	switch {
	case from != "":
		args = append(args, "^"+from)
	case main == to && len(r.heads) > 1:
		return nil // a new branch without new commits
	case main != to:
		args = append(args, "^"+main)
	}
	out, err := s.fact(r, args...)
	if err != nil {
		return nil
	}
	return strings.Fields(out)
}

// emitPush emits the push event of a branch. s.mu is held.
func (s *Server) emitPush(r *repository, branch, from, to string, by *user) {
	commits := []any{}
	var head any
	if to != "" {
		for _, sha := range s.between(r, from, to) {
			commits = append(commits, s.pushCommit(r, sha))
		}
		head = s.pushCommit(r, to)
	}
	repository := s.repoObject(r)
	// Only in this event, the times are seconds since 1970, and the owner has a name.
	at, _ := time.Parse(time.RFC3339, epoch)
	repository["created_at"], repository["pushed_at"] = at.Unix(), s.Now().Unix()
	owner := s.userObject(s.user(s.Account, "Organization"))
	owner["name"], owner["email"] = s.Account, nil
	repository["owner"] = owner
	repository["master_branch"] = r.main
	before, after := cmp.Or(from, githost.Zero), cmp.Or(to, githost.Zero)
	kind := "push"
	if to == "" {
		kind = "delete"
	}
	s.change(Change{Repo: r.name, Kind: kind, User: by.login, Ref: branch, SHA: to, Text: count(len(commits), "commit")})
	s.emit(r, by, "push", "",
		object{"ref": "refs/heads/" + branch, "before": before, "after": after, "repository": repository,
			"pusher":  object{"name": by.login, "email": by.login + "@users.noreply.github.com"},
			"created": from == "", "deleted": to == "", "forced": from != "" && to != "" && !s.descends(r, to, from),
			"base_ref": nil,
			"compare":  s.URL() + "/" + s.Account + "/" + r.name + "/compare/" + before[:12] + "..." + after[:12],
			"commits":  commits, "head_commit": head})
}
