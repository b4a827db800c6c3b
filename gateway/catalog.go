package gateway

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor"
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

// Catalog is the tools of a policy: the fallback alone, or all. It is built before any model
// or agent sees anything: what is not in it does not exist for them. A policy
// that names no known runner gets the fallback alone. No tool takes the thread as
// a parameter: whoever calls one can reach the thread it was called in and no other.
func Catalog(p Policy) []Tool {
	fallback := Tool{ToolFallback, `Hands the request over to the fallback runner, with the whole thread. It works on its own and answers in the thread itself. It is for work that needs a Mac, a desktop or Docker inside, or a session longer than a run in a container may last.`,
		strictObject(`"prompt":`+promptSchema("What is to be done, complete in itself."), "prompt")}
	if p.Runner != RunnerContainer {
		return []Tool{fallback}
	}
	return []Tool{
		{ToolStart, `Starts a run in a disposable container, on the thread's own branch of a repository: a coding agent is given the prompt, what it changes is committed after every step, and the project's checks are run at its end. The thread gets the changed files and the evidence. A thread that has a branch goes on with it.`,
			strictObject(`"prompt":`+promptSchema("What is to be done, complete in itself: the agent sees the thread, but not this conversation.")+`,`+
				`"repo":{"type":"string","description":"The repository to work in. Leave it out to take the thread's, the channel's or the default one.","minLength":1,"maxLength":100},`+
				`"base":{"type":"string","description":"The branch that a new thread branch is cut from. Leave it out to take the repository's own base.","minLength":1,"maxLength":200},`+
				`"agent":{"type":"string","description":"The coding agent, by its name in the configuration. Leave it out to take the default.","minLength":1,"maxLength":64}`, "prompt")},
		{ToolResume, `Says something more to the thread's run: the agent that is at work gets the prompt at its next turn; when none is at work, a new run goes on with the thread's branch and the agent's own memory.`,
			strictObject(`"prompt":`+promptSchema("What to say to the agent."), "prompt")},
		libraryEntry(ToolBrowser), libraryEntry(ToolScreenshot),
		fallback,
	}
}

// libraryEntry is a task of the library as a tool: it looks at what stands on the thread's branch.
func libraryEntry(name string) Tool {
	list := executor.Library()
	t := list[slices.IndexFunc(list, func(t executor.TaskInfo) bool { return t.Name == name })] // a test sees that it is there
	return Tool{t.Name, t.Doc, t.Schema}
}

// browserTools are the tools that need a browser, and a policy that gives one.
var browserTools = []string{ToolBrowser, ToolScreenshot}

func promptSchema(description string) string {
	return `{"type":"string","description":"` + description + `","minLength":1,"maxLength":20000}`
}

// strictObject is the strict schema of an object: what is not named in it is refused.
func strictObject(properties string, required ...string) json.RawMessage {
	return json.RawMessage(`{"type":"object","properties":{` + properties + `},"required":["` + strings.Join(required, `","`) + `"],"additionalProperties":false}`)
}
