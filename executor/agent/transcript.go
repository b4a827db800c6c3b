package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/text"
)

// The kinds of [record.EventAgent] that are ramus's own. All others are the protocol's.
const (
	KindSession    = record.AgentSession
	KindStop       = "stop"       // message: the stop reason
	KindThought    = "thought"    // message: the agent's thought
	KindLimit      = "flooding"   // the agent sends more updates than are journalled
	KindPermission = "permission" // message: the policy's answer, and the tool call that the agent asked permission for
	KindPrompt     = "prompt"     // the prompt of the turn is sent; data: Mark
)

// reserved reports whether a kind is ramus's own. An update of such a kind is not journalled.
func reserved(kind string) bool {
	switch kind {
	case KindSession, KindStop, KindThought, KindLimit, KindPermission, KindPrompt:
		return true
	}
	return false
}

// Bounds of an agent's updates in the journal of a turn.
const (
	maxEvents    = 2000
	maxData      = 4 << 10
	maxWords     = 300
	maxToolCalls = maxEvents // whose state is kept while the turn runs
	maxContent   = 6 << 10   // of the result of one tool call
	maxContents  = 1 << 20   // of all results of a turn; of those after it only the calls are journalled
	maxTool      = maxData + maxContent + 8<<10
)

// Words come in pieces as small as a model's tokens. They are shown together.
const (
	wordsEvery = 100 * time.Millisecond
	wordsBytes = 4 << 10
)

// transcript takes an agent's updates in one turn to the journal and to the turn's output.
type transcript struct {
	turn           Turn
	stdout, stderr io.Writer // of the turn

	mu      sync.Mutex // guards all below
	over    bool
	events  int
	words   []byte // of a message, not yet shown
	timer   *time.Timer
	open    bool // the last line that was shown has no end
	thought strings.Builder
	tools   map[string]acp.Tool // as last journalled, with a result that is not
	told    int                 // bytes of results that are journalled

	// output returns the end of the output of a terminal of the agent. Nil means that there are none.
	output func(terminal string) (end string, ok bool)
}

func newTranscript(turn Turn) *transcript {
	t := &transcript{turn: turn, tools: make(map[string]acp.Tool)}
	t.stdout, t.stderr = turn.Output()
	return t
}

// mark journals that the turn's prompt is sent, and forgets the updates before it. The event needs no sync, because another process
// gets the prompt again if it is lost.
func (t *transcript) mark(m Mark) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endThought()
	t.endMessage()
	t.events, t.told = 0, 0
	clear(t.tools)
	return t.turn.Emit(record.Event{Type: record.EventAgent, Kind: KindPrompt, Step: t.turn.Step(), Data: record.Marshal(m)})
}

// end shows the words that are held back. The transcript takes nothing afterwards. A nil transcript has nothing.
func (t *transcript) end() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	t.endThought()
	t.endMessage()
	t.over = true
}

// cut ends the transcript in the middle of the turn. It shows the words that are held back, and does not end the message, because the
// next server records the rest of it. See [Rest]. A nil transcript has nothing.
func (t *transcript) cut() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.show()
	t.over = true
}

// printed takes output of the agent that is not of the protocol.
func (t *transcript) printed(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		_, _ = t.stderr.Write(p) // flush meets the same error
	}
}

// Update implements acp.Client.
func (k *Process) Update(_ context.Context, u acp.Update) {
	if t := k.now(); t != nil {
		t.update(u)
	}
}

func (t *transcript) update(u acp.Update) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	switch u.Kind {
	case acp.UpdateMessage:
		t.endThought()
		t.addMessage(u.Text)
		return
	case acp.UpdateThought:
		if room := maxData - t.thought.Len(); room > 0 {
			t.thought.WriteString(text.Clip(u.Text, room))
		}
		return
	case acp.UpdateUser:
		return // ramus knows its own words
	}
	t.endThought()
	t.endMessage()
	switch u.Kind {
	case acp.UpdateTool, acp.UpdateToolMore:
		if now, news := t.tool(*u.Tool); news {
			t.emit(u.Kind, now.Words()+statusWords(now.Status), toolData(now))
		}
	case acp.UpdatePlan:
		t.emit(u.Kind, planWords(u.Plan), u.Raw)
	case acp.UpdateMode:
		t.emit(u.Kind, u.Mode, u.Raw)
	default:
		if !reserved(u.Kind) {
			t.emit(u.Kind, "", u.Raw)
		}
	}
}

