package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/executor/addition"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/attachment"
	"github.com/ramus-dev/ramus/executor/dialogue"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks/library"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

// plan is a request that was checked, and the run that it leads to.
type plan struct {
	x       *Executor
	run     record.Run
	repo    *gitd.Repo
	files   runFiles
	command *record.Command
	given   []record.Attachment // along with an agent's prompt
	handed  []record.HandedSecret
	fresh   bool           // the caller's branch is to be made, at run.Start
	draw    bool           // the caller's id was drawn and may be drawn again
	redraw  bool           // the run's id was, too
	cancel  bool           // the workflow stops earlier runs
	taken   []record.Event // results taken over from the run that is resumed
	start   gitd.Hash      // of a fork
	at      gitd.Hash      // at which a new caller begins; empty for the base's tip
	outside bool           // at need not be in the history of the base
	state   gitd.Hash      // memory of its agents; empty for none
	others  *addition.Plan // the branches of run.With
}

// plan returns the plan of a request. Nothing is changed but, for a request that begins at a node, the caller's branch.
func (x *Executor) plan(ctx context.Context, r record.Request) (*plan, error) {
	handed, err := x.SecretStore.TakeHanded(&r)
	if err != nil {
		return nil, err
	}
	if r, err = cleanRequest(x.Secrets, r); err != nil {
		return nil, err
	}
	if err := x.setWorkflowOf(ctx, &r); err != nil {
		return nil, err
	}
	if err := checkRequest(r); err != nil {
		return nil, err
	}
	p := &plan{x: x, command: r.Command, files: runFiles{Sub: map[string]string{}}, handed: handed}
	p.run = record.Run{
		ID:        r.Key,
		Caller:    r.Caller,
		Repo:      r.Repo,
		Base:      r.Base,
		Asker:     r.Asker,
		Origin:    r.Origin,
		State:     record.StateSubmitted,
		Input:     r.Input,
		From:      r.From,
		Group:     r.Group,
		Parent:    r.Of,
		Apart:     r.Apart,
		Unasked:   r.Unasked,
		Fresh:     r.Fresh || r.Apart || r.Of != "", // a person who retries wants to see it again
		CreatedAt: x.Now().UTC(),
	}
	for _, h := range handed {
		p.run.Secrets = append(p.run.Secrets, h.Name)
	}
	if p.run.ID == "" {
		p.run.ID, p.redraw = x.drawRun(p.run.CreatedAt), true
	}
	if r.Fork != nil {
		if err := p.setFork(ctx, *r.Fork); err != nil {
			return nil, err
		}
	}
	if r.Caller.IsZero() {
		p.draw, p.fresh, p.run.Drawn = true, true, true
	} else if err := p.setCaller(ctx); err != nil {
		return nil, err
	}
	if r.Fork != nil && !p.fresh {
		return nil, fmt.Errorf("cannot fork: %w: %s is there already; a fork is a new caller", record.ErrConflict,
			p.run.Caller)
	}
	if err := p.setWork(ctx, r); err != nil {
		return nil, err
	}
	if r.At != "" && (r.Fork != nil || !p.fresh) {
		return nil, fmt.Errorf("%w request: only a new caller that is no fork begins at a commit of its base",
			record.ErrInvalid)
	}
	p.at, p.outside = r.At, r.Anywhere
	if err := p.setStart(ctx); err != nil {
		return nil, err
	}
	if err := p.planAdditions(ctx, r); err != nil {
		return nil, err
	}

	if p.draw {
		known := false
		if r.Fork == nil {
			p.run.Caller, known = x.Warmer.Take(r.Asker, p.run.Repo, p.run.Base)
		}
		if !known {
			p.run.Caller, _ = record.RunCaller(record.NewID(2)) // ids that are drawn fit the form
		}
	}
	p.run.Branch = p.run.Caller.Branch()
	p.run.Head = p.run.Start
	if err := p.permit(ctx, r); err != nil {
		return nil, err
	}
	if r.From != "" {
		if err := p.takeOver(ctx, r); err != nil {
			return nil, err
		}
	}
	if p.run.Kind == record.KindWorkflow {
		w, err := p.files.parse(ctx, x, p.run.Repo)
		if err == nil {
			_, err = workflow.NewMachine(w, p.run.Input, workflowContext(p.run))
		}
		if err != nil {
			return nil, fmt.Errorf("cannot run workflow %s: %w: %w", p.run.Workflow, record.ErrInvalid, err)
		}
	}
	return p, nil
}

// checkRequest returns an error unless a request has one kind of work, and a valid key or none.
func checkRequest(r record.Request) error {
	kinds := 0
	for _, set := range []bool{r.Workflow != "", r.File != "", r.Command != nil, r.Task != nil, r.Agent != nil, r.Terminal != nil} {
		if set {
			kinds++
		}
	}
	if kinds != 1 {
		return fmt.Errorf("%w request: it needs exactly one of workflow, file, command, task, agent and terminal",
			record.ErrInvalid)
	}
	if r.Key != "" && !record.ValidID(r.Key) {
		return fmt.Errorf("%w key %q: letters, digits, '.', '_' and '-', at most 100, not beginning with '.' or '-'",
			record.ErrInvalid, r.Key)
	}
	return checkGroup(r.Group)
}

