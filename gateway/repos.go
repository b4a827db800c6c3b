package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gitd"
)

// Repo is a repository as it is listed.
type Repo struct {
	Name     string    `json:"name"`
	Base     string    `json:"base"`           // branch
	Head     gitd.Hash `json:"head,omitempty"` // where it stands; empty: no commit yet
	Upstream string    `json:"upstream,omitempty"`
	CloneURL string    `json:"clone_url,omitempty"`
	// Status is how it stands to its upstream.
	Status executor.BaseStatus `json:"status"`
	// Dir is the folder on disk, told to local callers, who can clone from it without a token.
	Dir string `json:"dir,omitempty"`
}

// CreateRepo asks for a repository.
type CreateRepo struct {
	Name string `json:"name"`
	// Source is a path on the server, or a URL, to import from; empty makes an empty repository.
	Source string `json:"source,omitempty"`
}

// Progress is one line of a long work's answer: text while it goes on, then
// either the outcome or a problem.
type Progress struct {
	Text      string          `json:"text,omitempty"`
	Repo      *Repo           `json:"repo,omitempty"`
	Refreshed *gitd.Refreshed `json:"refreshed,omitempty"`
	// Base is the manifest that a refresh made; nil: the newest one says the same.
	Base *gitd.SignedBase `json:"base,omitempty"`
	// Cold is why the dependencies of a base that was refreshed are not in the cache.
	Cold    string   `json:"cold,omitempty"`
	Problem *Problem `json:"problem,omitempty"`
}

// findRepo is Git.Repo for the caller's eyes.
func (c *call) findRepo(name string) (*gitd.Repo, error) {
	if !c.Who.Sees(name) {
		return nil, notFound("repository", name)
	}
	return c.Git.Repo(name)
}

func (c *call) describe(r *gitd.Repo) (Repo, error) {
	ctx := c.R.Context()
	base, err := r.Base(ctx)
	if err != nil {
		return Repo{}, err
	}
	out := Repo{Name: r.Name(), Base: base, CloneURL: c.cloneURL(r.Name())}
	if refs, err := r.Refs(ctx, "refs/heads/"+base); err != nil {
		return Repo{}, err
	} else if len(refs) > 0 && refs[0].Name == "refs/heads/"+base && c.Who.seesBranch(r.Name(), base) {
		out.Head = refs[0].Hash
	}
	if c.Who.seesBranch(r.Name(), base) {
		if out.Status, err = c.Executor.BaseStatus(ctx, r); err != nil {
			return Repo{}, err
		}
	}
	if !c.Who.Admin() { // an error may quote where it was met
		out.Status.Error = ""
	}
	if c.Who.Admin() { // an upstream's URL may hold a password
		if out.Upstream, err = r.Upstream(ctx); err != nil {
			return Repo{}, err
		}
	}
	if c.Who.Local {
		out.Dir = r.Dir()
	}
	return out, nil
}

// cloneURL is what `git clone` takes; "" when git has no way here.
func (c *call) cloneURL(repo string) string {
	address := c.address()
	if address == "" {
		return ""
	}
	return address + (&url.URL{Path: "/" + repo + ".git"}).EscapedPath()
}

// address is where people reach this server; "" when only a unix socket is known.
func (c *call) address() string {
	switch {
	case c.URL != "":
		return strings.TrimSuffix(c.URL, "/")
	case c.Who.Local:
		return ""
	case c.R.TLS != nil:
		return "https://" + c.R.Host
	}
	return "http://" + c.R.Host
}

func (c *call) repos() error {
	repos, err := c.Git.Repos(c.R.Context())
	if err != nil {
		return err
	}
	list := []Repo{}
	for _, r := range repos {
		if !c.Who.Sees(r.Name()) {
			continue
		}
		d, err := c.describe(r)
		if err != nil {
			return fmt.Errorf("cannot describe repository %s: %w", r.Name(), err)
		}
		list = append(list, d)
	}
	return c.reply(list)
}

func (c *call) repo() error {
	r, err := c.findRepo(c.R.PathValue("repo"))
	if err != nil {
		return err
	}
	d, err := c.describe(r)
	if err != nil {
		return err
	}
	return c.reply(d)
}

