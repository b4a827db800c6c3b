package dialogue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/attachment"
	"github.com/ramus-dev/ramus/executor/browse"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

// conversation is the run of an agent. It has turns as long as there are prompts, and then the checks. Only the run's
// goroutine uses it.
type conversation struct {
	d      *Dialogue
	run    *step.Run       // of d
	ctx    context.Context // of the run
	a      agent.Agent
	turns  int
	checks map[string]string // last result of each: passed, failed, skipped
	// checkups are made after the last turn, those of the repository's configuration or else the agent's.
	checkups []checkup
	process  *agent.Process // of agent.ProtocolACP, for the next turn; may be nil
	clock    *agent.Clock   // of the turn in process
	planned  string         // the plan that a person approved, for the first turn after it
	// browser is the agent's own while it works. With an agent of agent.ProtocolACP it stays as long as process.
	browser *browse.Interactive
}

// Lead takes an agent's run to its end, from where its journal is. The goroutine of the run calls it once. The result is the
// output of the run.
func (d *Dialogue) Lead(ctx context.Context) (map[string]any, error) {
	defer d.refusePrompts()
	if d.run.Initial.Agent == nil {
		return nil, step.Fail(record.ReasonInternal, "an agent's run that names no agent")
	}
	a, err := d.all.Agent(d.run.Initial.Agent.Name)
	if err != nil {
		return nil, step.Fail(record.ReasonBadInput, err.Error())
	}
	if a.Timeout <= 0 {
		a.Timeout = d.run.Timeout()
	}
	c := &conversation{d: d, run: d.run, ctx: ctx, a: a, checks: map[string]string{}, checkups: checkups(d.run.Target.Settings(), a.Checks)}
	c.checkups = addCheckups(c.checkups, d.run.Initial.Agent.Checks)
	err = c.lead(ctx)
	c.endProcess()
	return map[string]any{"agent": a.Name, "turns": c.turns, "checks": c.checks}, err
}

func (c *conversation) lead(ctx context.Context) error {
	if c.run.Initial.Agent.Plan {
		failed, err := c.plan(ctx)
		switch {
		case err != nil:
			return err
		case failed != nil:
			return errors.Join(c.giveUp(), failed)
		}
	}
	for n := 1; ; n++ {
		failed, err := c.turn(ctx, n)
		switch {
		case errors.Is(err, errUnsaid):
			n-- // the checks of the turn before follow
		case err != nil:
			return err
		case failed != nil:
			if err := c.giveUp(); err != nil {
				return err
			}
		default:
			c.turns = n
			// Checks that had begun when the server stopped come first.
			if !c.checking(n) && c.d.unheard() {
				continue
			}
		}
		bad, err := c.check(ctx, n)
		switch {
		case failed != nil:
			return failed // the first cause; the journal has the checks that could not run
		case err != nil:
			return err
		case !c.d.isLastTurn():
			continue
		case len(bad) > 0:
			return step.Fail(record.ReasonCommandFailed,
				"the agent has ended its work, but a check failed: "+strings.Join(bad, ", "))
		}
		return nil
	}
}

// giveUp ends the conversation, and journals how many prompts the agent has not got.
func (c *conversation) giveUp() error {
	c.d.refusePrompts()
	left := len(c.run.Initial.Queue(c.run.Journalled()).Waiting())
	if left == 0 {
		return nil
	}
	return c.run.Emit(record.Event{Type: record.EventNote,
		Message: fmt.Sprintf("the agent did not hear %d of the prompts; `ramus retry` gives it all of them", left)}, false)
}

// errUnsaid is the error of a turn that did not begin, because its prompts were taken back.
var errUnsaid = errors.New("nothing is said any more")

// turn runs the agent once. failed is the reason if it did not succeed.
func (c *conversation) turn(ctx context.Context, n int) (failed, err error) {
	id := "turn-" + strconv.Itoa(n)
	t := &turn{conversation: c, id: id, first: n == 1, from: c.heardBefore(id)}
	return c.takeTurn(ctx, t, step.Info{ID: id, Kind: string(record.KindAgent), Hear: t.hear})
}

