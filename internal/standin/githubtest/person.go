package githubtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Repo is a repository of the account. Its methods are the actions of people, and the first argument is the person. An
// error is GitHub's refusal. All methods are safe for concurrent use.
type Repo struct {
	s *Server
	r *repository
}

// AddUser adds a person with a role in every repository. The roles are "read", "triage", "write", "maintain", "admin",
// and "" for no role.
func (s *Server) AddUser(login, role string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.user(login, "User")
	s.state.roles[login] = role
}

// Leave ends a person's membership of the organization.
func (s *Server) Leave(login string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.user(login, "User").left = true
}

// Rename gives a person another login, which leaves the old one to others.
func (s *Server) Rename(login, to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.user(login, "User")
	delete(s.state.users, u.login)
	u.login = to
	s.state.users[to] = u
}

// AddRepo makes a repository. It is a bare clone of the repository at from, or a new one with a README if from is
// empty.
func (s *Server) AddRepo(name, from string) (*Repo, error) {
	var err error
	if from != "" {
		_, err = s.run(s.Root, nil, "clone", "--quiet", "--bare", "--", from, s.Dir(name))
	} else {
		_, err = s.run(s.Root, nil, "init", "--quiet", "--bare", "--initial-branch=main", s.Dir(name))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make the repository %s: %w", name, err)
	}
	r, err := s.Repo(name)
	if err == nil && from == "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		owner := s.user(s.Account, "Organization")
		var sha string
		if sha, err = s.write(r.r, owner, "", "Initial commit", map[string][]byte{"README.md": []byte("# " + name + "\n")}); err == nil {
			_, err = s.run(r.r.dir, nil, "update-ref", "refs/heads/main", sha)
			r.r.heads["main"] = sha
		}
	}
	return r, err
}

// Repo returns a repository by its name without the account.
func (s *Server) Repo(name string) (*Repo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.repo(name)
	if r == nil {
		return nil, fmt.Errorf("there is no repository %s/%s", s.Account, name)
	}
	return &Repo{s, r}, nil
}

// Name returns the repository's name without the account.
func (r *Repo) Name() string { return r.r.name }

// SetRole sets a person's role in this repository alone. See [Server.AddUser].
func (r *Repo) SetRole(login, role string) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.user(login, "User")
	r.r.roles[login] = role
}

// SetPublic lets everybody read and comment.
func (r *Repo) SetPublic() {
	r.s.mu.Lock()
	r.r.public = true
	r.s.mu.Unlock()
}

// Protect forbids pushes to a branch. Merges of pull requests stay possible.
func (r *Repo) Protect(branch string) {
	r.s.mu.Lock()
	r.r.protected[branch] = true
	r.s.mu.Unlock()
}

