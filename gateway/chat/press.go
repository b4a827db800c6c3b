package chat

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/catalog"
	"github.com/ramus-dev/ramus/gateway/gate"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/slack"
)

// press handles a press of a button. A button that starts work is claimed like a mention, so a second press or a retry
// finds the run of the first press.
func (c *Chat) press(ctx context.Context, a slack.Action) error {
	name, choice, _ := strings.Cut(a.Value, " ")
	caller, id, _ := strings.Cut(name, "/")
	who, err := record.ParseCaller(caller)
	if err != nil {
		return nil // a button in a message of another app
	}
	run, known := c.Executor.Find(who, id)
	if !known || run.Origin == nil && a.ID != render.ActionStop && !render.IsAnswer(a.ID) {
		return nil // the other buttons in the thread of a task start nothing
	}
	d, known := c.readDecision(ctx, run.Name())
	if !known {
		c.whisper(a, "I cannot tell who may do that: the run's record cannot be read at the moment.")
		return nil
	}
	if why := c.mayPress(ctx, d, run, a, choice); why != "" {
		c.whisper(a, why)
		return nil
	}
	switch {
	case a.ID == render.ActionRetry:
		return c.claimPress(ctx, run, a, "retry", "-retry")
	case a.ID == render.ActionDiff:
		return c.claimPress(ctx, run, a, "diff", "-diff-"+route.Mailbox(a.TriggerID))
	case a.ID == render.ActionPull:
		return c.claimPress(ctx, run, a, "pr", "-pr-"+route.Mailbox(a.TriggerID))
	case a.ID == render.ActionRepo:
		// The option comes before the command. After the command it would be a part of exec's line.
		return c.claimPress(ctx, run, a, "repo:"+choice+" "+d.Prompt, "-repo")
	case a.ID == render.ActionStop, render.IsAnswer(a.ID):
		c.background(func(ctx context.Context) {
			if err := c.runControl(ctx, run, a, choice); err != nil && ctx.Err() == nil {
				c.whisper(a, route.AsProblem(err, route.Who{}).Error())
			}
		})
	}
	return nil
}

// mayPress returns the reason why a user may not press a button. Returns "" if the user may. If only the explicit
// prefix of a requester opened the thread, only allowed requesters may press. In other threads a user may press a
// button if the user may write the same command. A question may also be answered by the users that it names.
func (c *Chat) mayPress(ctx context.Context, p catalog.Decision, run record.Run, a slack.Action, choice string) string {
	switch {
	case !c.gate().Enabled && a.ID != render.ActionStop:
		return "ramus is switched off here at the moment."
	case p.Reason == gate.ReasonGrant &&
		c.gate().Resolve(gate.Asked{ThreadStarter: a.User, Channel: a.Channel}).Runner != gate.RunnerContainer:
		// ramus began the thread of the task, so the gate must let the user through.
		return "Only those for whom ramus works can do that."
	case p.Reason == gate.ReasonExplicitPrefix && !slices.Contains(c.gate().Requesters, a.User):
		return "Only those who may start runs in this thread can do that."
	}
	d := gate.Doing{Deed: gate.DeedRun, Person: a.User, Starter: c.starterOf(p, a.User, a.Channel),
		Repo: run.Repo, Own: true}
	switch {
	case a.ID == render.ActionDiff:
		return ""
	case render.IsAnswer(a.ID):
		if d.Deed = gate.DeedApprove; len(c.gate().People) == 0 && run.Gate != nil && run.Gate.Names("slack:"+a.User) {
			return ""
		}
	case a.ID == render.ActionRepo:
		d.Repo = choice
		d.Own = run.Origin != nil && c.findPlace(ctx, Session{run.Origin.Session}, a.Channel, Words{},
			Preferences{}).unnamed == choice
	}
	return c.refusal(d)
}

