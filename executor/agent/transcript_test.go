package agent

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/record"
)

// tellingTurn keeps the events of a turn.
type tellingTurn struct{ events *[]record.Event }

func (tellingTurn) Step() string                    { return "turn-1" }
func (tellingTurn) Output() (stdout, err io.Writer) { return io.Discard, io.Discard }
func (tellingTurn) Judge(record.Command) bool       { return false }

func (tellingTurn) Permit(context.Context, record.Command) error { return nil }

func (tellingTurn) AskPermission(context.Context, acp.Question) (string, error) {
	return "", nil
}
func (t tellingTurn) Emit(e record.Event) error {
	*t.events = append(*t.events, e)
	return nil
}

// TestResults journals the results of tool calls: once each, shortened, with the output of terminals in place of their names, and none
// any more after a bound.
func TestResults(t *testing.T) {
	var events []record.Event
	tr := newTranscript(tellingTurn{&events})
	tr.output = func(id string) (string, bool) { return "printed by " + id, id == "t1" }
	tell := func(update string) acp.Tool {
		t.Helper()
		_, u, err := acp.ParseUpdate([]byte(`{"sessionId":"s","update":` + update + `}`))
		if err != nil {
			t.Fatal(err)
		}
		before := len(events)
		tr.update(u)
		if len(events) == before {
			return acp.Tool{}
		}
		var tool acp.Tool
		if err := json.Unmarshal(events[len(events)-1].Data, &tool); err != nil {
			t.Fatalf("%v: %s", err, events[len(events)-1].Data)
		}
		return tool
	}
	tell(`{"sessionUpdate":"tool_call","toolCallId":"a","kind":"execute","status":"pending"}`)
	if got := tell(`{"sessionUpdate":"tool_call_update","toolCallId":"a","status":"in_progress","content":[{"type":"terminal","terminalId":"t1"}]}`); len(got.Content) != 1 ||
		got.Content[0].Block == nil || got.Content[0].Block.Text != "printed by t1" {
		t.Errorf("%+v", got)
	}
	if got := tell(`{"sessionUpdate":"tool_call_update","toolCallId":"a","status":"completed"}`); got.Status != "completed" ||
		got.Content != nil {
		t.Errorf("the result is there twice: %+v", got)
	}
	long, err := json.Marshal(strings.Repeat("x", 100<<10) + "end")
	if err != nil {
		t.Fatal(err)
	}
	content := `,"status":"completed","content":[{"type":"content","content":{"type":"text","text":` + string(long) + `}}]}`
	if got := tell(`{"sessionUpdate":"tool_call","toolCallId":"b","kind":"execute"` + content); len(got.Content) != 1 ||
		!strings.HasSuffix(got.Content[0].Block.Text, "end") || len(got.Content[0].Block.Text) > maxContent+10 {
		t.Errorf("%d parts", len(got.Content))
	}
	input := `,"rawInput":{"a":"` + strings.Repeat("y", maxData-20) + `"}`
	if got := tell(`{"sessionUpdate":"tool_call","toolCallId":"c","kind":"execute"` + input + content); len(got.Content) != 1 || got.RawInput == nil {
		t.Error("input and result do not fit together")
	}
	signs := strings.ReplaceAll(content, "x", "<")
	if got := tell(`{"sessionUpdate":"tool_call","toolCallId":"d","kind":"execute"` + signs); got.ID != "d" || got.Content != nil {
		t.Errorf("a result that is long in JSON: %q, %d parts", got.ID, len(got.Content))
	}
	var last acp.Tool
	for range maxContents/maxContent + 2 {
		last = tell(`{"sessionUpdate":"tool_call_update","toolCallId":"c"` + content)
	}
	if last.ID != "c" || last.Content != nil {
		t.Errorf("after the bound: %d parts", len(last.Content))
	}
}