// act performs do as a person who must have a role. write means that do changes refs.
func (r *Repo) act(login, role string, write bool, do func(by *user) error) error {
	if write {
		r.r.writing.Lock()
		defer r.r.writing.Unlock()
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	u := r.s.state.users[login]
	if u == nil {
		return fmt.Errorf("there is nobody called %q", login)
	}
	if rank(r.r.role(u)) < rank(role) {
		return fmt.Errorf("%s may not do that: it takes the role %q", login, role)
	}
	return do(u)
}

// onPull is act on a pull request.
func (r *Repo) onPull(login, role string, write bool, number int, do func(by *user, p *pullRequest) error) error {
	return r.act(login, role, write, func(by *user) error {
		p := r.r.pull(number)
		if p == nil {
			return fmt.Errorf("there is no pull request #%d", number)
		}
		return do(by, p)
	})
}

// Head returns a branch's tip, or "" if there is no such branch.
func (r *Repo) Head(branch string) string {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.r.heads[branch]
}

// File returns a file of a branch or commit.
func (r *Repo) File(ref, path string) (string, error) {
	return r.s.run(r.r.dir, nil, "cat-file", "blob", ref+":"+path)
}

// Git runs git in the bare repository and returns its output. It must not change the repository.
func (r *Repo) Git(args ...string) (string, error) { return r.s.run(r.r.dir, nil, args...) }

func bytesOf(files map[string]string) map[string][]byte {
	all := map[string][]byte{}
	for path, content := range files {
		all[path] = []byte(content)
	}
	return all
}

// Push pushes a commit with files to a branch. Its parent is the branch's tip, or that of the default branch if the
// branch is new.
func (r *Repo) Push(login, branch, message string, files map[string]string) (sha string, err error) {
	err = r.act(login, "write", true, func(by *user) error {
		parent := r.r.heads[branch]
		if parent == "" {
			parent = r.r.heads[r.r.main]
		}
		return r.commit(by, branch, parent, message, files, &sha)
	})
	return sha, err
}

// ForcePush replaces the branch's own commits by one with files.
func (r *Repo) ForcePush(login, branch, message string, files map[string]string) (sha string, err error) {
	err = r.act(login, "write", true, func(by *user) error {
		parent, err := r.s.mergeBase(r.r, r.r.heads[r.r.main], r.r.heads[branch])
		if err != nil {
			return err
		}
		return r.commit(by, branch, parent, message, files, &sha)
	})
	return sha, err
}

// commit is Push on a given parent. s.mu is held.
func (r *Repo) commit(by *user, branch, parent, message string, files map[string]string, sha *string) (err error) {
	if r.r.protected[branch] {
		return errors.New("GH006: Protected branch update failed for refs/heads/" + branch)
	}
	if *sha, err = r.s.write(r.r, by, parent, message, bytesOf(files)); err != nil {
		return err
	}
	return r.s.point(r.r, branch, *sha, by)
}

// DeleteBranch deletes a branch, which closes its open pull requests.
func (r *Repo) DeleteBranch(login, branch string) error {
	return r.act(login, "write", true, func(by *user) error {
		if r.r.heads[branch] == "" {
			return fmt.Errorf("there is no branch %q", branch)
		}
		return r.s.point(r.r, branch, "", by)
	})
}

// Open opens a pull request and returns its number.
func (r *Repo) Open(login, head, base, title, body string) (number int, err error) {
	err = r.act(login, "read", false, func(by *user) error {
		p, err := r.s.openPull(r.r, &actor{user: by}, title, body, head, base, false)
		if err == nil {
			number = p.number
		}
		return err
	})
	return number, err
}

// Comment adds a comment to a pull request's conversation.
func (r *Repo) Comment(login string, number int, body string) (id int64, err error) {
	err = r.onPull(login, "read", false, number, func(by *user, p *pullRequest) error {
		c, err := r.s.addComment(p, by, body)
		if err == nil {
			id = c.id
		}
		return err
	})
	return id, err
}

// Line is a comment on a line of a pull request's diff.
type Line struct {
	Path string
	Line int
	Side string // RIGHT (the default) counts lines after the change, LEFT before
	Body string
}

// CommentLine comments on one line, outside of a review.
func (r *Repo) CommentLine(login string, number int, path string, line int, body string) (id int64, err error) {
	err = r.onPull(login, "read", false, number, func(by *user, p *pullRequest) error {
		c, err := r.s.newLine(p, by, draftComment{Path: path, Line: line, Body: body}, false)
		if err != nil {
			return err
		}
		r.s.addReview(p, by, "COMMENTED", "", "", []*lineComment{c})
		id = c.id
		return nil
	})
	return id, err
}

// Reply replies in the thread of a comment on a line.
func (r *Repo) Reply(login string, number int, to int64, body string) (id int64, err error) {
	err = r.onPull(login, "read", false, number, func(by *user, p *pullRequest) error {
		c, err := r.s.addReply(p, by, to, body)
		if err == nil {
			id = c.id
		}
		return err
	})
	return id, err
}

// ResolveThread resolves the thread that a comment on a line begins, or opens it again.
func (r *Repo) ResolveThread(login string, number int, first int64, resolved bool) error {
	return r.onPull(login, "write", false, number, func(by *user, p *pullRequest) error {
		at := slices.IndexFunc(p.lines, func(c *lineComment) bool { return c.id == first && c.reply == 0 })
		if at < 0 {
			return notFound
		}
		r.s.resolveThread(p.lines[at], by, resolved)
		return nil
	})
}

// IsResolved reports whether the thread that a comment on a line begins is resolved, and by whom.
func (r *Repo) IsResolved(number int, first int64) (by string, resolved bool) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	for _, c := range r.r.pull(number).lines {
		if c.id == first && c.resolved != nil {
			return c.resolved.login, true
		}
	}
	return "", false
}