func (c *call) createRepo() error {
	var n CreateRepo
	if err := c.body(&n); err != nil {
		return err
	}
	return c.progress(func(ctx context.Context, text io.Writer) (Progress, error) {
		var r *gitd.Repo
		var err error
		if n.Source == "" {
			r, err = c.Git.Create(ctx, n.Name)
		} else {
			r, err = c.Git.Import(ctx, n.Name, n.Source, text)
		}
		if err != nil {
			return Progress{}, err
		}
		d, err := c.describe(r)
		if err == nil && d.Head != "" {
			c.warmLater(ctx, d.Name, d.Head)
		}
		return Progress{Repo: &d}, err
	})
}

// warmLater has the dependencies of a repository's first base fetched. What was imported serves without them.
func (c *call) warmLater(ctx context.Context, repo string, base gitd.Hash) {
	if err := c.Executor.WarmLater(ctx, repo, base); err != nil {
		c.Log.Warn("cannot have the dependencies of a base fetched", "repo", repo, "err", err)
	}
}

func (c *call) refreshRepo() error {
	name := c.R.PathValue("repo")
	var q RefreshRepo
	if err := c.optionalBody(&q); err != nil {
		return err
	}
	r, err := c.findRepo(name)
	if err != nil {
		return err
	}
	base, err := r.Base(c.R.Context())
	if err != nil {
		return err
	}
	if err := c.Who.changes(name, base); err != nil {
		return err
	}
	return c.progress(func(ctx context.Context, text io.Writer) (Progress, error) {
		done, err := c.Executor.RefreshBase(ctx, executor.Deploy{Repo: name, Commit: q.Commit}, text)
		if err != nil {
			return Progress{}, err
		}
		out := Progress{Refreshed: &done.Refreshed, Base: done.Base}
		if !q.Wait {
			return out, c.Executor.WarmLater(ctx, name, done.Commit)
		}
		if err := c.Executor.Warm(ctx, name, done.Commit, text); err != nil {
			if ctx.Err() != nil {
				return out, err
			}
			out.Cold = err.Error()
		}
		return out, nil
	})
}

// progress answers with lines. The status is written with the first of them,
// so that work which is refused at once has its true status.
func (c *call) progress(work func(ctx context.Context, text io.Writer) (Progress, error)) error {
	ctx, cancel := context.WithCancelCause(c.R.Context())
	defer cancel(nil)
	lines := &progressLines{call: c, cancel: cancel}
	last, err := work(ctx, lines)
	if err != nil {
		if !lines.begun {
			return err
		}
		last = Progress{Problem: asProblem(err, c.Who)}
		last.Problem.Request = c.ID
	}
	lines.rest()
	if werr := lines.send(last); werr != nil {
		return werr
	}
	return err
}

// progressLines cuts what git tells of its progress into lines of the answer.
// It is written to by one goroutine at a time.
type progressLines struct {
	call   *call
	cancel context.CancelCauseFunc
	begun  bool
	out    writer
	buf    []byte
}

// longestProgress bounds a line; git's own are short.
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
			p.cancel(err) // nobody watches any more: a failed import leaves nothing behind
			return len(b), err
		}
	}
}

func (p *progressLines) rest() {
	if len(p.buf) > 0 {
		_, _ = p.Write([]byte("\n")) // the outcome, which follows, meets the same error
	}
}

func (p *progressLines) send(v Progress) error {
	if !p.begun {
		p.begun, p.out = true, p.call.stream(mediaLines)
	}
	return p.out.line(v)
}

type logQuery struct {
	Rev   string `json:"rev,omitempty" jsonschema:"branch, tag, ref or commit; the base if empty"`
	Not   string `json:"not,omitempty" jsonschema:"leave out what is reachable from here"`
	Max   int    `json:"max,omitempty" jsonschema:"at most so many; 100 if 0, 1000 at most"`
	First bool   `json:"first,omitempty" jsonschema:"follow first parents only"`
}

// revision is the commit that rev, or else the repository's base, means to the caller.
func (c *call) revision(r *gitd.Repo, rev string) (string, error) {
	if rev == "" {
		base, err := r.Base(c.R.Context())
		if err != nil {
			return "", err
		}
		rev = "refs/heads/" + base
	}
	if c.Who.grant().ReadsAll() {
		return rev, nil
	}
	h, err := r.ResolveFor(c.R.Context(), c.Who.grant(), rev)
	return string(h), err
}

