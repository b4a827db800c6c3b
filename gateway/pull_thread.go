package gateway

import (
	"strings"

	"github.com/ramus-dev/ramus/gateway/slack"
)

// The texts of a task's thread in Slack, in mrkdwn: what strangers wrote in them is
// escaped, so that it mentions nobody. [taskMessage] makes a message of one; RenderText,
// which escapes, must not.

func taskReceived(t Task) string {
	return "🔨 New task received: " + cutEscaped(escape(noFences(strings.TrimSpace(readable(head(t.Description, sectionMax))))), sectionMax-200)
}

func taskWorking(doing string) string { return "⚙️ " + said(doing, 200) }

func taskRaised(t Task) string { return raisedHead + shownURL(t.PRURL) + " — awaiting review" }

func taskAddressing(excerpt string) string { return `💬 Addressing: "` + said(excerpt, 140) + `"` }

func taskPushed() string { return "✅ Changes pushed, re-review requested" }

func taskMerged(t Task) string { return mergedHead + shownURL(t.PRURL) }

// What stands before the address of a pull request.
const (
	raisedHead = "🚀 PR raised: "
	mergedHead = "🎉 Merged: "
)

func taskFailed(t Task) string {
	why := said(t.Error, 400)
	if why == "" {
		why = "no reason is known"
	}
	return "❌ Task failed: " + why
}

// taskAsks is a question of an agent that waits for leave.
func taskAsks(question string) string { return "❓ The agent asks: " + said(question, 400) }

// answerButtons answer the question with which a step of a run waits.
func answerButtons(run, step string) []slack.Block {
	var l layout
	l.actions(press(actionApprove, "Approve", "primary", run, step), press(actionReject, "Reject", "danger", run, step))
	return l.blocks
}

// shownURL is an address as it is; in a block [taskMessage] makes it one that can be pressed.
func shownURL(address string) string {
	if to, ok := linkable(address, notifiableMax/2); ok {
		return to
	}
	return said(address, 200)
}

// taskMessage is a message of one of the texts. The address of a pull request is a link
// in it; those that strangers wrote are not.
func taskMessage(text string) slack.Message {
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
