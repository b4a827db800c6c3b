package past

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/ramus-dev/ramus/executor/provenance"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/trial"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// maxDiff bounds the diff of an answer, in bytes.
const maxDiff = 256 << 10

// Bisect asks for the first bad commit. It has a command, a task or a picture.
type Bisect struct {
	Of   string `json:"of,omitempty"`   // a caller, or a branch, tag, ref or commit; the base if empty
	Repo string `json:"repo,omitempty"` // the caller's, or the only one, if empty
	// Good is a commit at which the command succeeds. If it is empty, it is the commit from which the caller's branch
	// began. Bad is a commit at which the command fails. If it is empty, it is the last one.
	Good    string           `json:"good,omitempty"`
	Bad     string           `json:"bad,omitempty"`
	Command *record.Command  `json:"command,omitempty"` // 0 is good, 125 cannot be tried, 1 to 127 are bad
	Task    *record.TaskCall `json:"task,omitempty"`
	Picture *trial.Picture   `json:"picture,omitempty"` // a page that differs from the good commit's is bad
	Width   int              `json:"width,omitempty"`   // commits at once; 4 if 0, 16 at most
	Fresh   bool             `json:"fresh,omitempty"`   // ignore the results of earlier searches
	Dry     bool             `json:"dry,omitempty"`     // answer with the plan alone
	Asker   gitd.Person      `json:"asker,omitzero"`
}

// BisectLine is one line of the answer. The first has the plan, and the last has the answer or a problem.
type BisectLine struct {
	Plan     *trial.Plan     `json:"plan,omitempty"`
	Progress *trial.Progress `json:"progress,omitempty"`
	Found    *BisectFound    `json:"found,omitempty"`
	Problem  *route.Problem  `json:"problem,omitempty"`
}

// BisectFound is the answer.
type BisectFound struct {
	trial.Found
	// Cause has the step that made the first bad commit. It is nil if several commits are left.
	Cause *provenance.Cause `json:"cause,omitempty"`
	Diff  string            `json:"diff,omitempty"` // of the first bad commit, its first 256 KiB
	// Pictures are those of the first bad commit that differ, in a search by a picture.
	Pictures []BisectPicture `json:"pictures,omitempty"`
}

func (api *API) bisect(c *route.Call) error {
	var b Bisect
	if err := c.ReadJSON(&b); err != nil {
		return err
	}
	search, err := api.prepare(c.R.Context(), c.Who, b)
	if err != nil {
		return err
	}
	plan, err := search.Plan(c.R.Context())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(c.R.Context())
	defer cancel(nil)
	w := c.BeginStream(route.MediaLines)
	if err := w.WriteLine(BisectLine{Plan: &plan}); err != nil || b.Dry {
		return err
	}
	search.Tell = func(p trial.Progress) {
		if err := w.WriteLine(BisectLine{Progress: &p}); err != nil {
			cancel(err) // the client has gone
		}
	}
	found, err := api.find(ctx, c.Who, search)
	if err != nil {
		return w.WriteLine(BisectLine{Problem: route.AsProblem(err, c.Who)})
	}
	return w.WriteLine(BisectLine{Found: &found})
}

// Bisect searches for the first bad commit. tell is called with each step forward. The answer to a dry request has the plan
// alone.
func (api *API) Bisect(ctx context.Context, who route.Who, b Bisect, tell func(trial.Progress)) (BisectFound, error) {
	search, err := api.prepare(ctx, who, b)
	if err != nil {
		return BisectFound{}, err
	}
	if b.Dry {
		plan, err := search.Plan(ctx)
		return BisectFound{Found: trial.Planned(plan)}, err
	}
	search.Tell = tell
	return api.find(ctx, who, search)
}

// find searches, and explains the commit that was found.
func (api *API) find(ctx context.Context, who route.Who, search *trial.Bisection) (BisectFound, error) {
	found, err := search.Run(ctx)
	out := BisectFound{Found: found}
	if err != nil || found.First == nil {
		return out, err
	}
	first := found.First
	cause, err := (&provenance.Reader{Runs: api.Executor}).ExplainCommit(ctx, search.Repo, first.Commit, who.SeesRun)
	if err != nil {
		return out, err
	}
	out.Cause = &cause
	if search.Trier.Judge != nil {
		if out.Pictures, err = api.pictures(ctx, found.Try); err != nil {
			return out, err
		}
	}
	if len(first.Parents) == 0 {
		return out, nil
	}
	var diff bytes.Buffer
	w := &text.Limit{W: &diff, Left: maxDiff}
	err = search.Repo.Diff(ctx, string(first.Parents[0]), string(first.Commit), gitd.DiffOptions{}, w)
	out.Diff = strings.ToValidUTF8(diff.String(), "\uFFFD")
	return out, err
}

