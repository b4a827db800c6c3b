package trigger

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// Kind is the kind of a cause.
type Kind string

// The kinds.
const (
	KindCron    Kind = "cron"
	KindWebhook Kind = "webhook"
	KindIssue   Kind = "issues"
	KindCheck   Kind = "checks"
	KindPush    Kind = "push"
	KindPerson  Kind = "person" // somebody ran the trigger by hand
)

// Event is one occurrence of a trigger's cause, as the run that it starts keeps it.
type Event struct {
	Kind Kind `json:"kind"`
	// Key is the same for every delivery of the event.
	Key   string    `json:"key"`
	Title string    `json:"title"` // the event in a line, for people
	Time  time.Time `json:"time"`
	// Missed is the number of times of a schedule that passed before this one without a run.
	Missed int `json:"missed,omitempty"`
	// Base is the branch that the work begins from if the trigger names none. Empty means the repository's base.
	Base string `json:"base,omitempty"`
	// Values are the inputs that the trigger took from the event.
	Values map[string]any `json:"values,omitempty"`
	// Shown is the event as the agent of a task sees it. It is empty for workflows.
	Shown string `json:"shown,omitempty"`
}

// Limits of an event.
const (
	maxTitle = 200
	maxValue = 4 << 10  // of one value, in bytes
	maxShown = 16 << 10 // of the event that an agent sees
	maxDepth = 20       // of a path
)

// fields is the content of an event, as JSON has it.
type fields map[string]any

// parseFields reads the content of an event, which must be a JSON object.
func parseFields(body []byte) (fields, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber() // no digit of an id may be lost
	var f fields
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("cannot read the event: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("cannot read the event: it goes on after its JSON object")
	}
	if f == nil {
		return nil, errors.New("cannot read the event: it is null, and not an object")
	}
	return f, nil
}

// at returns the value at a path such as "data.issue.labels.0.name". Returns false if there is none.
func (f fields) at(path string) (any, bool) {
	parts := strings.Split(path, ".")
	if len(parts) > maxDepth {
		return nil, false
	}
	var v any = map[string]any(f)
	for _, part := range parts {
		switch in := v.(type) {
		case map[string]any:
			next, ok := in[part]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			n, err := strconv.Atoi(part)
			if err != nil || n < 0 || n >= len(in) {
				return nil, false
			}
			v = in[n]
		default:
			return nil, false
		}
	}
	return v, v != nil
}

// value returns the value at a path as the input of a workflow. Texts are clipped and have no control characters.
// Returns false if there is no value.
func (f fields) value(path string) (any, bool) {
	v, ok := f.at(path)
	if !ok {
		return nil, false
	}
	switch v := v.(type) {
	case bool:
		return v, true
	case string:
		return clean(v, maxValue), true
	case json.Number:
		// A number that JSON would write differently, such as an id with 20 digits, stays a text.
		n, err := v.Float64()
		if again, encodeErr := json.Marshal(n); err == nil && encodeErr == nil && string(again) == v.String() {
			return n, true
		}
		return clean(v.String(), maxValue), true
	}
	b, err := json.Marshal(v)
	return clean(string(b), maxValue), err == nil
}

// word returns the value at a path as text. Returns "" if there is none, or if it is an object or a list.
func (f fields) word(path string) string {
	v, _ := f.at(path)
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}

// fits reports whether the event has the texts of when.
func (f fields) fits(when map[string]string) bool {
	for path, want := range when {
		if f.word(path) != want {
			return false
		}
	}
	return true
}

// takeInputs returns the inputs that a trigger takes from the event, together with its fixed ones.
func (f fields) takeInputs(t *Trigger) map[string]any {
	values := make(map[string]any, len(t.Input)+len(t.Take))
	for name, v := range t.Input {
		values[name] = v
	}
	for name, path := range t.Take {
		if v, ok := f.value(path); ok {
			values[name] = v
		}
	}
	return values
}

// shown returns the event for an agent. It is JSON without a backtick, so that no text of it can end the block of code
// around it.
func (f fields) shown() string {
	b, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return "{}"
	}
	return text.Clip(strings.ReplaceAll(string(b), "`", `\u0060`), maxShown)
}

// clean returns a text of a stranger without control characters, except line feeds and tabs, and of at most most
// bytes.
func clean(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return text.Clip(s, most)
}

// oneLine returns a text of a stranger as a line.
func oneLine(s string) string {
	return text.Clip(strings.Join(strings.Fields(clean(s, 4*maxTitle)), " "), maxTitle)
}

// fill adds the parts of an event that follow from its content and its trigger.
func (e Event) fill(t *Trigger, f fields) Event {
	e.Title = oneLine(e.Title)
	if t.Task != "" {
		e.Shown = f.shown()
	} else {
		e.Values = f.takeInputs(t)
	}
	return e
}

// digest returns a key of the parts.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// callerOf returns the caller of the work for an event. Every delivery of the event has the same.
func callerOf(trigger, key string) (record.Caller, error) {
	return record.RunCaller(trigger + "-" + digest(trigger, key)[:12])
}

// person returns a trigger as the author of commits. The address belongs to nobody.
func person(trigger string) gitd.Person {
	return gitd.Person{Name: "trigger " + trigger, Email: trigger + record.TriggerMailbox}
}
