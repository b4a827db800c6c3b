package hub

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

// Repo is a repository. Its exported fields are read under the hub's lock, as handlers do.
type Repo struct {
	h           *Hub
	ID          int64
	Owner, Name string
	Dir         string
	Pulls       []*Pull
	Statuses    []*Status
	Labels      []Label
	heads       map[string]string
	protected   map[string]bool
}

// Label is a label of a repository.
type Label struct {
	ID   int64
	Name string
}

// Pull is a pull request within a repository.
type Pull struct {
	ID          int64
	Number      int
	Title, Body string
	Head, Base  string
	HeadSHA     string
	Author      *User
	Draft       bool
	State       string // open, closed, merged
	Merge       string // commit
	Comments    []*Comment
	Verdicts    []*Verdict
	Requested   []*User
	Labels      []string
	Updated     time.Time
}

// Comment is a comment. Path is empty in the conversation.
type Comment struct {
	ID      int64
	Thread  string
	ReplyTo int64
	Verdict int64 // with which it was made; 0 if alone
	Author  *User
	Body    string
	Path    string
	Line    int
	Old     bool // the line is of the old file
	Commit  string
	System  bool
	Created time.Time
}

// Verdict is a review.
type Verdict struct {
	ID      int64
	By      *User
	State   string // approved, changes_requested, commented
	Body    string
	Commit  string
	Created time.Time
}

// Status is the result of a program for a commit.
type Status struct {
	ID                       int64
	Commit, Name, State, URL string
	Description              string
	Branch                   string
	Created                  time.Time
}

// AddRepo makes a repository with a README, or a bare clone of the repository at from.
func (h *Hub) AddRepo(owner, name, from string) (*Repo, error) {
	r := &Repo{h: h, Owner: owner, Name: name, Dir: h.dir(owner, name), heads: map[string]string{},
		protected: map[string]bool{}}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return nil, err
	}
	var err error
	if from != "" {
		_, err = r.run(nil, "clone", "--quiet", "--bare", "--", from, r.Dir)
	} else {
		_, err = r.run(nil, "init", "--quiet", "--bare", "--initial-branch=main", r.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make the repository %s: %w", name, err)
	}
	r.ID = h.id()
	h.repos = append(h.repos, r)
	if from == "" {
		sha, err := r.write(&User{Login: owner}, "", "Initial commit", map[string]string{"README.md": "# " + name + "\n"})
		if err != nil {
			return nil, err
		}
		if _, err := r.run(nil, "update-ref", "refs/heads/main", sha); err != nil {
			return nil, err
		}
	}
	r.heads, err = h.host().Heads(r.Dir)
	return r, err
}

// Clone returns the address of a repository for git.
func (r *Repo) Clone() string { return r.h.URL() + "/" + r.Owner + "/" + r.Name + ".git" }

// FullName returns "owner/name".
func (r *Repo) FullName() string { return r.Owner + "/" + r.Name }

// HeadOf returns the tip of a branch, or "". The caller holds the lock.
func (r *Repo) HeadOf(branch string) string { return r.heads[branch] }

// Head returns the tip of a branch, or "".
func (r *Repo) Head(branch string) string {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	return r.heads[branch]
}

// Protect forbids pushes to a branch, and its deletion.
func (r *Repo) Protect(branch string) {
	r.h.mu.Lock()
	r.protected[branch] = true
	r.h.mu.Unlock()
}

// Protected reports whether a branch is protected. The caller holds the lock.
func (r *Repo) Protected(branch string) bool { return r.protected[branch] }

// act does something as a user with at least a level.
func (r *Repo) act(login string, need Level, do func(by *User) error) error {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	u := r.h.User(login)
	if u == nil || u.Level < need {
		return fmt.Errorf("%s may not do that", login)
	}
	return do(u)
}

// Push commits files on a branch, which begins at main.
func (r *Repo) Push(login, branch string, files map[string]string) (sha string, err error) {
	err = r.act(login, Writer, func(by *User) error {
		from := r.heads[branch]
		if from == "" {
			from = r.heads["main"]
		}
		if sha, err = r.write(by, from, "Change "+strings.Join(keys(files), ", "), files); err != nil {
			return err
		}
		if _, err := r.run(nil, "update-ref", "refs/heads/"+branch, sha); err != nil {
			return err
		}
		return r.follow(by)
	})
	return sha, err
}

// Pull returns a pull request. Returns nil if there is none. The caller holds the lock.
func (r *Repo) Pull(number int) *Pull {
	if number < 1 || number > len(r.Pulls) {
		return nil
	}
	return r.Pulls[number-1]
}

// Open opens a pull request. The caller holds the lock.
func (r *Repo) Open(by *User, head, base, title, body string) (*Pull, error) {
	switch {
	case r.heads[head] == "" || r.heads[base] == "":
		return nil, Refuse(http.StatusNotFound, "the branch does not exist")
	case r.heads[head] == r.heads[base]:
		return nil, Refuse(http.StatusUnprocessableEntity, "there are no changes")
	case r.Between(head, base) != nil:
		return nil, Refuse(http.StatusConflict, "Another open pull request already exists for this source branch")
	}
	p := &Pull{ID: r.h.id(), Number: len(r.Pulls) + 1, Title: title, Body: body, Head: head, Base: base,
		HeadSHA: r.heads[head], Author: by, State: "open", Updated: r.h.Now()}
	r.Pulls = append(r.Pulls, p)
	r.h.emit(Event{Kind: "pull", Action: "open", Repo: r, Pull: p, User: by})
	return p, nil
}

