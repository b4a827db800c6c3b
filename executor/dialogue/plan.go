package dialogue

import (
	"context"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/internal/text"
)

const (
	// planStep is the step of a turn that makes a plan.
	planStep = "plan"
	// planEnv tells an agent that its turn makes a plan.
	planEnv = "RAMUS_PLAN=1"
	// maxPlanShown is the length of a plan in a question, and maxPlanGiven that in the prompt of the next turn, in bytes.
	maxPlanShown = 2 << 10
	maxPlanGiven = 32 << 10
)

// planWords begin the prompt of a turn that makes a plan.
const planWords = `Make a plan for the following request, and do nothing else yet. You may read and run what you need to
understand it. Files that you change now are thrown away. End with the plan: what you are going to change and why, in
steps, and how you will check it. A person reads the plan and decides whether you begin.`

// plan has the agent make a plan, and waits until a person has approved it. Nothing of that turn reaches the branch: its
// container may not push, and is removed before the person is asked. failed is the reason if there is no plan that a
// person approved. The next turn gets the plan and the person's remarks.
func (c *conversation) plan(ctx context.Context) (failed, err error) {
	run := c.run
	begun := run.Beginning("turn-1").Last != nil
	if !begun {
		if len(c.d.all.Shells.Open(run.Initial.Caller)) > 0 {
			return step.Fail(record.ReasonBadInput,
				"a terminal of the caller is open, so the changes of a plan could not be thrown away; close it first"), nil
		}
		run.Target.SetReadOnly(true)
		defer run.Target.SetReadOnly(false)
	}
	t := &turn{conversation: c, id: planStep, first: true, planning: true}
	info := step.Info{ID: planStep, Kind: string(record.KindAgent), Discard: true, Hear: t.hear}
	if failed, err = c.takeTurn(ctx, t, info); failed != nil || err != nil {
		return failed, err
	}
	res, err := run.Beginning(planStep).Result()
	if err != nil {
		return nil, err
	}
	words, _ := res.Output["stdout"].(string)
	if words = strings.TrimSpace(words); words == "" {
		return step.Fail(record.ReasonCommandFailed, "the agent ended its turn without a plan"), nil
	}
	if !begun {
		c.endProcess()
		if err := c.d.all.Fleet.Remove(context.WithoutCancel(ctx), run.Initial.Caller.String()); err != nil {
			return nil, err
		}
		run.Target.Forget()
	}
	shown := words
	if len(shown) > maxPlanShown {
		shown = text.Clip(shown, maxPlanShown) + "\n(This is the beginning of the plan. The output of the step plan has all of it.)"
	}
	d, err := c.d.Ask(ctx, record.Gate{Step: planStep, Message: "May the agent begin? It plans:\n" + shown}, acp.Question{}, true)
	switch {
	case err != nil:
		return nil, err
	case !d.Approved:
		why := strings.TrimSuffix(fmt.Sprintf("%s did not approve the plan: %s", d.By, d.Comment), ": ")
		return step.Fail(record.ReasonCancelled, why), nil
	}
	c.planned = "You made this plan, and it was approved. Work by it.\n\n" + text.Clip(words, maxPlanGiven)
	if d.Comment != "" {
		c.planned += "\n\nRemarks of the person who approved it: " + d.Comment
	}
	return nil, nil
}

// planPrompt returns the prompt of a turn that makes a plan.
func planPrompt(text string) string { return planWords + "\n\n" + text }
