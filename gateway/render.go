package gateway

import (
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gateway/slack"
)

// Standing is what a run's one progress message is made from.
type Standing struct {
	Run    executor.Run
	Policy Policy
	Step   string // what runs now, in words; empty: nothing
	Steps  int    // that have ended
	Since  time.Time
	Now    time.Time
	Base   time.Time // when the base was refreshed; zero: not known
	Link   string    // to the run's page; empty: none
	Links  bool
}

// RenderProgress makes the progress message of a run that has not ended, with its buttons.
func RenderProgress(p Standing) slack.Message { panic("not built") }

// RenderResult makes the final message of a run from its manifest alone: an agent's words are no evidence.
// links gives a link for a file of the manifest; nil: none are shown.
func RenderResult(m executor.Manifest, r executor.Run, p Policy, page string, links func(name string) string) slack.Message {
	panic("not built")
}

// RenderText makes a message of plain text: an answer, a question, an error. Code is shown as a block.
func RenderText(text, code string) slack.Message { panic("not built") }

// RenderAsk asks which repository is meant, with one choice for each.
func RenderAsk(key string, repos []string) slack.Message { panic("not built") }