// Review submits a review with comments on lines. The state is "approved", "changes_requested" or "commented".
func (r *Repo) Review(login string, number int, state, body string, lines ...Line) (id int64, err error) {
	err = r.onPull(login, "read", false, number, func(by *user, p *pullRequest) error {
		state := strings.ToUpper(state)
		if !slices.Contains([]string{"APPROVED", "CHANGES_REQUESTED", "COMMENTED"}, state) {
			return fmt.Errorf("a review is approved, changes_requested or commented, not %q", state)
		}
		if err := judge(p, by, state, body, len(lines)); err != nil {
			return err
		}
		var comments []*lineComment
		for _, l := range lines {
			c, err := r.s.newLine(p, by, draftComment{Path: l.Path, Line: l.Line, Side: l.Side, Body: l.Body}, false)
			if err != nil {
				return err
			}
			comments = append(comments, c)
		}
		id = r.s.addReview(p, by, state, body, "", comments).id
		return nil
	})
	return id, err
}

// Approve submits an approving Review.
func (r *Repo) Approve(login string, number int, body string) error {
	_, err := r.Review(login, number, "approved", body)
	return err
}

// Dismiss dismisses a review.
func (r *Repo) Dismiss(login string, number int, id int64, message string) error {
	return r.onPull(login, "write", false, number, func(by *user, p *pullRequest) error {
		for _, v := range p.reviews {
			if v.id == id {
				return r.s.dismissReview(p, v, by, message)
			}
		}
		return fmt.Errorf("there is no review %d", id)
	})
}

// RequestReview requests reviews from people.
func (r *Repo) RequestReview(login string, number int, of ...string) error {
	return r.onPull(login, "write", false, number, func(by *user, p *pullRequest) error {
		var who []*user
		for _, name := range of {
			u := r.s.state.users[name]
			if u == nil || u == p.author {
				return fmt.Errorf("%q cannot be asked", name)
			}
			who = append(who, u)
		}
		r.s.requestReview(p, by, who, true)
		return nil
	})
}

// Label adds labels.
func (r *Repo) Label(login string, number int, names ...string) error {
	return r.onPull(login, "triage", false, number, func(by *user, p *pullRequest) error {
		r.s.label(p, by, names)
		return nil
	})
}

// Merge merges a pull request by "merge" (the default), "squash" or "rebase".
func (r *Repo) Merge(login string, number int, method string) (sha string, err error) {
	err = r.onPull(login, "write", true, number, func(by *user, p *pullRequest) error {
		sha, err = r.s.mergePullNow(p, by, method, "", "", "")
		return err
	})
	return sha, err
}

// Close closes a pull request without a merge.
func (r *Repo) Close(login string, number int) error {
	return r.onPull(login, "read", false, number, func(by *user, p *pullRequest) error {
		if p.state != "open" {
			return errors.New("it is closed already")
		}
		r.s.closePull(p, by)
		return nil
	})
}

// Reopen reopens a pull request.
func (r *Repo) Reopen(login string, number int) error {
	return r.onPull(login, "read", false, number, func(by *user, p *pullRequest) error {
		if p.state == "open" {
			return errors.New("it is open already")
		}
		return r.s.reopenPull(p, by)
	})
}

// Ready ends the draft state of a pull request.
func (r *Repo) Ready(login string, number int) error {
	return r.onPull(login, "write", false, number, func(by *user, p *pullRequest) error {
		p.draft = false
		r.s.touch(p)
		r.s.change(p.change("ready", by, ""))
		r.s.emitPull(p, "ready_for_review", by, nil)
		return nil
	})
}

// Check is a check run of CI.
type Check struct {
	Name       string
	Conclusion string // success, failure …; empty while it runs
	Title      string
	Summary    string
	Text       string
}