// runControl stops a run or answers its gate. Decide checks the id of the user, because users can choose their names.
func (c *Chat) runControl(ctx context.Context, run record.Run, a slack.Action, step string) error {
	if a.ID == render.ActionStop {
		return c.Executor.Stop(ctx, run.Name(), asker(a.User, c.knownName(a.User))) // waits for nothing
	}
	d := record.Decision{Step: step, Approved: a.ID == render.ActionApprove, By: "slack:" + a.User}
	var asking sync.WaitGroup
	asking.Go(func() { d.Name = c.nameOf(ctx, a.User) }) // meanwhile the question is read
	var err error
	if render.IsOption(a.ID) {
		d.Step, d.Option, err = c.findOption(ctx, run.Name(), step)
	}
	asking.Wait()
	if err != nil {
		return err
	}
	_, err = c.Executor.Decide(ctx, run.Name(), d)
	return err
}

// nameWithin bounds the time by which the question for a name delays an answer. The answer of another person may come
// first meanwhile.
const nameWithin = time.Second

// knownName returns the name of a user for pages, or "" if it is not known. It does not ask Slack.
func (c *Chat) knownName(user string) string {
	return cmp.Or(c.People[user].Name, c.Slack.KnownName(user))
}

// nameOf returns the name of a user for pages, or "" if it is not known soon.
func (c *Chat) nameOf(ctx context.Context, user string) string {
	if known := c.knownName(user); known != "" {
		return known
	}
	ctx, cancel := context.WithTimeout(ctx, nameWithin)
	defer cancel()
	name, err := c.Slack.Name(ctx, user)
	if err != nil {
		return "" // the id is kept in any case
	}
	return name
}

// findOption returns the step of a question and the id of the option that a button chooses, from the value of the button after the run.
// The journal has the question also after its answer. Then Decide returns its person.
func (c *Chat) findOption(ctx context.Context, run, choice string) (step, option string, err error) {
	step, index, ok := render.ParseOption(choice)
	if !ok {
		return "", "", fmt.Errorf("%w button: it names no option", record.ErrInvalid)
	}
	for e, err := range c.Executor.Events(ctx, run, 0, false) {
		if err != nil {
			return "", "", err
		}
		var g record.Gate
		if e.Type != record.EventGate || e.Step != step || json.Unmarshal(e.Data, &g) != nil {
			continue
		}
		if option = ""; index < len(g.Options) {
			option = g.Options[index].ID
		}
	}
	if option != "" {
		return step, option, nil
	}
	return "", "", fmt.Errorf("%w button: the agent did not offer that", record.ErrInvalid)
}

// pressed is the event of a run that no message asked for. For a button it has the text of the button and the run
// whose message has the button. For a hand-over by an agent it has the prompt.
type pressed struct {
	slack.Mention
	On       string `json:"on,omitempty"`
	HandOver string `json:"hand_over,omitempty"`
}

// claimPress claims a run in the thread of another run, as if the user had written text there.
func (c *Chat) claimPress(ctx context.Context, of record.Run, a slack.Action, text, suffix string) error {
	m, err := readEvent(of)
	if err != nil {
		return err
	}
	m.User, m.Text = a.User, text
	_, err = c.claimRun(ctx, Session{of.Origin.Session}, lookup.DerivedRunID(of.ID, suffix), of.Origin.Key+suffix, m,
		text, pressed{Mention: m, On: of.Name()})
	if err != nil {
		return fmt.Errorf("cannot claim what a button asks for: %w", err)
	}
	return nil
}

// MayHandOver reports whether the thread of a run can be handed over to the fallback runner.
func (c *Chat) MayHandOver(run record.Run) bool {
	return c.Fallback != nil && run.Origin != nil && run.Origin.Source == slackSource
}