// prepare returns the search that a request means, with the rights of its caller. Nothing runs.
func (api *API) prepare(ctx context.Context, who route.Who, b Bisect) (*trial.Bisection, error) {
	if means := []bool{b.Command != nil, b.Task != nil, b.Picture != nil}; !oneOf(means) {
		return nil, route.NewProblem(route.KindInvalid, "a command, a task or a picture is needed, and only one of them")
	}
	if b.Picture != nil { // its mistakes are told before anything else
		task, err := b.Picture.Task("")
		if err != nil {
			return nil, err
		}
		b.Task = &task
	}
	if b.Command != nil && b.Command.Background {
		return nil, route.NewProblem(route.KindInvalid, "a command in the background has no result")
	}
	repo, rev, err := api.findRevision(ctx, who, b.Of, b.Repo)
	if err != nil {
		return nil, err
	}
	request := record.Request{Repo: repo.Name(), Command: b.Command, Task: b.Task, Asker: b.Asker, Fresh: b.Fresh}
	good, of, base := b.Good, record.Caller{}, ""
	if st, err := api.caller(who, b.Of); err == nil && rev == "refs/heads/"+st.Branch {
		if st.Repo != repo.Name() {
			return nil, route.NewProblem(route.KindInvalid, "%s is bisected in its own repository, %s", st.Caller,
				st.Repo)
		}
		of, base, request.Fork = st.Caller, st.Last.Base, &record.Fork{Of: st.Caller.String()}
		good = cmp.Or(good, string(st.Last.BaseCommit))
	} else if request.Base, err = api.branch(ctx, who, repo, b.Of); err != nil {
		return nil, err
	}
	if err := api.Find.Bind(ctx, who, &request); err != nil {
		return nil, err
	}
	if err := checkTries(who, repo); err != nil {
		return nil, err
	}
	if good == "" {
		return nil, route.NewProblem(route.KindInvalid, "the good commit is missing").
			WithHint("--good names a commit at which the command succeeds")
	}

	search := &trial.Bisection{Repo: repo, Width: b.Width}
	for _, end := range []struct {
		into *gitd.Hash
		rev  string
	}{{&search.Good, good}, {&search.Bad, cmp.Or(b.Bad, rev)}} {
		known, err := api.Find.Revision(ctx, who, repo, end.rev)
		if err != nil {
			return nil, err
		}
		if *end.into, err = repo.Resolve(ctx, known); err != nil {
			return nil, err
		}
	}
	if search.Good, err = api.root(ctx, repo, search.Good, search.Bad, b.Good == ""); err != nil {
		return nil, err
	}
	if b.Picture != nil {
		task, err := b.Picture.Task(search.Good)
		if err != nil {
			return nil, err
		}
		request.Task = &task
	}
	if b.Command != nil {
		if err := api.Executor.CheckUnasked(ctx, repo, cmp.Or(base, request.Base), *b.Command); err != nil {
			return nil, err
		}
	}
	search.Trier = &trial.Trier{Runs: api.runsFor(of), Request: request, Remove: api.remover(&request)}
	if b.Picture != nil {
		search.Trier.Judge = b.Picture.Judge
	}
	environment, err := trial.Environment(ctx, repo, cmp.Or(base, request.Base))
	if err != nil {
		return nil, err
	}
	search.Book = &trial.Book{Repo: repo, Bot: api.Executor.Bot, Now: api.Now, Environment: environment}
	return search, search.Book.Open(ctx, request, b.Fresh)
}

// oneOf reports whether exactly one is true.
func oneOf(list []bool) bool {
	n := 0
	for _, is := range list {
		if is {
			n++
		}
	}
	return n == 1
}

// branch returns the branch that a name means, if callers can begin from it. Otherwise it returns "", which is the
// base.
func (api *API) branch(ctx context.Context, who route.Who, repo *gitd.Repo, of string) (string, error) {
	name := strings.TrimPrefix(of, "refs/heads/")
	if name == "" || lookup.IsCallerBranch(name) || !who.SeesBranch(repo.Name(), name) {
		return "", nil
	}
	_, err := repo.Resolve(ctx, "refs/heads/"+name)
	if errors.Is(err, gitd.ErrNotFound) || errors.Is(err, gitd.ErrInvalid) {
		return "", nil
	}
	return name, err
}

// root returns the good commit. If nobody named it, it is the merge base, because the base may have moved since the
// branch began.
func (api *API) root(ctx context.Context, repo *gitd.Repo, good, bad gitd.Hash, guessed bool) (gitd.Hash, error) {
	if !guessed {
		return good, nil
	}
	return repo.MergeBase(ctx, string(good), string(bad))
}
