package agent

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/record"
)

// keptTurn keeps the events of a turn, and its words after those that are known.
type keptTurn struct {
	events []string
	words  bytes.Buffer
	known  int
}

func (*keptTurn) Step() string                      { return "turn-1" }
func (t *keptTurn) Output() (stdout, err io.Writer) { return t, io.Discard }
func (*keptTurn) Judge(record.Command) bool         { return false }

func (*keptTurn) Permit(context.Context, record.Command) error { return nil }

func (*keptTurn) AskPermission(context.Context, acp.Question) (string, error) {
	return "", nil
}

func (t *keptTurn) Emit(e record.Event) error {
	t.events = append(t.events, fmt.Sprintf("%s %q %s", e.Kind, e.Message, e.Data))
	return nil
}

func (t *keptTurn) Write(p []byte) (int, error) {
	n := min(t.known, len(p))
	t.known -= n
	t.words.Write(p[n:])
	return len(p), nil
}

// updateLine returns a message with an update.
func updateLine(update string) string {
	return `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{` + update + `}}}` + "\n"
}

func wordsLine(words string) string {
	return updateLine(`"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"` + words + `"}`)
}

// turnOutput is the output of an agent in a turn.
var turnOutput = []string{
	wordsLine("Grö"), "no message at all\n", wordsLine("ße, "), wordsLine("漢字"),
	updateLine(`"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"per"}`),
	updateLine(`"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"haps"}`),
	updateLine(`"sessionUpdate":"tool_call","toolCallId":"a","title":"run it","kind":"execute","status":"pending","rawInput":{"x":1}`),
	wordsLine("may I"),
	`{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"s","options":[],"toolCall":{"toolCallId":"a"}}}` + "\n",
	updateLine(`"sessionUpdate":"tool_call_update","toolCallId":"a","status":"in_progress"`),
	`{"jsonrpc":"2.0","id":8,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/x"}}` + "\n",
	updateLine(`"sessionUpdate":"tool_call_update","toolCallId":"a","status":"in_progress"`), // no news
	updateLine(`"sessionUpdate":"tool_call_update","toolCallId":"a","status":"completed","content":[{"type":"content","content":{"type":"text","text":"out"}}]`),
	updateLine(`"sessionUpdate":"plan","entries":[{"content":"c","status":"pending","priority":"high"}]`),
	updateLine(`"sessionUpdate":"usage_update","used":3,"size":4`),
	updateLine(`"sessionUpdate":"stop"`), // a kind of ramus's own
	`{"jsonrpc":"2.0","id":9,"result":{"outcome":"injected"}}` + "\n",
	wordsLine("and "), wordsLine("done"),
	`{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}` + "\n",
	wordsLine("between turns"),
}

// TestRest ends the server after each message of a turn, by a kill or properly, and once more while the next server records the
// rest. The words and events are those of a turn without a restart.
func TestRest(t *testing.T) {
	all := strings.Join(turnOutput, "")
	whole := &keptTurn{}
	if stop, err := (Rest{}).record(strings.NewReader(all), whole); stop != "end_turn" || err != nil {
		t.Fatalf("%q, %v", stop, err)
	}
	if got, want := whole.words.String(), "Größe, 漢字\nmay I\nand done\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if len(whole.events) != 6 {
		t.Errorf("%q", whole.events)
	}
	for n := range len(turnOutput) + 1 {
		for _, end := range []string{"killed", "closed"} {
			first := &keptTurn{}
			hear(t, first, Rest{}, turnOutput[:n], end)
			for again := range len(turnOutput) + 1 {
				turn := &keptTurn{events: slices.Clone(first.events), known: first.words.Len()}
				turn.words.Write(first.words.Bytes())
				hear(t, turn, Rest{Told: len(turn.events)}, turnOutput[:again], "killed") // the next server, to a part of it
				turn.known = turn.words.Len()
				stop, err := Rest{Told: len(turn.events)}.record(strings.NewReader(all), turn)
				if stop != "end_turn" || err != nil || turn.words.String() != whole.words.String() ||
					!slices.Equal(turn.events, whole.events) {
					t.Fatalf("%s after %d messages, then %d: %q, %v\n%q\n%q", end, n, again, stop, err, turn.words.String(),
						turn.events)
				}
			}
		}
	}
}

// hear takes the first messages of a turn. Then the server ends.
func hear(t *testing.T, turn *keptTurn, r Rest, lines []string, end string) {
	t.Helper()
	heard := newTranscript(&laterTurn{Turn: turn, known: r.Told})
	if _, err := acp.Replay(strings.NewReader(strings.Join(lines, "")), heard.update, heard.settle); err != nil {
		t.Fatal(err)
	}
	if end == "closed" {
		heard.cut()
		heard.end() // shows nothing more
		return
	}
	heard.mu.Lock()
	defer heard.mu.Unlock()
	heard.over = true
	if heard.timer != nil {
		heard.timer.Stop()
	}
}

// TestRestCut reads outputs that end in the middle of a message, or have none.
func TestRestCut(t *testing.T) {
	all := strings.Join(turnOutput[:4], "")
	for n := range len(all) + 1 {
		turn := &keptTurn{}
		stop, err := (Rest{}).record(strings.NewReader(all[:n]), turn)
		got := turn.words.String()
		if stop != "" || err != nil || got != "" && !strings.HasPrefix("Größe, 漢字\n", strings.TrimSuffix(got, "\n")) {
			t.Errorf("%d bytes: %q, %v, %q", n, stop, err, got)
		}
	}
	turn := &keptTurn{}
	broken := io.MultiReader(strings.NewReader(all), brokenReader{})
	if _, err := (Rest{}).record(broken, turn); err == nil || turn.words.String() != "Größe, 漢字" {
		t.Errorf("%v, %q", err, turn.words.String())
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestLastRest finds the last prompt of a step in a journal, and counts the events after it.
func TestLastRest(t *testing.T) {
	event := func(step, kind string, words int64, data string) record.Event {
		e := record.Event{Type: record.EventAgent, Step: step, Kind: kind, Words: words}
		if data != "" {
			e.Data = []byte(data)
		}
		return e
	}
	started := record.Event{Type: record.EventStepStarted, Step: "turn-1"}
	journal := []record.Event{started, event("turn-1", KindSession, 0, ""),
		event("turn-1", KindPrompt, 0, `{"process":"p.1","from":10}`), event("turn-1", acp.UpdateTool, 0, ""),
		event("turn-1", KindSession, 7, ""), event("turn-1", acp.UpdatePlan, 7, ""),
		event("turn-1", KindPrompt, 7, `{"process":"p.2","from":20}`),
		event("turn-1", acp.UpdateTool, 9, ""), event("turn-2", acp.UpdateTool, 9, ""), event("turn-1", KindPermission, 9, ""),
		event("turn-1", KindThought, 9, ""), event("turn-1", KindLimit, 9, ""),
		{Type: record.EventNote, Step: "turn-1"}, {Type: record.EventGate, Step: "turn-1/permission-1", Kind: KindPermission}}
	if r, ok := LastRest(journal, "turn-1"); !ok || r != (Rest{Mark{"p.2", 20}, 7, 3}) {
		t.Errorf("%+v, %t", r, ok)
	}
	for name, events := range map[string][]record.Event{"nothing": nil, "no prompt": journal[:2],
		"begun again": append(slices.Clone(journal), started),
		"damaged":     {started, event("turn-1", KindPrompt, 0, "[")}} {
		if r, ok := LastRest(events, "turn-1"); ok {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
