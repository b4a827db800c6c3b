package gateway

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/gate"
)

// Tool is one thing that a model or an agent may ask for.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"input_schema"`
}

// The tools.
const (
	ToolStart      = "start_code_session"
	ToolResume     = "resume_code_session"
	ToolBrowser    = "browser_test"
	ToolScreenshot = "capture_screenshot"
	ToolFallback   = "fallback_session"
)

// Offer is what a server has for one run. It narrows the tools of the run's policy. The zero value
// has none of it.
type Offer struct {
	Browser  bool // pages can be looked at
	Fallback bool // a fallback runner is configured, and the run answers a mention in a thread
	Task     bool // the run works for a task, which begins its own runs
}

// Catalog is the tools of a policy with what the server has for the run. The same list is journalled
// with the decision and served at the container's door: a tool that is not in it does not exist for the
// agent. A policy that names no known runner has the tool of the fallback alone. No tool takes the
// thread as a parameter: a caller reaches its own thread and no other.
func Catalog(p gate.Policy, o Offer) []Tool {
	var list []Tool
	if p.Runner == gate.RunnerContainer {
		if !o.Task {
			list = append(list, startEntry)
		}
		list = append(append(list, resumeEntry), o.always()...)
	}
	if o.Fallback && !o.Task {
		over := fallbackEntry
		if p.Runner == gate.RunnerContainer {
			over.Description += ` Your own run goes on. You can hand over once; asking again with other words changes nothing.`
		}
		list = append(list, over)
	}
	return list
}

// always are the tools that need no policy: those of the run's task, and the library.
func (o Offer) always() (list []Tool) {
	if o.Task {
		for _, t := range new(mcpDoor).taskTools(record.Task{}) {
			list = append(list, t.Tool)
		}
	}
	for _, t := range executor.Library() {
		if o.Browser || !slices.Contains(browserTools, t.Name) {
			list = append(list, Tool{t.Name, t.Doc, t.Schema})
		}
	}
	return list
}

// toolNames are the names of tools, in their order.
func toolNames(list []Tool) (names []string) {
	for _, t := range list {
		names = append(names, t.Name)
	}
	return names
}

// The tools of a session.
var (
	startEntry = Tool{ToolStart, `Asks for a run on this thread's own branch that begins when yours has ended: a coding agent, another one perhaps, is given the prompt, what it changes is committed after every step, and the project's checks are run at its end. You can ask for one such run; asking again with other words changes nothing.`,
		strictObject(`"prompt":`+promptSchema("What is to be done, complete in itself.")+`,"agent":`+agentProperty, "prompt")}
	resumeEntry = Tool{ToolResume, `Says something to your own run: you get the prompt at your next turn, when this one has ended. What was said once is not said again.`,
		strictObject(`"prompt":`+promptSchema("What to say to the agent."), "prompt")}
	fallbackEntry = Tool{ToolFallback, `Hands the request over to the fallback runner, with the whole thread. It works on its own and answers in the thread itself. It is for work that needs a Mac, a desktop or Docker inside, or a session longer than a run in a container may last.`,
		strictObject(`"prompt":`+promptSchema("What is to be done, complete in itself."), "prompt")}
)

// browserTools are the tools that need a browser, and a policy that gives one.
var browserTools = []string{ToolBrowser, ToolScreenshot}

func promptSchema(description string) string {
	return `{"type":"string","description":"` + description + `","minLength":1,"maxLength":20000}`
}

// strictObject is the strict schema of an object: what is not named in it is refused.
func strictObject(properties string, required ...string) json.RawMessage {
	return json.RawMessage(`{"type":"object","properties":{` + properties + `},"required":["` + strings.Join(required, `","`) + `"],"additionalProperties":false}`)
}
