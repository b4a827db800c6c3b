package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/mirror"
	"github.com/ramus-dev/ramus/executor/upstream"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/naming"
	"github.com/ramus-dev/ramus/gateway/replica"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// reposAPI shows, creates and refreshes repositories.
type reposAPI struct {
	Executor *executor.Executor
	Git      *gitd.Server
	Mirrors  *mirror.Mirrors
	Names    *naming.Store // of sessions; nil if there are none
	find     *lookup.Lookup
	Replicas *replica.Front // nil for the only server
	Log      *slog.Logger
}

// Routes returns the routes of repositories.
func (api *reposAPI) Routes() []route.Route {
	return []route.Route{
		{Method: "GET", Pattern: "/api/repos", Access: route.AccessRead, Summary: "List repositories",
			Response: []Repo{}, Handle: api.repos},
		{Method: "POST", Pattern: "/api/repos", Access: route.AccessAdmin,
			Summary: "Create an empty repository, or import one; the answer streams progress", Request: CreateRepo{},
			Response: Progress{}, Media: route.MediaLines, Handle: api.createRepo},
		{Method: "GET", Pattern: "/api/repos/{repo}", Access: route.AccessRead, Summary: "One repository",
			Response: Repo{}, Handle: api.repo},
		{Method: "DELETE", Pattern: "/api/repos/{repo}", Access: route.AccessAdmin,
			Summary: "Remove a repository with its branches, runs and Git LFS objects", Query: removeRepoQuery{},
			Response: RepoMoved{}, Handle: api.removeRepo},
		{Method: "POST", Pattern: "/api/repos/{repo}/rename", Access: route.AccessAdmin,
			Summary: "Give a repository another name", Request: RenameRepo{}, Response: RepoMoved{}, Handle: api.renameRepo},
		{Method: "POST", Pattern: "/api/repos/{repo}/refresh", Access: route.AccessWrite,
			Summary: "Fast-forward the base from its upstream; the answer streams progress", Request: RefreshRepo{},
			Response: Progress{}, Media: route.MediaLines, Handle: api.refreshRepo},
		{Method: "GET", Pattern: "/api/repos/{repo}/bases", Access: route.AccessRead,
			Summary: "The signed manifests of the base, newest first, checked", Query: basesQuery{},
			Response: Bases{}, Handle: api.bases},
		{Method: "GET", Pattern: "/api/repos/{repo}/config", Access: route.AccessRead,
			Summary: "The environment of a repository's containers, each value with its origin", Query: configQuery{},
			Response: RepoConfig{}, Handle: api.config},
		{Method: "GET", Pattern: "/api/repos/{repo}/log", Access: route.AccessRead, Summary: "Commits, newest first",
			Query: logQuery{}, Response: []gitd.Commit{}, Handle: api.repoLog},
		{Method: "GET", Pattern: "/api/repos/{repo}/diff", Access: route.AccessRead,
			Summary: "The difference between two commits, as git writes it", Query: diffQuery{},
			Media: route.MediaText, Handle: api.repoDiff},
		{Method: "GET", Pattern: "/api/repos/{repo}/changes", Access: route.AccessRead,
			Summary: "The files that differ between two commits", Query: diffQuery{}, Response: []gitd.Change{},
			Handle: api.repoChanges},
		{Method: "GET", Pattern: "/api/repos/{repo}/tree", Access: route.AccessRead, Summary: "A folder at a commit",
			Query: treeQuery{}, Response: []gitd.TreeEntry{}, Handle: api.repoTree},
		{Method: "GET", Pattern: "/api/repos/{repo}/file", Access: route.AccessRead, Summary: "A file at a commit",
			Query: treeQuery{}, Media: route.MediaBytes, Handle: api.repoFile},
	}
}

// Repo describes a repository.
type Repo struct {
	Name     string    `json:"name"`
	Base     string    `json:"base"`           // name of the branch
	Head     gitd.Hash `json:"head,omitempty"` // commit of the base; empty if there is none yet
	Upstream string    `json:"upstream,omitempty"`
	CloneURL string    `json:"clone_url,omitempty"`
	// Status is the state of the base relative to upstream.
	Status upstream.Status `json:"status"`
	// Mirror is the state of the copy of the repository, or of the repository as a copy. It is nil if there is none.
	Mirror *mirror.Status `json:"mirror,omitempty"`
	// Dir is the folder on disk. It is set for local callers only, who can clone from it without a token.
	Dir string `json:"dir,omitempty"`
}

// CreateRepo is a request to create a repository.
type CreateRepo struct {
	Name string `json:"name"`
	// Source is a path on the server or a URL from which the repository is imported. If it is empty, the repository is
	// empty.
	Source string `json:"source,omitempty"`
}

