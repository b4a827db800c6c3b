package executor

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/text"
)

// Bounds of what an agent's updates leave in a turn's journal.
const (
	maxAgentEvents = 2000
	maxAgentData   = 4 << 10
	maxAgentWords  = 300
	maxToolCalls   = maxAgentEvents // whose state is kept while the turn runs
)

// Words come in pieces as small as a model's tokens; they are shown together.
const (
	wordsEvery = 100 * time.Millisecond
	wordsBytes = 4 << 10
)

// telling is what an agent tells in one turn, on its way to the journal and to
// the turn's output.
type telling struct {
	l *liveRun
	w *work

	mu      sync.Mutex // guards all below
	over    bool
	events  int
	words   []byte // of a message, not yet shown
	timer   *time.Timer
	open    bool // the last line of what was shown has no end
	thought strings.Builder
	tools   map[string]acp.Tool // as last journalled
}

func newTelling(l *liveRun, w *work) *telling {
	return &telling{l: l, w: w, tools: make(map[string]acp.Tool)}
}

// end shows what was held back; nothing is told afterwards. A nil telling has nothing.
func (t *telling) end() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endThought()
	t.endMessage()
	t.over = true
}

// printed takes what the agent prints beside the protocol.
func (t *telling) printed(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		_, _ = t.w.out.stderr.Write(p) // flush meets the same error
	}
}

// Update takes one update.
func (k *talk) Update(_ context.Context, u acp.Update) {
	if t := k.now(); t != nil {
		t.update(u)
	}
}

func (t *telling) update(u acp.Update) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	switch u.Kind {
	case acp.UpdateMessage:
		t.endThought()
		t.say(u.Text)
		return
	case acp.UpdateThought:
		if room := maxAgentData - t.thought.Len(); room > 0 {
			t.thought.WriteString(text.Clip(u.Text, room))
		}
		return
	case acp.UpdateUser:
		return // ramus knows what it said
	}
	t.endThought()
	t.endMessage()
	switch u.Kind {
	case acp.UpdateTool, acp.UpdateToolMore:
		if now, news := t.tool(*u.Tool); news {
			t.emit(u.Kind, now.Words()+statusWords(now.Status), record.Marshal(now))
		}
	case acp.UpdatePlan:
		t.emit(u.Kind, planWords(u.Plan), u.Raw)
	case acp.UpdateMode:
		t.emit(u.Kind, u.Mode, u.Raw)
	default:
		t.emit(u.Kind, "", u.Raw)
	}
}

// tool brings what is known of a tool call up to date; news tells whether
// there is something worth an event.
func (t *telling) tool(u acp.Tool) (now acp.Tool, news bool) {
	u.ID, u.Title, u.Kind, u.Status = text.Clip(u.ID, 200), text.Clip(u.Title, maxAgentWords), text.Clip(u.Kind, 40), text.Clip(u.Status, 40)
	if len(u.Locations) > 20 {
		u.Locations = u.Locations[:20]
	}
	for i := range u.Locations {
		u.Locations[i].Path = text.Clip(u.Locations[i].Path, maxAgentWords)
	}
	now, known := t.tools[u.ID]
	before := now
	now.ID = u.ID
	if u.Title != "" {
		now.Title = u.Title
	}
	if u.Kind != "" {
		now.Kind = u.Kind
	}
	if u.Status != "" {
		now.Status = u.Status
	}
	if len(u.Locations) > 0 {
		now.Locations = u.Locations
	}
	if known || len(t.tools) < maxToolCalls {
		t.tools[u.ID] = now
	}
	now.RawInput = bounded(u.RawInput)
	return now, !known || before.Status != now.Status || before.Title != now.Title
}

// bounded is what fits into an event; what is longer is left out.
func bounded(data json.RawMessage) json.RawMessage {
	if len(data) > maxAgentData {
		return nil
	}
	return data
}

func statusWords(status string) string {
	if status == "" || status == "pending" {
		return ""
	}
	return " (" + status + ")"
}

// planWords is where a plan stands.
func planWords(plan []acp.PlanItem) string {
	done, now := 0, ""
	for _, p := range plan {
		switch {
		case p.Status == "completed":
			done++
		case now == "" || p.Status == "in_progress":
			now = p.Content
		}
	}
	words := fmt.Sprintf("%d of %d done", done, len(plan))
	if now != "" {
		words += ": " + strings.Join(strings.Fields(text.Clip(now, maxAgentWords)), " ")
	}
	return words
}

// emit journals what the agent did.
func (t *telling) emit(kind, message string, data json.RawMessage) {
	switch t.events++; {
	case t.events == maxAgentEvents+1:
		kind, message, data = agentLimit, fmt.Sprintf("the agent has told more than %d things in this turn; the rest is not journalled", maxAgentEvents), nil
	case t.events > maxAgentEvents:
		return
	}
	most := maxAgentWords
	if kind == agentThought {
		most = maxAgentData
	}
	e := record.Event{Type: record.EventAgent, Kind: text.Clip(kind, 40), Step: t.w.s.ID, Message: text.Clip(message, most), Data: bounded(data)}
	_ = t.l.emit(e, false) // the run's own events will meet the same error
}

// say takes a piece of what the agent says.
func (t *telling) say(text string) {
	if text == "" {
		return
	}
	t.words = append(t.words, text...)
	if len(t.words) >= wordsBytes {
		t.show()
		return
	}
	if t.timer == nil {
		t.timer = time.AfterFunc(wordsEvery, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			if !t.over {
				t.show()
			}
		})
	}
}

// show writes what was said to the turn's output.
func (t *telling) show() {
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
	if len(t.words) == 0 {
		return
	}
	t.open = t.words[len(t.words)-1] != '\n'
	_, _ = t.w.out.stdout.Write(t.words) // flush meets the same error
	t.words = t.words[:0]
}

// endMessage ends a message: what comes next begins on a line of its own.
func (t *telling) endMessage() {
	t.show()
	if t.open {
		t.open = false
		_, _ = t.w.out.stdout.Write([]byte("\n"))
	}
}

func (t *telling) endThought() {
	if t.thought.Len() == 0 {
		return
	}
	text := strings.TrimSpace(t.thought.String())
	t.thought.Reset()
	if text != "" {
		t.emit(agentThought, text, nil)
	}
}
