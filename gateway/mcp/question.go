package mcp

import (
	"context"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/catalog"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// toolAnswer is the name of the tool that answers the question of a run.
const toolAnswer = "answer_question"

// question is an open question of a run, for a model.
type question struct {
	Step string `json:"step"`
	// Options are the answers that an agent offers. A question without any is approved or rejected.
	Options []option `json:"options,omitempty"`
	Allowed []string `json:"allowed,omitempty"` // who may answer, if not everybody may
}

type option struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Allows bool   `json:"allows"`
}

func questionOf(g *record.Gate) *question {
	q := &question{Step: g.Step, Allowed: g.Allowed}
	for _, o := range g.Options {
		q.Options = append(q.Options, option{o.ID, text.Clip(o.Name, maxListed), o.Allows})
	}
	return q
}

// answer has the arguments of answer_question.
type answer struct {
	Run     string `json:"run"`
	Step    string `json:"step"`
	Option  string `json:"option"`
	Approve *bool  `json:"approve"`
	Comment string `json:"comment"`
}

// decision returns the decision of an answer.
func (a answer) decision(who route.Who) (record.Decision, error) {
	d := record.Decision{Step: a.Step, Option: a.Option, Comment: a.Comment, By: who.Subject,
		Name: who.Person(gitd.Person{}).Name}
	switch {
	case a.Option == "" && a.Approve == nil:
		return d, route.NewProblem(route.KindInvalid, "there is no answer").
			WithHint(`send "option" with an id that get_run lists, or "approve"`)
	case a.Option != "" && a.Approve != nil:
		return d, route.NewProblem(route.KindInvalid, `"option" and "approve" are two answers`).
			WithHint(`leave "approve" out: the option decides`)
	case a.Approve != nil:
		d.Approved = *a.Approve
	}
	return d, nil
}

// answerTool returns the tool that answers the question of a run. Agents at the door of a container do not have it, so that none answers
// its own question.
func (api *API) answerTool(who route.Who) usableTool {
	return usableTool{
		Tool: catalog.Tool{
			Name:        toolAnswer,
			Description: `Answer the question that a run waits for: an agent's request for permission, with one of the options that get_run lists, or the question of a workflow, with approve. Answer only as the person you work for has decided. A question is answered once.`,
			Schema: catalog.Object(`"run":{"type":"string","description":"The run's name, as a tool returned it.","minLength":1,"maxLength":300},`+
				`"step":{"type":"string","description":"The step of the question, as get_run showed it. With it, no later question is answered by mistake.","minLength":1,"maxLength":300},`+
				`"option":{"type":"string","description":"The id of one of the options.","maxLength":200},`+
				`"approve":{"type":"boolean","description":"Approve or reject, if the question has no options."},`+
				`"comment":{"type":"string","description":"For the record.","maxLength":4000}`, "run", "step"),
		},
		Output: schemaFor[runReport](), Access: route.AccessWrite, Hints: toolHints{Open: true},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			var a answer
			if err := c.read(&a); err != nil {
				return toolResult{}, err
			}
			run, err := api.Find.Run(ctx, who, a.Run)
			if err == nil {
				err = who.CheckChange(run.Repo, run.Branch)
			}
			if err != nil {
				return toolResult{}, err
			}
			d, err := a.decision(who)
			if err != nil {
				return toolResult{}, err
			}
			if run, err = api.Executor.Decide(ctx, run.Name(), d); err != nil {
				return toolResult{}, err
			}
			result, err := api.report(ctx, run)
			result.failed = false
			return result, err
		},
	}
}