// setStart fills in the base, and the commit that the run begins at.
func (p *plan) setStart(ctx context.Context) error {
	if p.repo == nil {
		return fmt.Errorf("%w request: it names no repository; `ramus repo list` shows them", record.ErrInvalid)
	}
	if p.run.Base == "" {
		base, err := p.repo.Base(ctx)
		if err != nil {
			return err
		}
		p.run.Base = base
	}
	s, err := p.x.Settings.Read(ctx, p.repo, p.run.Base)
	if err != nil {
		return err
	}
	p.run.Required = dialogue.Required(s)
	base, err := p.repo.Resolve(ctx, "refs/heads/"+p.run.Base)
	if errors.Is(err, gitd.ErrNotFound) {
		return fmt.Errorf("cannot begin from %s of %s: there is no such branch (%w); push a commit to it first, or name another base with --base",
			p.run.Base, p.repo.Name(), gitd.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("cannot begin from %s of %s: %w", p.run.Base, p.repo.Name(), err)
	}
	p.run.BaseCommit = base
	if p.run.BaseRefreshed, err = p.repo.RefreshedAt(ctx); err != nil {
		return err
	}
	switch {
	case p.start != "":
		p.run.Start = p.start
	case p.fresh && p.at != "":
		p.run.Start, err = p.startAt(ctx, base)
	case p.fresh:
		p.run.Start = base
	default:
		p.run.Start, err = p.repo.Resolve(ctx, "refs/heads/"+p.run.Caller.Branch())
	}
	return err
}

// startAt returns the commit, usually of the base's history, at which a new caller begins. tip is the base's.
func (p *plan) startAt(ctx context.Context, tip gitd.Hash) (gitd.Hash, error) {
	at, err := p.repo.Resolve(ctx, string(p.at))
	if err != nil {
		return "", fmt.Errorf("cannot begin at %s: %w", p.at, err)
	}
	inside, err := p.repo.Descends(ctx, tip, at)
	if err == nil && !inside && !p.outside {
		err = fmt.Errorf("%w commit: it is not in the history of %s", record.ErrInvalid, p.run.Base)
	}
	if err != nil {
		return "", fmt.Errorf("cannot begin at %s: %w", at, err)
	}
	return at, nil
}

// permit asks the request's Permit, before anything changes.
func (p *plan) permit(ctx context.Context, r record.Request) error {
	if r.Permit == nil {
		return nil
	}
	into := ""
	if p.run.Kind == record.KindWorkflow {
		w, err := p.files.parse(ctx, p.x, p.run.Repo)
		if err != nil {
			return fmt.Errorf("cannot run workflow %s: %w: %w", p.run.Workflow, record.ErrInvalid, err)
		}
		if w.Repo.MergeOnSuccess {
			into = p.run.Base
		}
	}
	return r.Permit(p.run, into)
}

// setCaller finds the repository of a named caller, or finds that the caller is new.
func (p *plan) setCaller(ctx context.Context) error {
	repo, base, err := p.x.HomeRepo(ctx, p.run.Caller)
	switch {
	case err == nil:
		if p.run.Repo != "" && p.run.Repo != repo.Name() {
			return fmt.Errorf("%w repository %q: %s belongs to %s", record.ErrInvalid, p.run.Repo, p.run.Caller, repo.Name())
		}
		p.repo, p.run.Repo = repo, repo.Name()
		if p.run.Base == "" {
			p.run.Base = base
		}
	case errors.Is(err, record.ErrNotFound) && p.run.Repo != "":
		p.fresh = true
	case errors.Is(err, record.ErrNotFound):
		return fmt.Errorf("%s: %w; name a repository (--repo) to begin it", p.run.Caller, record.ErrNotFound)
	default:
		return err
	}
	return nil
}

// setWork fills in the work.
func (p *plan) setWork(ctx context.Context, r record.Request) error {
	switch {
	case r.Command != nil:
		c := *r.Command
		if len(c.Args) == 0 && strings.TrimSpace(c.Shell) == "" {
			return fmt.Errorf("%w request: the command is empty", record.ErrInvalid)
		}
		var err error
		if c.Env, err = envNames(c.Env); err != nil {
			return err
		}
		if c.Pure && (len(c.Env) > 0 || c.Stdin != nil || c.Background) {
			return fmt.Errorf("%w request: a pure command has no variables, no input, and does not go on in the background",
				record.ErrInvalid)
		}
		c.Stdin = nil
		p.run.Kind, p.run.Exec, p.run.Command = record.KindExec, &c, c.Shell
		if len(c.Args) > 0 {
			p.run.Command = quoteArgs(c.Args)
		}
	case r.Task != nil:
		if _, ok := library.Lookup(r.Task.Name); !ok {
			return fmt.Errorf("%w task %q; `ramus tasks` lists them", record.ErrInvalid, r.Task.Name)
		}
		p.run.Kind, p.run.Task = record.KindTask, r.Task
	case r.Terminal != nil:
		if err := p.setTerminal(*r.Terminal); err != nil {
			return err
		}
	case r.Agent != nil:
		if err := p.setRepo(ctx); err != nil { // its settings name the agent
			return err
		}
		if err := p.setAgent(ctx, *r.Agent); err != nil {
			return err
		}
	default:
		return p.setWorkflow(ctx, r)
	}
	return p.setRepo(ctx)
}

// setAgent fills in a plan for an agent.
func (p *plan) setAgent(ctx context.Context, call record.AgentCall) error {
	if p.repo != nil {
		s, err := p.x.Settings.Read(ctx, p.repo, p.run.Base)
		if err != nil {
			return err
		}
		call.Name, call.Plan = cmp.Or(call.Name, s.Agent), call.Plan || s.Plan
	}
	a, err := p.x.Prompts.Dialogues.Agent(call.Name)
	if err != nil {
		return err
	}
	if err := a.Accepts(call.Prompt, call.Files); err != nil {
		return err
	}
	switch {
	case len(call.Checks) > maxChecks:
		return fmt.Errorf("%w request: it has more than %d checks", record.ErrInvalid, maxChecks)
	case len(call.Title) > maxTitle:
		return fmt.Errorf("%w title: it has more than %d bytes", record.ErrInvalid, maxTitle)
	case len(call.Session) > maxLabel || !utf8.ValidString(call.Session):
		return fmt.Errorf("%w session label: at most %d bytes of text", record.ErrInvalid, maxLabel)
	case call.Session != "" && a.Protocol != agent.ProtocolACP:
		return fmt.Errorf("%w session label %q: %s goes on with what it was told last and cannot keep several sessions apart; that takes an agent of kind acp",
			record.ErrInvalid, call.Session, a.Name)
	}
	for _, check := range call.Checks {
		if _, ok := library.Lookup(check); !ok {
			return fmt.Errorf("%w check %.100q; `ramus tasks` lists the tasks that can check", record.ErrInvalid, check)
		}
	}
	call.Name = a.Name
	p.given = attachment.Named(call.Files)
	call.Files = attachment.WithoutContent(p.given)
	p.run.Kind, p.run.Agent, p.run.Command = record.KindAgent, &call,
		a.Name+": "+cmp.Or(text.FirstLine(call.Title), text.FirstLine(call.Prompt))
	return nil
}

func (p *plan) setWorkflow(ctx context.Context, r record.Request) error {
	p.run.Kind = record.KindWorkflow
	p.files.Workflow, p.run.File = r.Workflow, r.File
	if err := p.setRepo(ctx); err != nil {
		return err
	}
	load := loader{repo: p.repo, base: p.run.Base, sub: r.Sub, used: p.files.Sub}
	if r.File != "" {
		text, err := load.read(ctx, path.Clean(r.File))
		if err != nil {
			return fmt.Errorf("cannot read workflow %s: %w", r.File, err)
		}
		p.files.Workflow = text
	}
	name := r.File
	if name == "" {
		name = "workflow.yaml"
	}
	parse := func() (*workflow.Workflow, error) {
		w, err := workflow.Parse(ctx, name, []byte(p.files.Workflow),
			workflow.Options{Load: load.load(ctx), RepoID: p.run.Repo, LLM: p.x.LLM != nil})
		if err != nil {
			return nil, fmt.Errorf("cannot run workflow: %w: %w", record.ErrInvalid, err)
		}
		return w, nil
	}
	w, err := parse()
	if err != nil {
		return err
	}
	if p.run.Repo == "" && w.Repo.ID != "" { // its sub-workflows run there, too
		p.run.Repo = w.Repo.ID
		if w, err = parse(); err != nil {
			return err
		}
	}
	p.run.Workflow = w.ID
	if p.run.Group == "" {
		p.run.Group = w.Concurrency.Group
	}
	p.cancel = w.Concurrency.CancelPrevious
	if p.run.Base == "" {
		p.run.Base = w.Repo.BaseBranch
	}
	return p.setRepo(ctx)
}

// setRepo opens the repository. The base of a new caller is asked for upstream first, because files of the base may
// describe the work.
func (p *plan) setRepo(ctx context.Context) (err error) {
	if p.repo != nil || p.run.Repo == "" {
		return nil
	}
	if p.repo, err = p.x.Bases.OpenRepo(ctx, p.run.Repo); err == nil && p.fresh {
		p.x.Bases.Freshen(ctx, p.repo)
	}
	return err
}