// Progress is one line of the answer to a long request. It has text while the work goes on. The last line has either
// the outcome or a problem.
type Progress struct {
	Text      string          `json:"text,omitempty"`
	Repo      *Repo           `json:"repo,omitempty"`
	Refreshed *gitd.Refreshed `json:"refreshed,omitempty"`
	// Base is the manifest that a refresh made. It is nil if the newest manifest is still correct.
	Base *gitd.SignedBase `json:"base,omitempty"`
	// Cold is the reason why the dependencies of a refreshed base are not in the cache.
	Cold    string         `json:"cold,omitempty"`
	Problem *route.Problem `json:"problem,omitempty"`
}

func (api *reposAPI) describe(c *route.Call, r *gitd.Repo) (Repo, error) {
	ctx := c.R.Context()
	base, err := r.Base(ctx)
	if err != nil {
		return Repo{}, err
	}
	out := Repo{Name: r.Name(), Base: base, CloneURL: c.CloneURL(r.Name())}
	if refs, err := r.Refs(ctx, "refs/heads/"+base); err != nil {
		return Repo{}, err
	} else if len(refs) > 0 && refs[0].Name == "refs/heads/"+base && c.Who.SeesBranch(r.Name(), base) {
		out.Head = refs[0].Hash
	}
	if c.Who.SeesBranch(r.Name(), base) {
		if out.Status, err = api.Executor.Bases.Status(ctx, r); err != nil {
			return Repo{}, err
		}
	}
	if !c.Who.Admin() { // an error may quote a path or URL
		out.Status.Error = ""
	}
	if c.Who.Admin() { // an upstream's URL may hold a password
		if out.Upstream, err = r.Upstream(ctx); err != nil {
			return Repo{}, err
		}
	}
	if m, ok := api.Mirrors.Status(r.Name()); ok && c.Who.SeesBranch(r.Name(), base) {
		if !c.Who.Admin() {
			m.To, m.Error = "", ""
		}
		out.Mirror = &m
	}
	if c.Who.Local {
		out.Dir = r.Dir()
	}
	return out, nil
}

func (api *reposAPI) repos(c *route.Call) error {
	repos, err := api.Git.Repos(c.R.Context())
	if err != nil {
		return err
	}
	list := []Repo{}
	for _, r := range repos {
		if !c.Who.Sees(r.Name()) || r.Name() == gitd.PeopleRepo {
			continue
		}
		d, err := api.describe(c, r)
		if err != nil {
			return fmt.Errorf("cannot describe repository %s: %w", r.Name(), err)
		}
		list = append(list, d)
	}
	return c.Reply(list)
}

func (api *reposAPI) repo(c *route.Call) error {
	r, err := api.find.PathRepo(c)
	if err != nil {
		return err
	}
	d, err := api.describe(c, r)
	if err != nil {
		return err
	}
	return c.Reply(d)
}

func (api *reposAPI) createRepo(c *route.Call) error {
	var n CreateRepo
	if err := c.ReadJSON(&n); err != nil {
		return err
	}
	return api.progress(c, func(ctx context.Context, text io.Writer) (Progress, error) {
		var r *gitd.Repo
		var err error
		if n.Source == "" {
			r, err = api.Git.Create(ctx, n.Name)
		} else {
			r, err = api.Git.Import(ctx, n.Name, n.Source, text)
		}
		if errors.Is(err, gitd.ErrExists) && !errors.Is(err, gitd.ErrElsewhere) {
			return Progress{}, api.refuseName(ctx, n, err)
		}
		if err != nil {
			return Progress{}, err
		}
		d, err := api.describe(c, r)
		if err == nil && d.Head != "" {
			api.warmLater(c, ctx, d.Name, d.Head)
		}
		return Progress{Repo: &d}, err
	})
}

// refuseName returns the problem of a repository whose name another one has. It names the command that brings that one up to date, if it comes
// from the same source.
func (api *reposAPI) refuseName(ctx context.Context, n CreateRepo, why error) error {
	hint := "give it another name"
	if r, err := api.Git.Repo(n.Name); err == nil && n.Source != "" {
		if source, err := r.Upstream(ctx); err == nil && source == n.Source {
			hint += ", or bring that one up to date with `ramus repo refresh " + n.Name + "`"
		}
	}
	return route.NewProblem(route.KindExists, "%v", why).WithHint(hint)
}

// warmLater starts to fetch the dependencies of a repository's first base. An error is only logged, because the
// repository works without them.
func (api *reposAPI) warmLater(c *route.Call, ctx context.Context, repo string, base gitd.Hash) {
	if err := api.Executor.Bases.WarmLater(ctx, repo, base); err != nil {
		api.Log.Warn("cannot have the dependencies of a base fetched", "repo", repo, "err", err)
	}
}