// Check reports a check run for a commit or for a branch's tip, as a CI does. It completes a running check of this
// name, and otherwise makes a new one.
func (r *Repo) Check(ref string, k Check) (id int64, err error) {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	sha, branch := ref, r.r.branchOf(ref)
	if tip := r.r.heads[ref]; tip != "" {
		sha, branch = tip, ref
	}
	var run *checkRun
	for _, old := range r.r.checks {
		if old.sha == sha && old.name == k.Name && old.status != "completed" {
			run = old
		}
	}
	by := s.user("github-actions[bot]", "Bot")
	action := "completed"
	if run == nil {
		run = &checkRun{id: s.id(), name: k.Name, sha: sha, branch: branch, status: "in_progress", app: "github-actions",
			started: s.Now()}
		r.r.checks = append(r.r.checks, run)
		s.emitCheck(r.r, run, "created", by)
	}
	run.title, run.summary, run.text = k.Title, k.Summary, k.Text
	if k.Conclusion == "" {
		return run.id, nil
	}
	if !slices.Contains(conclusions, k.Conclusion) {
		return 0, fmt.Errorf("there is no conclusion %q", k.Conclusion)
	}
	run.status, run.conclusion, run.completed = "completed", k.Conclusion, s.Now()
	s.emitCheck(r.r, run, action, by)
	return run.id, nil
}

// Workflow reports an ended run of a workflow for a branch's tip.
func (r *Repo) Workflow(branch, name, conclusion string) (id int64, err error) {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	sha := r.r.heads[branch]
	if sha == "" || !slices.Contains(conclusions, conclusion) {
		return 0, fmt.Errorf("there is no branch %q, or no conclusion %q", branch, conclusion)
	}
	w := &workflowRun{id: s.id(), number: len(r.r.runs) + 1, attempt: 1, name: name, sha: sha, branch: branch,
		status: "in_progress",
		by:     s.user("github-actions[bot]", "Bot"), created: s.Now()}
	r.r.runs = append(r.r.runs, w)
	s.emitRun(r.r, w, "requested")
	w.status, w.conclusion = "completed", conclusion
	s.emitRun(r.r, w, "completed")
	return w.id, nil
}

// Pull is the state of a pull request.
type Pull struct {
	Number      int
	URL         string // for people
	Title, Body string
	State       string // open, closed
	Draft       bool
	Merged      bool
	MergeCommit string
	Head        string
	HeadSHA     string
	Base        string
	Author      string
	Requested   []string
	Labels      []string
	Comments    []Comment // in the conversation
	Lines       []Comment // on lines
	Reviews     []Review
}

// Comment is a comment in the conversation or on a line.
type Comment struct {
	ID      int64
	ReplyTo int64
	Review  int64
	User    string
	Body    string
	Path    string
	Line    int
	Created time.Time
}

// Review is a review of a Pull.
type Review struct {
	ID    int64
	User  string
	State string // in lower case
	Body  string
}

// Pull returns a pull request, or the zero value if there is none.
func (r *Repo) Pull(number int) Pull {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if p := r.r.pull(number); p != nil {
		return r.s.view(p)
	}
	return Pull{}
}

// Pulls returns all pull requests, the oldest first.
func (r *Repo) Pulls() (all []Pull) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	for _, p := range r.r.pulls {
		all = append(all, r.s.view(p))
	}
	return all
}

// view copies the state of a pull request. s.mu is held.
func (s *Server) view(p *pullRequest) Pull {
	v := Pull{Number: p.number, URL: s.pullPage(p), Title: p.title, Body: p.body, State: p.state, Draft: p.draft,
		Merged: p.merged, MergeCommit: p.merge,
		Head: p.head, HeadSHA: p.headSHA, Base: p.base, Author: p.author.login, Labels: slices.Clone(p.labels)}
	for _, u := range p.requested {
		v.Requested = append(v.Requested, u.login)
	}
	for _, c := range p.comments {
		v.Comments = append(v.Comments, Comment{ID: c.id, User: c.user.login, Body: c.body, Created: c.created})
	}
	for _, c := range p.lines {
		v.Lines = append(v.Lines, Comment{ID: c.id, ReplyTo: c.reply, Review: c.review, User: c.user.login,
			Body: c.body, Path: c.path, Line: c.line, Created: c.created})
	}
	for _, w := range p.reviews {
		v.Reviews = append(v.Reviews, Review{ID: w.id, User: w.user.login, State: strings.ToLower(w.state), Body: w.body})
	}
	return v
}
