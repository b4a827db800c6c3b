package record

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/internal/redact"
)

// openJournal opens a journal that is closed at the end of the test.
func openJournal(t *testing.T, path string, secrets *redact.Secrets) (*Journal, []Event) {
	t.Helper()
	j, events, err := OpenJournal(path, secrets)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j, events
}

// TestJournal checks that events are numbered, that they are there after a restart, and that they hold no secrets.
func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "journal")
	secrets, err := redact.New(map[string]string{"HORSE": "correct-horse-battery"})
	if err != nil {
		t.Fatal(err)
	}
	j, events := openJournal(t, path, secrets)
	if len(events) != 0 {
		t.Errorf("a new journal has %+v", events)
	}
	for i, sync := range []bool{false, true, false} {
		e := Event{Seq: 9, Type: EventNote, Message: "correct-horse-battery"}
		if err := j.Append(&e, sync); err != nil || e.Seq != int64(i+1) ||
			strings.Contains(e.Message, "horse-battery") || e.Type != EventNote {
			t.Errorf("event %d: %+v, %v", i, e, err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(&Event{Type: EventNote}, false); err == nil {
		t.Error("a closed journal takes events")
	}

	j, events = openJournal(t, path, nil)
	if len(events) != 3 || events[2].Seq != 3 || strings.Contains(events[0].Message, "horse-battery") {
		t.Errorf("after a restart: %+v", events)
	}
	e := Event{Type: EventNote}
	if err := j.Append(&e, false); err != nil || e.Seq != 4 {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestJournalCut checks that a last line that was cut off is removed, and that damage before it is an error.
func TestJournalCut(t *testing.T) {
	const one, two = `{"seq":1,"type":"note"}` + "\n", `{"seq":2,"type":"note"}` + "\n"
	for _, tt := range []struct {
		text   string
		events int // -1 means an error
	}{
		{"", 0},
		{one, 1},
		{one + two, 2},
		{one + two[:5], 1},
		{one + two[:len(two)-1], 1},
		{one + "{\n", 1},
		{one + "{\n" + two, -1},
		{"\n" + one, -1},
		{one + `{"seq":2,"message":"` + strings.Repeat("x", 200<<10) + `"}` + "\n" + two, 3},
		{one + strings.Repeat("x", MaxEvent+100<<10) + "\n" + two, -1},
	} {
		path := filepath.Join(t.TempDir(), "journal")
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		events, err := ParseJournal([]byte(tt.text))
		if (err != nil) != (tt.events < 0) || err == nil && len(events) != tt.events {
			t.Errorf("%.60q: %d events, %v", tt.text, len(events), err)
		}
		j, events, err := OpenJournal(path, nil)
		if (err != nil) != (tt.events < 0) || err == nil && len(events) != tt.events {
			t.Errorf("%.60q: opened with %d events, %v", tt.text, len(events), err)
		}
		if err != nil {
			continue
		}
		e := Event{Type: EventNote}
		if err := j.Append(&e, false); err != nil {
			t.Error(err)
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
		if _, events := openJournal(t, path, nil); len(events) != tt.events+1 {
			t.Errorf("%.60q: %d events after one more", tt.text, len(events))
		}
	}
	if _, _, err := OpenJournal(t.TempDir(), nil); err == nil {
		t.Error("a folder was opened as a journal")
	}
}

// TestJournalLongest checks that every event that is taken can be read again.
func TestJournalLongest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _ := openJournal(t, path, nil)
	rest := len(Marshal(Event{Seq: 1, Type: EventNote, Message: "x"})) - 1
	if err := j.Append(&Event{Type: EventNote, Message: strings.Repeat("x", MaxEvent-rest)}, false); err == nil {
		t.Error("an event of the length of the bound was taken")
	}
	if err := j.Append(&Event{Type: EventNote, Message: strings.Repeat("x", MaxEvent-rest-1)}, false); err != nil {
		t.Error(err)
	}
	if _, events := openJournal(t, path, nil); len(events) != 1 || events[0].Seq != 1 {
		t.Errorf("%d events", len(events))
	}
}

// TestCheckJournal counts events, and refuses the journals that cannot be parsed.
func TestCheckJournal(t *testing.T) {
	three := strings.Repeat(`{"seq":1}`+"\n", 3)
	for text, ok := range map[string]bool{"": true, three: true, three + "{": true, three + "{}\n": false, "{\n" + three: false} {
		if err := CheckJournal([]byte(text), 3); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestParseCaller checks names of callers.
func TestParseCaller(t *testing.T) {
	long := strings.Repeat("a", 80)
	for text, ok := range map[string]bool{
		"run:a": true, "conv:a": true, "run:fancy-mallard": true, "run:0-9": true, "run:" + long: true,
		"run:" + long + "a": false,
		"":                  false, "run": false, "run:": false, ":a": false, "x:a": false, "a": false, "run-a": false,
		"run:a:b": false,
		"runs:a":  false,
		"run:A":   false, "run:-a": false, "run:a-": false, "run:a--b": false, "run:a.b": false, "run:a/b": false,
		"run:a\n": false,
	} {
		c, err := ParseCaller(text)
		if (err == nil) != ok || err != nil && (!errors.Is(err, ErrInvalid) || !c.IsZero()) || ok && c.String() != text {
			t.Errorf("%q: %q, %v", text, c, err)
		}
	}
	for text, same := range map[string]bool{
		"conv:a-b": true, "a-b": true, "conv-a-b": true, "ramus/conv-a-b": true,
		"run:a-b": false, "run-a-b": false, "a": false, "conv": false, "": false, "ramus/": false,
	} {
		c, err := ConvCaller("a-b")
		if err != nil || c.Is(text) != same {
			t.Errorf("%q is %s: %v, %v", text, c, c.Is(text), err)
		}
	}
	c, err := RunCaller("a")
	if err != nil || c.Kind() != "run" || c.ID() != "a" || c.Slug() != "run-a" || c.Branch() != "ramus/run-a" || c.IsZero() {
		t.Errorf("%+v, %v", c, err)
	}
	if RunRef(c, "1") != "refs/ramus/runs/run-a/1" || WIPRef(c) != "refs/ramus/wip/run-a" ||
		ConflictRefs(c) != "refs/ramus/conflicts/run-a" {
		t.Errorf("%s, %s, %s", RunRef(c, "1"), WIPRef(c), ConflictRefs(c))
	}
	for _, c := range []Caller{c, {}} {
		text, err := c.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		back := Caller{"run", "other"}
		if err := back.UnmarshalText(text); err != nil || back != c || c.IsZero() != (len(text) == 0) {
			t.Errorf("%+v became %+v, %v", c, back, err)
		}
	}
	if err := new(Caller).UnmarshalText([]byte("x")); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

// TestNames checks the names of runs and files.
func TestNames(t *testing.T) {
	for id, ok := range map[string]bool{
		"a": true, "z": true, "A": true, "Z": true, "0": true, "9": true, "a-b_c.d": true, "_": true, "a-": true,
		strings.Repeat("a", 100): true,
		"":                       false, strings.Repeat("a", 101): false, ".a": false, "-a": false, "a.": false,
		"a..b":   false,
		"a.lock": false, "a/b": false, "a b": false,
		"a\x00": false, "é": false, "a@": false, "a[": false, "a`": false, "a{": false, "a:": false, "a,": false,
	} {
		if ValidID(id) != ok {
			t.Errorf("%q: %v", id, !ok)
		}
	}
	for name, ok := range map[string]bool{
		"a": true, "a/b.git/c": true, "agit~1": true, "é": true, "git": true,
		".git": false, ".GIT/config": false, "a/.gitmodules": false, "git~1": false, "a/GIT~2": false, "a/\xff": false,
	} {
		if GitCanHold(name) != ok {
			t.Errorf("%q: %v", name, !ok)
		}
	}
	for step, want := range map[string]string{
		"judge[3]#2": "judge_3__2", "azAZ09-_.": "azAZ09-_.", "a`{@[/:b": "a______b", "é": "_", "": "",
	} {
		if got := FileName(step); got != want {
			t.Errorf("%q: %q, want %q", step, got, want)
		}
	}
	for range 100 {
		for _, words := range []int{0, 2, 4} {
			id := NewID(words)
			if n := strings.Count(id, "-") + 1; n != max(words, 2) || !ValidID(id) {
				t.Fatalf("%d words: %q", words, id)
			}
		}
	}
	if a, b := NewToken(), NewToken(); a == b || len(a) != 16 || !ValidID(a) {
		t.Errorf("%q, %q", a, b)
	}
}
