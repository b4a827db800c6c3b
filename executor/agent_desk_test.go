package executor

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/record"
)

func TestReadLines(t *testing.T) {
	n := func(i int) *int { return &i }
	for _, c := range []struct {
		text        string
		line, limit *int
		want        string
	}{
		{"a\nb\nc\n", nil, nil, "a\nb\nc\n"},
		{"a\nb\nc", n(2), nil, "b\nc"},
		{"a\nb\nc\n", n(2), n(1), "b\n"},
		{"a\nb\nc\n", nil, n(2), "a\nb\n"},
		{"a\nb\n", n(9), n(1), ""},
		{"a\nb\n", n(1), n(0), ""},
		{"a\nb\n", n(-4), n(-4), ""},
		{"\xff\n", nil, nil, "\uFFFD\n"},
		{strings.Repeat("x", 200<<10) + "\nb\n", n(2), n(1), "b\n"},
		{"", nil, nil, ""},
	} {
		got, err := readLines(strings.NewReader(c.text), c.line, c.limit)
		if err != nil || got != c.want {
			t.Errorf("%.20q from %v, %v: %.40q, %v", c.text, c.line, c.limit, got, err)
		}
	}
	if _, err := readLines(strings.NewReader(strings.Repeat("x\n", maxReadBytes)), nil, nil); err == nil {
		t.Error("a file that is too long was read")
	}
}

func TestPlanWords(t *testing.T) {
	for want, plan := range map[string][]acp.PlanItem{
		"0 of 0 done":       nil,
		"1 of 3 done: b b":  {{Content: "a", Status: "completed"}, {Content: "b\n b", Status: "in_progress"}, {Content: "c", Status: "pending"}},
		"0 of 2 done: a":    {{Content: "a", Status: "pending"}, {Content: "b", Status: "pending"}},
		"1 of 1 done":       {{Content: "a", Status: "completed"}},
		"0 of 2 done: then": {{Content: "first", Status: "pending"}, {Content: "then", Status: "in_progress"}},
	} {
		if got := planWords(plan); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestClockStandsWhileAsked: the time of a turn stands while a person is asked.
func TestClockStandsWhileAsked(t *testing.T) {
	name := filepath.Join(t.TempDir(), "journal")
	synctest.Test(t, func(t *testing.T) {
		x := &Executor{}
		x.defaults()
		j, _, err := record.OpenJournal(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		l := &liveRun{x: x, journal: j, asking: make(chan struct{}, 1)}
		defer l.end()
		over := make(chan struct{})
		k := &talk{l: l, a: Agent{Permission: PermissionAsk}, tells: newTelling(l, &work{s: stepInfo{ID: "turn-1"}}), said: t.Context(),
			clock: newTurnClock(3*time.Second, func() { close(over) })}
		ended := func() bool {
			synctest.Wait()
			select {
			case <-over:
				return true
			default:
				return false
			}
		}
		time.Sleep(2 * time.Second)
		answered := make(chan string, 1)
		go func() {
			option, err := k.Permit(t.Context(), acp.Question{Options: []acp.Option{{ID: "yes", Kind: "allow_once"}}})
			if err != nil {
				t.Error(err)
			}
			answered <- option
		}()
		synctest.Wait()
		time.Sleep(30 * time.Minute)
		if err := l.decide(record.Decision{Approved: true}); err != nil {
			t.Error(err)
		}
		if got := <-answered; got != "yes" || ended() {
			t.Errorf("answered %q, the turn's time is up: %v", got, ended())
		}
		if time.Sleep(time.Second - 1); ended() {
			t.Error("less than its time is over")
		}
		if time.Sleep(time.Nanosecond); !ended() {
			t.Error("its time never ends")
		}
	})
}