func (api *reposAPI) refreshRepo(c *route.Call) error {
	name := c.R.PathValue("repo")
	var q RefreshRepo
	if err := c.ReadOptionalJSON(&q); err != nil {
		return err
	}
	r, err := api.find.Repo(c.Who, name)
	if errors.Is(err, gitd.ErrNotFound) {
		// A repository that is configured and was never imported. Its base is known only after that.
		r, err = api.Executor.Bases.OpenRepo(c.R.Context(), name)
	}
	if err != nil {
		return err
	}
	base, err := r.Base(c.R.Context())
	if err != nil {
		return err
	}
	if err := c.Who.CheckChange(name, base); err != nil {
		return err
	}
	switch {
	case q.Repair == gitd.RepairNone:
	case !c.Who.Admin():
		return route.NewProblem(route.KindDenied, "only administrators repair a base, because commits may leave it")
	case q.Commit != "":
		return route.NewProblem(route.KindInvalid, "a repair ends at upstream's newest commit, so it takes no commit")
	}
	by := c.Who.Person(q.By)
	return api.progress(c, func(ctx context.Context, text io.Writer) (Progress, error) {
		var done upstream.Refreshed
		var err error
		if q.Repair == gitd.RepairNone {
			done, err = api.Executor.Bases.Refresh(ctx, upstream.Deploy{Repo: name, Commit: q.Commit}, text)
		} else {
			done, err = api.Executor.Bases.Repair(ctx, name, q.Repair, by, text)
		}
		if err != nil {
			return Progress{}, err
		}
		out := Progress{Refreshed: &done.Refreshed, Base: done.Base}
		if !q.Wait {
			return out, api.Executor.Bases.WarmLater(ctx, name, done.Commit)
		}
		if err := api.Executor.Warm(ctx, name, done.Commit, text); err != nil {
			if ctx.Err() != nil {
				return out, err
			}
			out.Cold = err.Error()
		}
		return out, nil
	})
}

// progress answers with lines. The status is sent with the first line, so that work which fails before it can have the
// status of its error.
func (api *reposAPI) progress(c *route.Call, work func(ctx context.Context, text io.Writer) (Progress, error)) error {
	ctx, cancel := context.WithCancelCause(c.R.Context())
	defer cancel(nil)
	lines := &progressLines{call: c, cancel: cancel}
	last, err := work(ctx, lines)
	if err != nil {
		if !lines.begun {
			return err
		}
		last = Progress{Problem: route.AsProblem(err, c.Who)}
		last.Problem.Request = c.ID
	}
	lines.rest()
	if werr := lines.send(last); werr != nil {
		return werr
	}
	return err
}

// progressLines splits the progress output of git into lines of the answer. Only one goroutine may write to it at a
// time.
type progressLines struct {
	call   *route.Call
	cancel context.CancelCauseFunc
	begun  bool
	out    route.StreamWriter
	buf    []byte
}

// longestProgress limits a line, in bytes. The lines of git are shorter.
const longestProgress = 4 << 10

func (p *progressLines) Write(b []byte) (int, error) {
	p.buf = append(p.buf, b...)
	for {
		i := bytes.IndexAny(p.buf, "\r\n")
		if i < 0 && len(p.buf) < longestProgress {
			return len(b), nil
		}
		cut, next := i, i+1
		if i < 0 {
			cut, next = longestProgress, longestProgress
		}
		line := string(p.buf[:cut])
		p.buf = append(p.buf[:0], p.buf[next:]...)
		if line == "" {
			continue
		}
		if err := p.send(Progress{Text: strings.ToValidUTF8(line, "\uFFFD")}); err != nil {
			p.cancel(err) // the client has gone; a cancelled import leaves no files
			return len(b), err
		}
	}
}

func (p *progressLines) rest() {
	if len(p.buf) > 0 {
		_, _ = p.Write([]byte("\n")) // sending the outcome returns the same error
	}
}

func (p *progressLines) send(v Progress) error {
	if !p.begun {
		p.begun, p.out = true, p.call.BeginStream(route.MediaLines)
	}
	return p.out.WriteLine(v)
}

type logQuery struct {
	Rev   string `json:"rev,omitempty" jsonschema:"branch, tag, ref or commit; the base if empty"`
	Not   string `json:"not,omitempty" jsonschema:"leave out what is reachable from here"`
	Max   int    `json:"max,omitempty" jsonschema:"at most so many; 100 if 0, 1000 at most"`
	First bool   `json:"first,omitempty" jsonschema:"follow first parents only"`
}