// takeTurn runs the agent for a turn. failed is the reason if it did not succeed.
func (c *conversation) takeTurn(ctx context.Context, t *turn, info step.Info) (failed, err error) {
	run, id := c.run, t.id
	run.Lock()
	err = t.hear(&info)
	run.Unlock()
	if err != nil {
		return nil, err
	}
	do := t.do
	if c.a.Protocol == agent.ProtocolACP {
		do = t.speak
	}
	res, err := c.d.steps.Once(ctx, info, do)
	if err != nil {
		return nil, err
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	if res.OK {
		return nil, nil
	}
	text := res.Error
	if text == "" {
		code := 0
		if done := run.Beginning(id).Done; done != nil && done.Exit != nil {
			code = *done.Exit
		}
		text = fmt.Sprintf("the agent ended with %d", code)
	}
	reason := run.ReasonOfStep(id, record.ReasonCommandFailed)
	if u := run.Snapshot().Usage; reason == record.ReasonCommandFailed && u != nil && u.Exhausted {
		reason, text = record.ReasonBudget, text+": the run's budget for models is used up"
	}
	return step.Fail(reason, text), nil
}

// heardBefore returns how many prompts the agent had got before a turn.
func (c *conversation) heardBefore(id string) int {
	events := c.run.Journalled()
	began := slices.IndexFunc(events, func(e record.Event) bool { return e.Type == record.EventStepStarted && e.Step == id })
	if began >= 0 {
		events = events[:began]
	}
	return c.run.Initial.Queue(events).Heard
}

// hear takes the prompts that wait into the turn, or finds those of a turn that began before. It is called when the turn begins, with
// the lock of the run held, so that prompts can change until then.
func (t *turn) hear(s *step.Info) error {
	q := t.run.Initial.Queue(t.run.EventsLocked())
	if t.planning { // the next turn hears the same prompts
		t.all, t.now = q.Prompts[:t.fit(q)], q.Prompts[:t.fit(q)]
		s.Command = t.a.Name + ": plan " + t.about()
		return nil
	}
	upto := q.Heard
	if !slices.ContainsFunc(t.run.EventsLocked(), func(e record.Event) bool { return e.Type == record.EventStepStarted && e.Step == t.id }) {
		upto = t.fit(q)
	}
	if upto <= t.from {
		return errUnsaid
	}
	t.all, t.now = q.Prompts[:upto], q.Prompts[t.from:upto]
	s.Prompts, s.Command = upto, t.a.Name+": "+t.about()
	return nil
}

// fit returns how many of the prompts the agent has got after a turn that takes as many waiting prompts as fit. Prompts that are said
// at once are a turn of their own.
func (c *conversation) fit(q record.Queue) int {
	most, n, size := maxTurnText, q.Heard, 0
	if c.a.Argument {
		most = c.a.MaxPrompt()
	}
	for ; n < len(q.Prompts); n++ {
		p := q.Prompts[n]
		size += len(p.Text) + 2
		if n > q.Heard && (size > most || q.Prompts[n-1].Now && !p.Now) {
			break
		}
	}
	return n
}

// turn is one invocation of the agent.
type turn struct {
	*conversation
	id    string // of the step
	first bool   // of the run
	// planning turns make a plan. Their changes are thrown away.
	planning bool
	from     int             // prompts that the agent had got before
	all      []record.Prompt // all prompts so far, with this turn's
	now      []record.Prompt // the prompts that are new in this turn
}

// about returns the subject of the turn, which is its prompts or its given title.
func (t *turn) about() string {
	if title := text.FirstLine(t.run.Initial.Agent.Title); t.first && len(t.now) == 1 && title != "" {
		return title
	}
	return Join(t.now)
}

// text returns the prompt of the turn. The first turn after a conflict begins with a note about it.
func (t *turn) text() string {
	return t.withNote(Join(t.now))
}

func (t *turn) withNote(text string) string {
	switch {
	case t.planning:
		text = planPrompt(text)
	case t.first && t.planned != "":
		text += "\n\n" + t.planned
	}
	if note := t.d.conflictBefore(); t.first && note != "" {
		return note + "\n\n" + text
	}
	return text
}

// conflictBefore returns a note for the agent if the caller's run before this one ended in a conflict.
func (d *Dialogue) conflictBefore() string {
	for _, r := range slices.Backward(d.all.History.OfCaller(d.run.Initial.Caller)) {
		switch {
		case r.ID == d.run.Initial.ID || !r.CreatedAt.Before(d.run.Initial.CreatedAt):
			continue
		case r.Reason == record.ReasonConflict:
			return fmt.Sprintf("Note from ramus: %s. The work tree is at what was pushed. `git fetch origin` with the name of that ref brings your own version as FETCH_HEAD.", r.Error)
		}
		return ""
	}
	return ""
}

// do is the work of the turn's step.
func (t *turn) do(ctx context.Context, w *step.Work) (step.Outcome, error) {
	opened := t.openBrowser(ctx, w)
	defer t.closeBrowser()
	var command *containers.Command
	if !w.Again {
		var err error
		if command, err = t.prepare(ctx, w, opened); err != nil {
			if step.LostHost(w.Host) {
				err = fmt.Errorf("%w: %w", containers.ErrGone, err)
			}
			return step.Outcome{}, fmt.Errorf("cannot prepare %s: %w", w.Info.ID, err)
		}
	}
	// An agent that prints without end does not work any more. It is ended like one that hangs.
	tctx, end, done := t.open(ctx, w)
	defer done()
	left := new(atomic.Int64)
	left.Store(t.a.Output)
	exit, err := w.Attend(tctx, w.ID, command, &metered{w.Out.Stdout, left, end}, &metered{w.Out.Stderr, left, end})
	if err == nil {
		err = w.Out.Flush()
	}
	if err != nil {
		return step.Outcome{}, err
	}
	o := step.OutcomeOf(exit, w.Out)
	o.Subject = t.about()
	switch cause := context.Cause(tctx); {
	case errors.Is(cause, errInterrupted) && exit.Reason == containers.ReasonKilled:
		markStopped(&o)
	case errors.Is(cause, errBabble):
		o.Result.Error = fmt.Sprintf("the agent printed more than %d MiB and was ended", t.a.Output>>20)
	case exit.Reason == containers.ReasonTimeout:
		o.Result.Error = fmt.Sprintf("the agent took longer than %s and was ended", t.a.Timeout)
	}
	t.remember(ctx, w)
	return o, nil
}

// errBabble is the cause of the end of a turn that printed more than it may.
var errBabble = errors.New("too much output")

// metered ends a turn that prints too much.
type metered struct {
	to   io.Writer
	left *atomic.Int64
	end  context.CancelCauseFunc
}

func (m *metered) Write(p []byte) (int, error) {
	if m.left.Add(-int64(len(p))) < 0 {
		m.end(errBabble)
	}
	return m.to.Write(p)
}

// prepare gives the container the agent's files and memory, and returns the agent's command.
func (t *turn) prepare(ctx context.Context, w *step.Work, browser bool) (*containers.Command, error) {
	run := t.run
	files, err := w.Host.Files(ctx)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	restored, err := t.memory(w).Restore(ctx, w.Host.Container().ID, files)
	if err != nil {
		return nil, err
	}
	resume, err := t.resumes(ctx, restored)
	if err != nil {
		return nil, err
	}
	names, err := t.d.all.Attachments(run.Initial).Offer(ctx, files, t.all)
	if err != nil {
		return nil, fmt.Errorf("cannot give the agent its files: %w", err)
	}
	text := t.text()
	switch added := slices.Concat(names[len(t.all)-len(t.now):]...); {
	case len(added) > agent.MaxFiles:
		text += "\n\nFiles that were given along are in " + attachment.FolderOf(run.Initial)
	case len(added) > 0:
		text += "\n\nFiles that were given along:\n" + strings.Join(added, "\n")
	}
	return t.command(w.ID, text, resume, browser), nil
}

// resumes reports whether the agent continues its work of an earlier turn. restored reports whether its memory was found.
func (t *turn) resumes(ctx context.Context, restored bool) (bool, error) {
	switch {
	case len(t.a.Resume) == 0:
		return false, nil
	case restored || !t.first:
		return true, nil
	case len(t.a.State) > 0:
		return false, nil
	}
	return t.d.all.knows(ctx, t.run.Initial)
}

// command returns the agent's command with an id and a prompt.
func (t *turn) command(id, prompt string, resume, browser bool) *containers.Command {
	c := &containers.Command{ID: id, Args: t.a.Command, Timeout: t.a.Timeout, Env: t.env(browser)}
	if t.planning {
		c.Env = append(c.Env, planEnv)
	}
	if resume {
		c.Args = t.a.Resume
	}
	if t.a.Argument {
		if strings.HasPrefix(prompt, "-") {
			prompt = " " + prompt // words of a person, never an option
		}
		c.Args = append(slices.Clone(c.Args), prompt)
	} else {
		c.Stdin = strings.NewReader(prompt + "\n")
	}
	return c
}

func checkStep(name string, n int) string {
	if n == 1 {
		return "check-" + name
	}
	return "check-" + name + "#" + strconv.Itoa(n)
}

// checking reports whether checks of turn n began before the server was restarted.
func (c *conversation) checking(n int) bool {
	for _, u := range c.checkups {
		if c.run.Beginning(checkStep(u.name, n)).Last != nil {
			return true
		}
	}
	return false
}

// reasonSkipped is the reason of a check's step that found nothing to run.
const reasonSkipped = "skipped"

// check runs all checks after turn n, and returns the names of those that failed.
func (c *conversation) check(ctx context.Context, n int) (bad []string, err error) {
	run := c.run
	for _, u := range c.checkups {
		name := u.name
		info := step.Info{ID: checkStep(name, n), Kind: string(workflow.KindTask), Task: u.check}
		do, err := u.work(c.d, &info)
		if err != nil {
			return nil, err
		}
		var res workflow.StepResult
		if b := run.Beginning(info.ID); b.Done != nil {
			res, err = b.Result()
		} else {
			res, err = run.OnHost(ctx, run.Target, info, do)
		}
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		if err != nil {
			c.checks[name] = "not_run"
			return nil, errors.Join(err, run.Emit(record.Event{Type: record.EventCheck, Step: info.ID, Task: u.check,
				Reason: "not_run", Message: err.Error()}, true))
		}
		c.checks[name] = "passed"
		switch done := run.Beginning(info.ID).Done; {
		case done != nil && done.Reason == reasonSkipped:
			c.checks[name] = reasonSkipped
			if err := c.tellSkipped(info.ID, u.check, done.Message); err != nil {
				return nil, err
			}
		case !res.OK:
			c.checks[name] = "failed"
			bad = append(bad, name)
		}
	}
	return bad, nil
}

// skipping makes a check that found nothing to run one that did not fail.
func skipping(do func(context.Context, *step.Work) (step.Outcome, error)) func(context.Context, *step.Work) (step.Outcome, error) {
	return func(ctx context.Context, w *step.Work) (step.Outcome, error) {
		o, err := do(ctx, w)
		if err == nil && errors.Is(o.Fault, tasks.ErrNoWay) {
			o.Exit.Code, o.Exit.Reason = 0, reasonSkipped
			o.Result.OK = true
		}
		return o, err
	}
}

// tellSkipped journals once that a check was skipped.
func (c *conversation) tellSkipped(step, task, why string) error {
	for _, e := range c.run.Journalled() {
		if e.Type == record.EventCheck && e.Step == step {
			return nil
		}
	}
	return c.run.Emit(record.Event{Type: record.EventCheck, Step: step, Task: task, Reason: reasonSkipped, Message: why}, true)
}

// memory returns the memory of the turn's agent.
func (t *turn) memory(w *step.Work) *agent.Memory {
	run := t.run
	return &agent.Memory{
		Agent:   t.a,
		Repo:    w.Target.Repo,
		Caller:  w.Target.Caller,
		Dir:     filepath.Join(t.d.all.Folder.Output(run.Initial), "state"),
		Bot:     t.d.all.Bot,
		Now:     t.d.all.Now,
		Secrets: t.d.all.Secrets,
		Subject: fmt.Sprintf("Memory of %s after %s", t.a.Name, w.Info.ID),
		Trailers: fmt.Sprintf("%s: %s\n%s: %s\n%s: %s\n", record.TrailerCaller, w.Target.Caller, record.TrailerRun, run.Initial.ID,
			record.TrailerStep, w.Info.ID),
		Clean: w.CleanName,
		Note: func(text string) error {
			return run.Emit(record.Event{Type: record.EventNote, Step: w.Info.ID, Message: text}, false)
		},
		Removed: func(names []string) error {
			return run.Removed(w.Info.ID, record.SecretInState, names, "the agent's memory")
		},
	}
}

// remember commits the agent's memory. An error does not fail the turn, because the branch has its work.
func (t *turn) remember(ctx context.Context, w *step.Work) {
	if len(t.a.State) == 0 {
		return
	}
	// The turn has happened, so its memory is kept even if it was stopped.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), worktree.Housekeeping)
	defer cancel()
	if err := t.memory(w).Keep(ctx, w.Host); err != nil && !step.LostHost(w.Host) {
		message := fmt.Sprintf("the agent's memory could not be kept: %v", err)
		_ = t.run.Emit(record.Event{Type: record.EventNote, Step: w.Info.ID, Message: text.Clip(message, 4<<10)},
			false) // the step's end follows and meets the same error
	}
}