// tool updates the state of a tool call. news reports whether the change is worth an event.
func (t *transcript) tool(u acp.Tool) (now acp.Tool, news bool) {
	u.ID, u.Title, u.Kind, u.Status = text.Clip(u.ID, 200), text.Clip(u.Title, maxWords), text.Clip(u.Kind, 40),
		text.Clip(u.Status, 40)
	if len(u.Locations) > 20 {
		u.Locations = u.Locations[:20]
	}
	for i := range u.Locations {
		u.Locations[i].Path = text.Clip(u.Locations[i].Path, maxWords)
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
	if len(u.Content) > 0 {
		now.Content = t.result(u.Content, now.Kind)
	}
	news = !known || before.Status != now.Status || before.Title != now.Title ||
		len(u.Content) > 0 && (now.Status == "completed" || now.Status == "failed")
	kept := now
	if news {
		kept.Content = nil // it is journalled once
		if t.told += now.Content.Size(); t.told > maxContents {
			now.Content = nil
		}
	}
	if known || len(t.tools) < maxToolCalls {
		t.tools[u.ID] = kept
	}
	now.RawInput = bounded(u.RawInput)
	return now, news
}

// result returns the result of a tool call as it is journalled. The output of a terminal takes the place of its name, because the
// terminal ends with the turn.
func (t *transcript) result(c acp.Contents, kind string) acp.Contents {
	for i, one := range c {
		if one.Type != acp.ContentTerminal || t.output == nil {
			continue
		}
		if end, ok := t.output(one.Terminal); ok && end != "" {
			c[i] = acp.Content{Type: acp.ContentBlock, Block: &acp.Block{Type: "text", Text: end}}
		}
	}
	short, _ := c.Shorten(maxContent, kind == "execute")
	return short
}

// toolData returns a tool call as the data of an event. A text may be six times as long in JSON. Then the result is left out, and if that
// is not enough, the input.
func toolData(now acp.Tool) json.RawMessage {
	data := record.Marshal(now)
	if len(data) > maxTool {
		now.Content = nil
		data = record.Marshal(now)
	}
	if len(data) > maxTool {
		now.RawInput = nil
		data = record.Marshal(now)
	}
	return data
}

// bounded returns data, or nil if it does not fit into an event.
func bounded(data json.RawMessage) json.RawMessage {
	if len(data) > maxData {
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

// planWords returns in words how far a plan is done.
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
		words += ": " + strings.Join(strings.Fields(text.Clip(now, maxWords)), " ")
	}
	return words
}

// emit journals an action of the agent.
func (t *transcript) emit(kind, message string, data json.RawMessage) {
	switch t.events++; {
	case t.events == maxEvents+1:
		kind, message, data = KindLimit,
			fmt.Sprintf("the agent has told more than %d things in this turn; the rest is not journalled", maxEvents), nil
	case t.events > maxEvents:
		return
	}
	most, room := maxWords, maxData
	switch kind {
	case KindThought:
		most = maxData
	case acp.UpdateTool, acp.UpdateToolMore:
		room = maxTool
	}
	if len(data) > room {
		data = nil
	}
	e := record.Event{Type: record.EventAgent, Kind: text.Clip(kind, 40), Step: t.turn.Step(),
		Message: text.Clip(message, most), Data: data}
	_ = t.turn.Emit(e) // the run's own events will meet the same error
}

// addMessage adds a piece of the agent's message.
func (t *transcript) addMessage(text string) {
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

// show writes the words so far to the turn's output.
func (t *transcript) show() {
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
	if len(t.words) == 0 {
		return
	}
	t.open = t.words[len(t.words)-1] != '\n'
	_, _ = t.stdout.Write(t.words) // flush meets the same error
	t.words = t.words[:0]
}

// endMessage ends a message. The next one begins on a line of its own.
func (t *transcript) endMessage() {
	t.show()
	if t.open {
		t.open = false
		_, _ = t.stdout.Write([]byte("\n"))
	}
}

func (t *transcript) endThought() {
	if t.thought.Len() == 0 {
		return
	}
	text := strings.TrimSpace(t.thought.String())
	t.thought.Reset()
	if text != "" {
		t.emit(KindThought, text, nil)
	}
}