func (c *call) repoLog() error {
	var q logQuery
	if err := c.query(&q); err != nil {
		return err
	}
	r, err := c.findRepo(c.R.PathValue("repo"))
	if err != nil {
		return err
	}
	rev, err := c.revision(r, q.Rev)
	if err != nil {
		return err
	}
	if q.Not != "" {
		if q.Not, err = c.revision(r, q.Not); err != nil {
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
	return c.reply(commits)
}

type diffQuery struct {
	From      string   `json:"from,omitempty" jsonschema:"branch, tag, ref or commit; the base if empty"`
	To        string   `json:"to" jsonschema:"the same"`
	Stat      bool     `json:"stat,omitempty" jsonschema:"a diffstat instead of a patch"`
	MergeBase bool     `json:"merge_base,omitempty" jsonschema:"compare with the merge base of both"`
	Path      []string `json:"path,omitempty" jsonschema:"only these files or folders"`
}

func (c *call) diffArguments() (*gitd.Repo, diffQuery, error) {
	var q diffQuery
	if err := c.query(&q); err != nil {
		return nil, q, err
	}
	if q.To == "" {
		return nil, q, problem(KindInvalid, "the query parameter to is missing: which commit?")
	}
	r, err := c.findRepo(c.R.PathValue("repo"))
	if err != nil {
		return nil, q, err
	}
	if q.From, err = c.revision(r, q.From); err != nil {
		return nil, q, err
	}
	q.To, err = c.revision(r, q.To)
	return r, q, err
}

func (c *call) repoDiff() error {
	r, q, err := c.diffArguments()
	if err != nil {
		return err
	}
	return c.diff(r, q.From, q.To, gitd.DiffOptions{Stat: q.Stat, Paths: q.Path, MergeBase: q.MergeBase})
}

func (c *call) repoChanges() error {
	r, q, err := c.diffArguments()
	if err != nil {
		return err
	}
	return c.changes(r, q.From, q.To, q.MergeBase)
}

func (c *call) changes(r *gitd.Repo, from, to string, mergeBase bool) error {
	changes, err := r.Changed(c.R.Context(), from, to, mergeBase)
	if err != nil {
		return err
	}
	if changes == nil {
		changes = []gitd.Change{}
	}
	return c.reply(changes)
}

// diff streams a diff. Both ends are looked up first: after the first byte an
// error could only cut the answer short.
func (c *call) diff(r *gitd.Repo, from, to string, o gitd.DiffOptions) error {
	for _, rev := range []string{from, to} {
		if _, err := r.Resolve(c.R.Context(), rev); err != nil {
			return err
		}
	}
	c.W.Header().Set("Content-Type", mediaText)
	if err := r.Diff(c.R.Context(), from, to, o, c.W); err != nil {
		return c.cutShort(err)
	}
	return nil
}

// cutShort makes sure that an answer which broke in the middle cannot be taken
// for a whole one: the connection is closed without its last chunk.
func (c *call) cutShort(err error) error {
	if c.W.(*recorder).status == 0 {
		return err
	}
	c.Log.ErrorContext(c.R.Context(), "answer cut short", "request", c.ID, "error", err)
	panic(http.ErrAbortHandler)
}

type treeQuery struct {
	Rev       string `json:"rev,omitempty" jsonschema:"branch, tag, ref or commit; the base if empty"`
	Path      string `json:"path,omitempty" jsonschema:"slash-separated; the root if empty"`
	Recursive bool   `json:"recursive,omitempty" jsonschema:"the files of all folders below, too"`
}

func (c *call) treeArguments() (*gitd.Repo, treeQuery, error) {
	var q treeQuery
	if err := c.query(&q); err != nil {
		return nil, q, err
	}
	r, err := c.findRepo(c.R.PathValue("repo"))
	if err != nil {
		return nil, q, err
	}
	q.Rev, err = c.revision(r, q.Rev)
	return r, q, err
}

func (c *call) repoTree() error {
	r, q, err := c.treeArguments()
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
	return c.reply(entries)
}

func (c *call) repoFile() error {
	r, q, err := c.treeArguments()
	if err != nil {
		return err
	}
	f, size, err := r.OpenFile(c.R.Context(), q.Rev, q.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	c.attachment(path.Base(q.Path))
	c.W.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	if _, err := io.Copy(c.W, f); err != nil {
		return c.cutShort(err)
	}
	return nil
}

// attachment marks bytes that somebody else wrote, so that no browser takes
// them for a page of this server.
func (c *call) attachment(name string) {
	h := c.W.Header()
	h.Set("Content-Type", mediaBytes)
	h.Set("Content-Disposition", "attachment; filename*=UTF-8''"+url.PathEscape(name))
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
}
