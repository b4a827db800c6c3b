package dialogue

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// texts returns the texts of the prompts that wait.
func texts(d *Dialogue) (list []string) {
	d.run.Lock()
	defer d.run.Unlock()
	for _, p := range d.waitingLocked() {
		list = append(list, p.Text)
	}
	return list
}

// TestQueue changes the prompts that wait, and reads them again from the journal.
func TestQueue(t *testing.T) {
	dir := t.TempDir()
	d := newDialogue(t, dir)
	d.all.Secrets, _ = redact.New(map[string]string{"word": "hunter2hunter2"})
	bo := gitd.Person{Name: "Bo"}
	for _, key := range []string{"a", "b", "c", "a"} {
		if err := d.Say(record.Prompt{Key: key, Text: "say " + key, By: bo}); err != nil {
			t.Fatal(err)
		}
	}
	p, err := d.Unsay("b", bo)
	if err != nil || p.Text != "say b" {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := d.Unsay("b", bo); err != nil {
		t.Errorf("taken back twice: %v", err)
	}
	if err := d.Say(record.Prompt{Key: "b", Text: "once more", By: bo}); err != nil {
		t.Errorf("a prompt that was taken back is said again: %v", err)
	}
	if err := d.Resay("a", "the word is hunter2hunter2", bo); err != nil {
		t.Error(err)
	}
	if err := d.Reorder([]string{"c", "a"}, bo); err != nil {
		t.Error(err)
	}
	for _, err := range []error{d.Resay("none", "x", bo), d.Reorder([]string{"none"}, bo)} {
		if !errors.Is(err, record.ErrNotFound) {
			t.Errorf("a prompt that is not there: %v", err)
		}
	}
	if err := d.Reorder([]string{"a", "a"}, bo); !errors.Is(err, record.ErrInvalid) {
		t.Errorf("a key is there twice: %v", err)
	}
	if err := d.Reorder(make([]string, maxUnheard+1), bo); !errors.Is(err, record.ErrInvalid) {
		t.Errorf("more keys than can wait: %v", err)
	}
	if _, err := d.Unsay(record.FirstPrompt, bo); !errors.Is(err, record.ErrConflict) {
		t.Errorf("the first prompt is taken back: %v", err)
	}
	want := texts(d)
	if len(want) != 3 || want[1] != "say c" || !strings.HasPrefix(want[2], "the word is") || strings.Contains(want[2], "hunter2") {
		t.Errorf("%q", want)
	}
	d.run.End()
	again := newDialogue(t, dir)
	defer again.run.End()
	if got := texts(again); !slices.Equal(got, want) {
		t.Errorf("after a restart: %q, want %q", got, want)
	}
}

// TestQueueEnds refuses prompts once the agent has had its last turn, and more prompts than can wait.
func TestQueueEnds(t *testing.T) {
	d := newDialogue(t, t.TempDir())
	for n := 1; ; n++ { // the run's own prompt waits too
		err := d.Say(record.Prompt{Key: fmt.Sprint(n), Text: "more"})
		if err == nil && n < maxUnheard {
			continue
		}
		if n != maxUnheard || !errors.Is(err, record.ErrConflict) {
			t.Errorf("prompt %d: %v", n, err)
		}
		break
	}
	if d.isLastTurn() {
		t.Error("the last turn, although prompts wait")
	}
	d.refusePrompts()
	if err := d.Say(record.Prompt{Key: "late", Text: "late"}); !errors.Is(err, ErrOver) {
		t.Errorf("after the last turn: %v", err)
	}
	if err := d.Say(record.Prompt{Key: "1", Text: "more"}); err != nil {
		t.Errorf("a prompt that was accepted before: %v", err)
	}
	if _, err := d.StopTurn(gitd.Person{}); !errors.Is(err, record.ErrConflict) {
		t.Errorf("no turn works: %v", err)
	}
	d.run.End()
	if _, err := d.Unsay("1", gitd.Person{}); !errors.Is(err, ErrOver) {
		t.Errorf("after the end of the run: %v", err)
	}
}