// Between returns the open pull request of a branch into a base, or nil. The caller holds the lock.
func (r *Repo) Between(head, base string) *Pull {
	for _, p := range r.Pulls {
		if p.State == "open" && p.Head == head && p.Base == base {
			return p
		}
	}
	return nil
}

// Changed reports a change of a pull request. The caller holds the lock.
func (r *Repo) Changed(p *Pull, by *User, action string) {
	p.Updated = r.h.Now()
	r.h.emit(Event{Kind: "pull", Action: action, Repo: r, Pull: p, User: by})
}

// AddComment adds a comment. The caller holds the lock.
func (r *Repo) AddComment(p *Pull, c Comment) *Comment {
	c.ID, c.Created = r.h.id(), r.h.Now()
	if c.Thread == "" {
		c.Thread = fmt.Sprintf("%040x", c.ID)
	}
	p.Comments, p.Updated = append(p.Comments, &c), r.h.Now()
	if !c.System {
		r.h.emit(Event{Kind: "comment", Repo: r, Pull: p, Comment: &c, User: c.Author})
	}
	return &c
}

// AddVerdict adds a review. The caller holds the lock.
func (r *Repo) AddVerdict(p *Pull, v Verdict) *Verdict {
	v.ID, v.Created, v.Commit = r.h.id(), r.h.Now(), p.HeadSHA
	p.Verdicts = append(p.Verdicts, &v)
	r.h.emit(Event{Kind: "verdict", Action: v.State, Repo: r, Pull: p, User: v.By})
	return &v
}

// AddStatus adds a status. The caller holds the lock.
func (r *Repo) AddStatus(s Status) *Status {
	s.ID, s.Created = r.h.id(), r.h.Now()
	for branch, sha := range r.heads {
		if sha == s.Commit && branch != "main" {
			s.Branch = branch
		}
	}
	r.Statuses = append(r.Statuses, &s)
	r.h.emit(Event{Kind: "status", Repo: r, Status: &s})
	return &s
}

// on is act on a pull request.
func (r *Repo) on(login string, need Level, number int, do func(*User, *Pull) error) error {
	return r.act(login, need, func(by *User) error {
		p := r.Pull(number)
		if p == nil {
			return fmt.Errorf("there is no pull request %d", number)
		}
		return do(by, p)
	})
}

// Comment comments in the conversation.
func (r *Repo) Comment(login string, number int, body string) error {
	return r.on(login, Reader, number, func(by *User, p *Pull) error {
		r.AddComment(p, Comment{Author: by, Body: body})
		return nil
	})
}

// Line is a line of a file to comment on.
type Line struct {
	Path string
	Line int
	Body string
}

// Review submits a review. state is "approved", "changes_requested" or "commented".
func (r *Repo) Review(login string, number int, state, body string, lines ...Line) error {
	return r.on(login, Reader, number, func(by *User, p *Pull) error {
		if by == p.Author && state != "commented" {
			return fmt.Errorf("%s cannot review an own pull request", login)
		}
		v := r.AddVerdict(p, Verdict{By: by, State: state, Body: body})
		for _, l := range lines {
			r.AddComment(p, Comment{Author: by, Body: l.Body, Path: l.Path, Line: l.Line, Commit: p.HeadSHA, Verdict: v.ID})
		}
		return nil
	})
}

// SetStatus sets a status of a commit as a program.
func (r *Repo) SetStatus(commit, name, state string) {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	r.AddStatus(Status{Commit: commit, Name: name, State: state})
}

// StatusOf returns the state and the text of the newest status of a name.
func (r *Repo) StatusOf(commit, name string) (state, text string) {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	for _, s := range slices.Backward(r.Statuses) {
		if s.Commit == commit && s.Name == name {
			return s.State, s.Description
		}
	}
	return "", ""
}

// SetState closes or reopens a pull request.
func (r *Repo) SetState(login string, number int, state string) error {
	return r.on(login, Writer, number, func(by *User, p *Pull) error {
		if p.State == "merged" {
			return fmt.Errorf("pull request %d is merged", number)
		}
		p.State = state
		action := "close"
		if state == "open" {
			action = "reopen"
		}
		r.Changed(p, by, action)
		return nil
	})
}

// Merge merges a pull request with a merge commit.
func (r *Repo) Merge(login string, number int) error {
	return r.on(login, Writer, number, func(by *User, p *Pull) error {
		if p.State != "open" {
			return fmt.Errorf("pull request %d is %s", number, p.State)
		}
		tree, err := r.run(nil, "merge-tree", "--write-tree", r.heads[p.Base], r.heads[p.Head])
		if err != nil {
			return fmt.Errorf("it conflicts: %w", err)
		}
		sha, err := r.run(r.h.identity(by), "commit-tree", strings.TrimSpace(tree), "-p", r.heads[p.Base], "-p",
			r.heads[p.Head], "-m", "Merge "+p.Head)
		if err != nil {
			return err
		}
		if _, err := r.run(nil, "update-ref", "refs/heads/"+p.Base, sha); err != nil {
			return err
		}
		p.State, p.Merge = "merged", sha
		if err := r.follow(by); err != nil {
			return err
		}
		r.Changed(p, by, "merge")
		return nil
	})
}

// DeleteBranch deletes a branch. The caller holds the lock.
func (r *Repo) DeleteBranch(by *User, branch string) error {
	if _, err := r.run(nil, "update-ref", "-d", "refs/heads/"+branch); err != nil {
		return err
	}
	return r.follow(by)
}

// Look calls f with the pull requests while the hub is locked.
func (r *Repo) Look(f func([]*Pull)) {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	f(r.Pulls)
}

func keys(files map[string]string) []string {
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