// HandOver hands the thread of a run over to the fallback runner, with prompt as the request. It returns when the
// hand-over is durable, before the runner has answered. A second hand-over of the thread of the same run returns the
// first one. The error wraps [record.ErrInvalid] if the run has no thread or no fallback runner is configured.
// HandOver may be called before Open.
func (c *Chat) HandOver(ctx context.Context, of record.Run, prompt string) (record.Run, error) {
	if !c.MayHandOver(of) {
		return record.Run{}, fmt.Errorf("%w hand-over of %s: there is no thread of it, or no fallback runner",
			record.ErrInvalid, of.Name())
	}
	m, err := readEvent(of)
	if err != nil {
		return record.Run{}, err
	}
	const suffix = "-fallback"
	run, err := c.claimRun(ctx, Session{of.Origin.Session}, lookup.DerivedRunID(of.ID, suffix), of.Origin.Key+suffix, m,
		m.Said(), pressed{Mention: m, HandOver: prompt})
	if err != nil {
		return record.Run{}, fmt.Errorf("cannot hand the thread of %s over: %w", of.Name(), err)
	}
	return run, nil
}

// whisper posts a message that only one user can see.
func (c *Chat) whisper(a slack.Action, text string) {
	c.background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, soon)
		defer cancel()
		if err := c.Slack.Ephemeral(ctx, a.Channel, a.ThreadTS, a.User, text); err != nil {
			c.Log.Warn("cannot answer a button", "err", err)
		}
	})
}

// commandMay limits the time of a slash command. Slack waits three seconds.
const commandMay = 2500 * time.Millisecond

// ephemeral is the answer to a slash command. Only the user of the command can see it.
type ephemeral struct {
	Type string `json:"response_type"`
	Text string `json:"text"`
}

// runCommand serves "/ramus …". A slash command has no message that could be claimed. Therefore ramus begins a thread,
// and the first message of the thread is the key of the claim.
func (c *Chat) runCommand(ctx context.Context, d slack.Command, retry bool) (any, error) {
	answer := func(text string) (any, error) { return ephemeral{"ephemeral", text}, nil }
	words, err := ParseWords(d.Text)
	switch {
	case strings.TrimSpace(d.Text) == "", words.Verb == "help":
		return answer(HelpText(c.Executor.AgentNames(), gate.RunnerContainer))
	case err != nil:
		return answer(err.Error())
	case words.Verb == "status":
		return answer(c.overview())
	case words.Verb == "connect", words.Verb == "disconnect":
		return answer(c.connect(d, words))
	case slices.Contains([]string{"diff", "log", "why", "merge", "pr", "stop", "retry"}, words.Verb):
		return answer(fmt.Sprintf("Mention ramus with %q in the thread that it is about.", words.Verb))
	}
	ctx, cancel := context.WithTimeout(ctx, commandMay)
	defer cancel()
	parent := render.Text(fmt.Sprintf("%s %s", d.Name, d.Text), "")
	// The trigger distinguishes this command from an earlier one of the same person. Without it, the thread of the
	// earlier command would be found if an answer of Slack was lost.
	parent.Channel, parent.Mark = d.Channel, slack.Mark{Run: "slash " + d.TriggerID, Key: d.User, Part: slashPart}
	ts, err := c.Slack.Post(ctx, parent, retry)
	if err != nil {
		if errors.Is(err, slack.ErrRefused) {
			return answer("I cannot post in this channel: invite me to it first, with /invite.")
		}
		return answer("Slack does not take messages at the moment; try again in a minute.")
	}
	me, err := c.Slack.Me(ctx)
	if err != nil {
		return answer("Slack does not answer at the moment; try again in a minute.")
	}
	_, err = c.receiveMention(ctx, slack.Mention{Team: d.Team, Channel: d.Channel, TS: ts, ThreadTS: ts, User: d.User,
		Bot: me.User, Text: d.Text,
		Slash: true, Time: c.Now().UTC()})
	return nil, err
}

// overview returns the number of threads in which ramus is at work, as a sentence.
func (c *Chat) overview() string {
	c.mu.Lock()
	threads := len(c.sessions)
	c.mu.Unlock()
	if threads == 0 {
		return "Nothing is at work. Mention ramus with `status` in a thread to hear about that one."
	}
	return fmt.Sprintf("ramus is at work in %s. Mention it with `status` in a thread to hear about that one.",
		render.Plural(threads, "thread"))
}
