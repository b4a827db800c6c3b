// Package catalog lists the tools that a policy leaves to a model or an agent.
//
// # Nouns
//
// A [Tool] is one ability, with its name, its description and the schema of its arguments. A [List] of tools follows
// from the policy of a run and from the [Offer] of the server. A [Decision] is a policy with the names of these tools.
// The journal of a run holds its decision.
//
// # Invariants
//
// The same list is journalled with the decision and served at the container's door. A tool that is not in it does not
// exist for the agent. No tool takes a thread as an argument, so a caller can reach only its own thread. The channels in
// which an agent may post are the ones of the configuration.
package catalog

import (
	"encoding/json"
	"slices"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gateway/gate"
)

// Tool is an ability that a model or an agent may use.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"input_schema"`
}

// The names of the session tools and of the tools that need a browser.
const (
	ToolStart      = "start_code_session"
	ToolResume     = "resume_code_session"
	ToolFallback   = "fallback_session"
	ToolBrowser    = "browser_test"
	ToolScreenshot = "capture_screenshot"
)

// The tools of a session.
var (
	StartSession = Tool{ToolStart,
		`Asks for a run on this thread's own branch that begins when yours has ended: a coding agent, another one perhaps, is given the prompt, what it changes is committed after every step, and the project's checks are run at its end. You can ask for one such run; asking again with other words changes nothing.`,
		Object(`"prompt":`+PromptProperty("What is to be done, complete in itself.")+`,"agent":`+AgentProperty, "prompt")}
	ResumeSession = Tool{ToolResume,
		`Says something to your own run: you get the prompt at your next turn, when this one has ended. What was said once is not said again.`,
		Object(`"prompt":`+PromptProperty("What to say to the agent."), "prompt")}
	FallbackSession = Tool{ToolFallback,
		`Hands the request over to the fallback runner, with the whole thread. It works on its own and answers in the thread itself. It is for work that needs a Mac, a desktop or Docker inside, or a session longer than a run in a container may last.`,
		Object(`"prompt":`+PromptProperty("What is to be done, complete in itself."), "prompt")}
)

// BrowserTools are the tools that need a browser.
var BrowserTools = []string{ToolBrowser, ToolScreenshot}

// Offer describes the features that a server has for one run. It narrows the tools of the run's policy. The zero value
// has no features.
type Offer struct {
	Browser  bool // a browser is configured
	Fallback bool // a fallback runner is configured, and the run answers a mention in a thread
	Task     bool // the run works for a task, which begins its own runs
	Thread   bool // the run answers a mention in a thread
	Comments bool // people comment on lines of the branch
	Review   bool // the run reviews a pull request, and reports what it finds
	// Channels are the ids of the channels of Slack in which agents may post.
	Channels []string
}

// List returns the tools of a policy that the server has for the run. A policy without a known runner has only the
// tool of the fallback.
func List(p gate.Policy, o Offer) []Tool {
	var list []Tool
	if p.Runner == gate.RunnerContainer {
		if !o.Task {
			list = append(list, StartSession)
		}
		list = append(append(list, ResumeSession), o.WithoutPolicy()...)
	}
	if o.Fallback && !o.Task {
		over := FallbackSession
		if p.Runner == gate.RunnerContainer {
			over.Description += ` Your own run goes on. You can hand over once; asking again with other words changes nothing.`
		}
		list = append(list, over)
	}
	return list
}

// WithoutPolicy returns the tools that need no policy. These are the tools of the run's task, those that post in Slack,
// those for comments on lines, and those of the library.
func (o Offer) WithoutPolicy() (list []Tool) {
	switch {
	case o.Task:
		list = append(list, TaskTools...)
	case o.Thread:
		list = append(list, ReplyToThread)
	}
	if len(o.Channels) > 0 {
		list = append(list, PostMessage(o.Channels))
	}
	for _, t := range executor.Library() {
		if o.Browser || !slices.Contains(BrowserTools, t.Name) {
			list = append(list, Tool{t.Name, t.Doc, t.Schema})
		}
	}
	switch {
	case o.Review:
		list = append(list, ReportFinding)
	case o.Comments:
		list = append(list, ListComments, AnswerComment, ResolveComment)
	}
	return list
}

// Names returns the names of tools in the same order.
func Names(list []Tool) (names []string) {
	for _, t := range list {
		names = append(names, t.Name)
	}
	return names
}
