package render

import (
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/slack"
)

// TaskReceived and the functions below return the texts of a task's thread in Slack, in mrkdwn. Texts from outside are
// escaped in them, so that they mention nobody. [TaskMessage] makes a message of a text, without escaping it again.

func TaskReceived(t record.Task) string {
	return "🔨 New task received: " +
		cutEscaped(escape(noFences(strings.TrimSpace(readable(head(t.Description, sectionMax))))), sectionMax-200)
}

func TaskWorking(doing string) string { return "⚙️ " + InlineText(doing, 200) }

func TaskRaised(t record.Task) string { return raisedHead + shownURL(t.PRURL) + " — awaiting review" }

// TaskTokenRefused returns the message to a person in whose name a pull request could not be opened.
func TaskTokenRefused(site string) string {
	return fmt.Sprintf("⚠️ %s refuses your own token for this repository, so ramus opens the pull request. `/ramus connect` stores another token.", site)
}

func TaskAddressing(excerpt string) string {
	return `💬 Addressing: "` + InlineText(excerpt, 140) + `"`
}

// TaskHeard returns what somebody, or a check if by is empty, says on the pull request of a branch without an agent.
func TaskHeard(by, excerpt string) string {
	if by == "" {
		return "💬 " + InlineText(excerpt, 300)
	}
	return "💬 " + InlineText(by, 80) + `: "` + InlineText(excerpt, 300) + `"`
}

func TaskPushed() string { return "✅ Changes pushed, re-review requested" }

func TaskMerged(t record.Task) string { return mergedHead + shownURL(t.PRURL) }

// The texts before the address of a pull request.
const (
	raisedHead = "🚀 PR raised: "
	mergedHead = "🎉 Merged: "
)

func TaskFailed(t record.Task) string {
	why := InlineText(t.Error, 400)
	if why == "" {
		why = "no reason is known"
	}
	return "❌ Task failed: " + why
}

// AgentSays makes a message of a text of an agent. It mentions nobody. by names the agent's run if the message is not in
// the run's own thread.
func AgentSays(by, said string) slack.Message {
	text := "🗨️ " + InlineText(said, 1000)
	if by != "" {
		text += " — " + InlineText(by, 200)
	}
	return TaskMessage(text)
}

// TaskAsks returns the question of an agent that waits for permission.
func TaskAsks(question string) string {
	shown := InlineText(question, questionMax)
	if shown != InlineText(question, len(question)*8) {
		shown += "\n" + partShown
	}
	return "❓ The agent asks: " + shown
}

// AnswerButtons returns the buttons that answer the question of a run.
func AnswerButtons(run string, g record.Gate) []slack.Block {
	var l layout
	l.actions(answers(run, g)...)
	return l.blocks
}

// shownURL returns an address as it is. [TaskMessage] turns it into a link.
func shownURL(address string) string {
	if to, ok := linkable(address, notifiableMax/2); ok {
		return to
	}
	return InlineText(address, 200)
}

// TaskMessage makes a message of one of the texts. The address of a pull request becomes a link in it. Addresses in
// texts from outside do not.
func TaskMessage(text string) slack.Message {
	shown := text
	for _, head := range []string{raisedHead, mergedHead} {
		if rest, ok := strings.CutPrefix(text, head); ok && strings.HasPrefix(rest, "http") {
			address, more, _ := strings.Cut(rest, " ")
			shown = strings.TrimSuffix(head+"<"+address+"> "+more, " ")
		}
	}
	var l layout
	l.section(shown)
	first, _, _ := strings.Cut(text, "\n")
	return slack.Message{Text: cutEscaped(first, notifiableMax), Blocks: l.blocks}
}
