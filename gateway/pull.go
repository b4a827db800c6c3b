package gateway

import (
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gateway/github"
)

// DefaultPrompt is the template (text/template over [PromptData]) of what an agent is
// told first: how an engineer works here, and the task.
const DefaultPrompt = ""

// PromptData is what a prompt's template may use.
type PromptData struct {
	Task Task
	// Conventions are the files of the base that say how to work in the repository
	// ("AGENTS.md", "CLAUDE.md"), to be read first.
	Conventions []string
}

// Feedback is what people, or checks, ask for on a pull request, to be worked on together.

type Feedback struct {
	Comments []github.Comment `json:"comments,omitempty"`
	Reviews  []github.Review  `json:"reviews,omitempty"`
	Checks   []github.Check   `json:"checks,omitempty"`
	Words    []Word           `json:"words,omitempty"`
	// Commits of people that are on the branch since.
	Commits []string `json:"commits,omitempty"`
}

// Word is something that was said to a task elsewhere.
type Word struct {
	Key, By, Text string
}

// RenderPrompt is an agent's first prompt.
func RenderPrompt(template string, d PromptData) (string, error) { panic("not built") }

// RenderFeedback is the prompt for addressing what was said: each comment with file, line
// and diff hunk, fenced, so that the agent can tell words of people from ramus's own.
func RenderFeedback(t Task, f Feedback) string { panic("not built") }

// RenderPull is title and body of a pull request, from the manifests of the task's work, oldest
// first: what was asked, what changed, commands and test results, screenshots,
// links to evidence, what is unverified. link makes a link to a run's page; nil: there are none.
// Nothing of it is an agent's claim.
func RenderPull(t Task, work []executor.Manifest, link func(run string) string) (title, body string) {
	panic("not built")
}

// RenderReply answers one comment, or in the conversation when c is zero, from the manifest of the
// work that addressed it: the commit, what changed, how the checks ended.
func RenderReply(t Task, c github.Comment, work executor.Manifest, link func(run string) string) string {
	panic("not built")
}

// The texts of a task's thread in Slack.
func taskReceived(t Task) string           { panic("not built") } // 🔨 New task received: {description}
func taskWorking(doing string) string      { panic("not built") } // ⚙️ {doing}
func taskRaised(t Task) string             { panic("not built") } // 🚀 PR raised: {pr_url} — awaiting review
func taskAddressing(excerpt string) string { panic("not built") } // 💬 Addressing: "{comment_excerpt}"
func taskPushed() string                   { panic("not built") } // ✅ Changes pushed, re-review requested
func taskMerged(t Task) string             { panic("not built") } // 🎉 Merged: {pr_url}
func taskFailed(t Task) string             { panic("not built") } // ❌ Task failed: {error}
