package executor

import (
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/dialogue"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
)

// Bounds of a request for an agent.
const (
	maxTitle  = 500 // bytes
	maxLabel  = 200 // bytes
	maxChecks = 20
)

// newDialogues returns the dialogues of all runs.
func (x *Executor) newDialogues() *dialogue.Dialogues {
	_, served := x.Door["/mcp"]
	return &dialogue.Dialogues{
		Context: x.life.ctx,
		Agents:  func() map[string]agent.Agent { return x.options().Agents },
		Bounds: func() dialogue.Bounds {
			o := x.options()
			return dialogue.Bounds{Timeout: o.Timeout, RunTimeout: o.RunTimeout, Output: o.Limits.WithDefaults().Output}
		},
		Fleet:       x.Fleet,
		Shells:      &x.Shells,
		Inspector:   x.viewer.Inspector,
		Folder:      x.Folder,
		Attachments: x.Attachments,
		History:     &x.Reader,
		MCP:         served,
		Bot:         x.Bot,
		Secrets:     x.Secrets,
		Waits:       x.tuning.waits,
		Now:         x.Now,
	}
}

// Image returns the image that the run's container must be made of, or "" for any.
func (l *liveRun) Image() string {
	if l.Initial.Agent == nil {
		return ""
	}
	return l.x.options().Agents[l.Initial.Agent.Name].Image
}

// Speaks reports whether a step is a turn with an agent of agent.ProtocolACP.
func (l *liveRun) Speaks(s step.Info) bool {
	return s.Kind == string(record.KindAgent) && l.Initial.Agent != nil &&
		l.x.options().Agents[l.Initial.Agent.Name].Protocol == agent.ProtocolACP
}
