package render

import (
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
)

// actionOption begins the action_id of a button that chooses an option of an agent. The number of the option follows, because the
// action_ids of a message differ.
const actionOption = "option-"

// maxAnswers bounds the buttons of one question. Slack takes 25 elements in a block, of which one stops the run.
const maxAnswers = 20

// Bounds of a question that has buttons. The question of an agent with a long command is within them.
const (
	questionLines = 60
	questionMax   = 2800 // units of a section
)

// partShown follows a question that is larger, so that nobody takes it for the whole.
const partShown = "⚠️ Only the beginning of the question is shown here. Read all of it on the page of the run, or " +
	"with `ramus follow`, before you answer."

// answers returns the buttons that answer a question. They are the options of the agent that asks, if it offers any. Their values are
// "RUN STEP INDEX", because the id of an option may have any signs. Otherwise there is one to approve and one to reject, with the
// value "RUN STEP".
func answers(run string, g record.Gate) (buttons []any) {
	if len(g.Options) == 0 {
		return []any{press(ActionApprove, "Approve", "primary", run, g.Step), press(ActionReject, "Reject", "danger", run, g.Step)}
	}
	primary := false
	for i, o := range g.Options[:min(len(g.Options), maxAnswers)] {
		label := OneLine(readable(o.Name), 70)
		if label == "" {
			label = OneLine(readable(o.ID), 70)
		}
		if label == "" {
			label = "Option " + strconv.Itoa(i+1)
		}
		style := ""
		if o.Allows && !primary {
			style, primary = "primary", true
		}
		n := strconv.Itoa(i)
		buttons = append(buttons, press(actionOption+n, label, style, run, g.Step, n))
	}
	return buttons
}

// IsAnswer reports whether a button with this action_id answers a question.
func IsAnswer(action string) bool {
	return action == ActionApprove || action == ActionReject || IsOption(action)
}

// IsOption reports whether a button with this action_id chooses an option of an agent.
func IsOption(action string) bool { return strings.HasPrefix(action, actionOption) }

// ParseOption returns the step and the number of the option of such a button, of its value after the run. ok is false if it has another
// shape.
func ParseOption(choice string) (step string, index int, ok bool) {
	at := strings.LastIndexByte(choice, ' ')
	if at <= 0 {
		return "", 0, false
	}
	index, err := strconv.Atoi(choice[at+1:])
	return choice[:at], index, err == nil && index >= 0 && index < maxAnswers
}
