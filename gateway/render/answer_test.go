package render

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
)

// TestAnswers makes buttons of the options of an agent, whose names and ids are hostile.
func TestAnswers(t *testing.T) {
	g := record.Gate{Step: "turn-1/permission-1", Options: []record.GateOption{
		{ID: "no", Name: "No", Kind: "reject_once"},
		{ID: "a b\n", Name: "<!channel> Always " + strings.Repeat("x", 200), Allows: true},
		{ID: "once", Name: "\u202e\u200b", Allows: true},
		{ID: "\u200b", Name: ""},
	}}
	b, err := json.Marshal(AnswerButtons("conv:c/r", g))
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, want := range []string{`"action_id":"option-0"`, `"action_id":"option-3"`, `"value":"conv:c/r turn-1/permission-1 1"`,
		`"text":"No"`, `"text":"once"`, `"text":"Option 4"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if strings.Count(text, `"primary"`) != 1 || strings.Contains(text, `"approve"`) {
		t.Error(text)
	}
	if b, err = json.Marshal(AnswerButtons("conv:c/r", record.Gate{Step: "ask"})); err != nil ||
		!strings.Contains(string(b), `"value":"conv:c/r ask"`) || !strings.Contains(string(b), `"reject"`) {
		t.Errorf("%s, %v", b, err)
	}
}

// TestLongQuestion shows the question of an agent whole, or says that a part is missing.
func TestLongQuestion(t *testing.T) {
	lines := func(n int) string { return "asks:\n" + strings.Repeat("make <x> && y\n", n) + "the end" }
	for _, c := range []struct {
		question string
		whole    bool
	}{
		{"short, the end", true}, {lines(50), true}, {lines(80), false}, {strings.Repeat("x", 2400) + " the end", true},
		{strings.Repeat("x", 3000) + " the end", false}, {strings.Repeat("x\n", 1<<20) + "the end", false},
	} {
		p := Standing{Run: someRun(record.StateRunning), Policy: through, Now: renderedAt}
		p.Run.Gate = &record.Gate{Step: "turn-1/permission-1", Message: c.question}
		progress, asks := Progress(p), TaskMessage(TaskAsks(c.question))
		withinLimits(t, progress)
		withinLimits(t, asks)
		for where, text := range map[string]string{"run": shown(t, progress), "task": shown(t, asks)} {
			whole := c.whole || where == "task" && strings.HasPrefix(c.question, "asks:") // on one line
			if strings.Contains(text, "the end") != whole || strings.Contains(text, "Only the beginning") == whole {
				t.Errorf("%s of %d bytes: %s", where, len(c.question), text)
			}
		}
	}
}

func TestParseOption(t *testing.T) {
	for choice, want := range map[string]string{"turn-1/permission-1 3": "turn-1/permission-1", "a b 0": "a b"} {
		if step, _, ok := ParseOption(choice); !ok || step != want {
			t.Errorf("%q: %q, %t", choice, step, ok)
		}
	}
	for _, choice := range []string{"", "3", " 3", "step", "step -1", "step 20", "step x", "step 99999999999999999999"} {
		if step, index, ok := ParseOption(choice); ok {
			t.Errorf("%q: %q %d", choice, step, index)
		}
	}
}