func (api *reposAPI) repoLog(c *route.Call) error {
	var q logQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	r, err := api.find.PathRepo(c)
	if err != nil {
		return err
	}
	rev, err := api.find.Revision(c.R.Context(), c.Who, r, q.Rev)
	if err != nil {
		return err
	}
	if q.Not != "" {
		if q.Not, err = api.find.Revision(c.R.Context(), c.Who, r, q.Not); err != nil {
			return err
		}
	}
	if q.Max == 0 {
		q.Max = 100
	}
	commits, err := r.Log(c.R.Context(), rev, gitd.LogOptions{Not: q.Not, Max: min(q.Max, 1000), First: q.First})
	if err != nil {
		return err
	}
	if commits == nil {
		commits = []gitd.Commit{}
	}
	return c.Reply(commits)
}

type diffQuery struct {
	From      string   `json:"from,omitempty" jsonschema:"branch, tag, ref or commit; the base if empty"`
	To        string   `json:"to" jsonschema:"the same"`
	Stat      bool     `json:"stat,omitempty" jsonschema:"a diffstat instead of a patch"`
	MergeBase bool     `json:"merge_base,omitempty" jsonschema:"compare with the merge base of both"`
	Path      []string `json:"path,omitempty" jsonschema:"only these files or folders"`
}

func (api *reposAPI) diffArguments(c *route.Call) (*gitd.Repo, diffQuery, error) {
	var q diffQuery
	if err := c.ReadQuery(&q); err != nil {
		return nil, q, err
	}
	if q.To == "" {
		return nil, q, route.NewProblem(route.KindInvalid, "the query parameter to is missing: which commit?")
	}
	r, err := api.find.PathRepo(c)
	if err != nil {
		return nil, q, err
	}
	if q.From, err = api.find.Revision(c.R.Context(), c.Who, r, q.From); err != nil {
		return nil, q, err
	}
	q.To, err = api.find.Revision(c.R.Context(), c.Who, r, q.To)
	return r, q, err
}

func (api *reposAPI) repoDiff(c *route.Call) error {
	r, q, err := api.diffArguments(c)
	if err != nil {
		return err
	}
	return replyDiff(c, r, q.From, q.To, gitd.DiffOptions{Stat: q.Stat, Paths: q.Path, MergeBase: q.MergeBase})
}

func (api *reposAPI) repoChanges(c *route.Call) error {
	r, q, err := api.diffArguments(c)
	if err != nil {
		return err
	}
	return replyChanges(c, r, q.From, q.To, q.MergeBase)
}

func replyChanges(c *route.Call, r *gitd.Repo, from, to string, mergeBase bool) error {
	changes, err := r.Changed(c.R.Context(), from, to, mergeBase)
	if err != nil {
		return err
	}
	if changes == nil {
		changes = []gitd.Change{}
	}
	return c.Reply(changes)
}

// replyDiff streams a diff. It resolves both ends first, because after the first byte an error could only cut the answer
// short.
func replyDiff(c *route.Call, r *gitd.Repo, from, to string, o gitd.DiffOptions) error {
	for _, rev := range []string{from, to} {
		if _, err := r.Resolve(c.R.Context(), rev); err != nil {
			return err
		}
	}
	c.W.Header().Set("Content-Type", route.MediaText)
	if err := r.Diff(c.R.Context(), from, to, o, c.W); err != nil {
		return c.CutShort(err)
	}
	return nil
}

type treeQuery struct {
	Rev       string `json:"rev,omitempty" jsonschema:"branch, tag, ref or commit; the base if empty"`
	Path      string `json:"path,omitempty" jsonschema:"slash-separated; the root if empty"`
	Recursive bool   `json:"recursive,omitempty" jsonschema:"the files of all folders below, too"`
}

func (api *reposAPI) treeArguments(c *route.Call) (*gitd.Repo, treeQuery, error) {
	var q treeQuery
	if err := c.ReadQuery(&q); err != nil {
		return nil, q, err
	}
	r, err := api.find.PathRepo(c)
	if err != nil {
		return nil, q, err
	}
	q.Rev, err = api.find.Revision(c.R.Context(), c.Who, r, q.Rev)
	return r, q, err
}

func (api *reposAPI) repoTree(c *route.Call) error {
	r, q, err := api.treeArguments(c)
	if err != nil {
		return err
	}
	entries, err := r.Tree(c.R.Context(), q.Rev, q.Path, q.Recursive)
	if err != nil {
		return err
	}
	if entries == nil {
		entries = []gitd.TreeEntry{}
	}
	return c.Reply(entries)
}

func (api *reposAPI) repoFile(c *route.Call) error {
	r, q, err := api.treeArguments(c)
	if err != nil {
		return err
	}
	f, size, err := r.OpenFile(c.R.Context(), q.Rev, q.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	c.MarkAttachment(path.Base(q.Path))
	c.W.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	if _, err := io.Copy(c.W, f); err != nil {
		return c.CutShort(err)
	}
	return nil
}
