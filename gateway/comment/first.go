package comment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/executor/anchor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/review"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// FirstReview is the id of the run that reviews a new pull request.
const FirstReview = "first-review"

// Bounds of first reviews.
const (
	maxFindings   = 20 // of one review
	maxUnworthy   = 30 // findings that a prompt names
	guidelinePath = ".ramus/review.md"
	maxGuideline  = 16 << 10 // bytes
)

// First has an agent review a new pull request, if the base of the repository names one. It happens once for each pull request. Private work
// is not reviewed. It is a method of engineer.Lines.
func (c *Comments) First(ctx context.Context, repo *gitd.Repo, caller record.Caller, base string, pull int, head gitd.Hash) error {
	s, err := c.Executor.SettingsOf(ctx, repo.Name(), base)
	if err != nil || s.Review == "" || c.Private != nil && c.Private(caller) {
		return err
	}
	reviewer, err := record.RunCaller(lookup.ReviewPrefix + review.NewID("first review", repo.Name(), caller.String(), fmt.Sprint(pull)))
	if err != nil || len(c.Executor.OfCaller(reviewer)) > 0 {
		return err
	}
	start, err := repo.MergeBase(ctx, "refs/heads/"+base, string(head))
	if err != nil {
		return err
	}
	p := render.FirstReview{Pull: pull, Base: base, From: string(start), Most: maxFindings}
	guideline, err := repo.ReadFile(ctx, "refs/heads/"+base, guidelinePath, maxGuideline)
	switch {
	case err == nil:
		p.Guideline = string(guideline)
	case !errors.Is(err, gitd.ErrNotFound) && !errors.Is(err, gitd.ErrTooLarge):
		return err
	}
	_, said, err := c.unworthy(ctx, repo)
	if err != nil {
		return err
	}
	p.Unworthy = said
	r := record.Request{Key: FirstReview, Caller: reviewer, Repo: repo.Name(), Base: base, Asker: c.Book.Bot,
		Fork: &record.Fork{Of: caller.String(), Commit: head}, Agent: &record.AgentCall{Name: s.Review, Session: "review",
			Title: fmt.Sprintf("Review pull request %d", pull), Prompt: render.FirstReviewPrompt(p)}}
	if _, err = c.Executor.Submit(ctx, r); errors.Is(err, record.ErrInvalid) {
		r.Agent.Session = "" // an agent of kind command has one session alone
		_, err = c.Executor.Submit(ctx, r)
	}
	return err
}

// Reviewed returns the caller whose work a run reviews first. ok is false for all other runs.
func Reviewed(run record.Run) (c record.Caller, ok bool) {
	// Ramus asks for a review, and has no id. A person who names a run like one has, because the server writes the asker.
	if run.ID != FirstReview || run.Fork == nil || !strings.HasPrefix(run.Caller.ID(), lookup.ReviewPrefix) || run.Asker.ID != "" {
		return c, false
	}
	c, err := record.ParseCaller(run.Fork.Of)
	return c, err == nil
}

// Finding is a remark of an automatic review.
type Finding struct {
	Path string `json:"path"`
	Line int    `json:"line"`
	To   int    `json:"to,omitempty"`
	Kind string `json:"kind"` // a short name of the kind of fault, the same for all faults of the kind
	Text string `json:"text"`
}

// Found is the result of a finding. Thread is empty if it is not said, for the reason Why.
type Found struct {
	Thread string `json:"thread,omitempty"`
	Why    string `json:"why,omitempty"`
}

// Report keeps a finding of the agent that reviews the work of a caller as a thread. One that is not worth saying in the repository, or that is
// there already, is not said.
func (c *Comments) Report(ctx context.Context, run record.Run, of record.Caller, f Finding) (Found, error) {
	repo, err := c.Git.Repo(run.Repo)
	if err != nil {
		return Found{}, err
	}
	base, err := repo.MergeBase(ctx, "refs/heads/"+run.Base, string(run.Fork.Commit))
	if err != nil {
		return Found{}, err
	}
	w := Work{Caller: of, Repo: repo, Home: run.Repo, Branch: of.Branch(), Ends: anchor.Ends{Base: base, Commit: run.Fork.Commit}}
	d, err := c.draft(ctx, w, review.Review{}, New{Path: f.Path, Line: f.Line, To: f.To, Text: f.Text}, "")
	if err != nil {
		return Found{}, err
	}
	m := review.Remark{Kind: review.ByAgent, By: gitd.Person{Name: cmp.Or(run.Agent.Name, "agent"), Email: c.Book.Bot.Email}, Time: d.Time, Text: d.Text, Run: run.Name()}
	t, err := newThread(ctx, repo, *d.Anchor, m)
	if err != nil {
		return Found{}, err
	}
	t.Finding = fingerprint(f.Kind, t)
	m.ID = review.NewID("finding", run.Name(), t.Finding)
	t.ID, t.Remarks[0].ID = review.NewID("thread", m.ID), m.ID
	known, _, err := c.unworthy(ctx, repo)
	if err != nil {
		return Found{}, err
	}
	if known[t.Finding] {
		return Found{Why: "people said that it is not worth saying in this repository"}, nil
	}
	found := Found{Thread: t.ID}
	_, err = c.Book.Change(ctx, repo, of, m.By, "Find something in the first review", func(r *review.Review) error {
		count := 0
		for _, x := range r.Threads {
			if x.Finding == "" {
				continue
			}
			if count++; x.Finding == t.Finding {
				found = Found{Thread: x.ID, Why: "it is there already"}
				return nil
			}
		}
		if count >= maxFindings {
			return route.NewProblem(route.KindTooLarge, "a review has at most %d findings", maxFindings)
		}
		r.Threads = append(r.Threads, t)
		return nil
	})
	return found, err
}

// fingerprint returns the identity of a finding in its repository. The place of the lines is not part of it.
func fingerprint(kind string, t review.Thread) string {
	parts := []string{"finding", strings.ToLower(strings.Join(strings.Fields(kind), "-"))}
	for i, l := range t.Excerpt {
		if n := t.First + i; n >= t.Anchor.From && n <= t.Anchor.To {
			parts = append(parts, strings.Join(strings.Fields(l), " "))
		}
	}
	return review.NewID(parts...)
}

// unworthy returns the fingerprints of the findings that people called not worth saying in a repository, and the texts of some.
func (c *Comments) unworthy(ctx context.Context, repo *gitd.Repo) (prints map[string]bool, texts []string, err error) {
	callers, err := review.Callers(ctx, repo)
	if err != nil {
		return nil, nil, err
	}
	prints = map[string]bool{}
	for _, caller := range callers {
		if c.Private != nil && c.Private(caller) {
			continue // everybody who sees the repository reads the prompt of a review
		}
		r, err := c.Book.Read(ctx, repo, caller)
		if err != nil {
			return nil, nil, err
		}
		for _, t := range r.Threads {
			if t.Finding != "" && t.Resolved != nil && t.Resolved.Unworthy && !prints[t.Finding] {
				prints[t.Finding] = true
				if len(texts) < maxUnworthy {
					texts = append(texts, t.Remarks[0].Text)
				}
			}
		}
	}
	return prints, texts, nil
}
