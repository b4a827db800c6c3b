package browser

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// actions are those of a step, in the order of their documentation.
var actions = []string{
	"goto", "click", "fill", "press", "select", "check", "uncheck", "hover", "wait_for",
	"expect_text", "expect_visible", "expect_hidden", "expect_url", "expect_title", "expect_count", "screenshot",
}

// MarshalJSON writes the action's name as a key, with the target as its value. Options are left out where they are zero,
// apart from the value of fill: to fill in nothing empties a field.
func (s Step) MarshalJSON() ([]byte, error) {
	if !slices.Contains(actions, s.Do) {
		return nil, fmt.Errorf("cannot write a step: unknown action %.100q", s.Do)
	}
	fields := map[string]any{s.Do: s.Target}
	if s.Value != "" || s.Do == "fill" {
		fields["value"] = s.Value
	}
	if s.In != "" {
		fields["in"] = s.In
	}
	if s.Secret {
		fields["secret"] = true
	}
	if s.Timeout != 0 {
		fields["timeout"] = s.Timeout
	}
	return json.Marshal(fields)
}

// UnmarshalJSON accepts the keys in any order. It checks the form of a step, and [Parse] its meaning.
func (s *Step) UnmarshalJSON(text []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return fmt.Errorf("cannot read a step: %w", err)
	}
	var step Step
	for name, value := range fields {
		var err error
		switch name {
		case "value":
			err = json.Unmarshal(value, &step.Value)
		case "in":
			err = json.Unmarshal(value, &step.In)
		case "secret":
			err = json.Unmarshal(value, &step.Secret)
		case "timeout":
			err = json.Unmarshal(value, &step.Timeout)
		default:
			if !slices.Contains(actions, name) {
				return fmt.Errorf("cannot read a step: unknown action %.100q; known are %s", name,
					strings.Join(actions, ", "))
			}
			if step.Do != "" {
				return fmt.Errorf("cannot read a step: it has two actions, %s and %s", min(step.Do, name),
					max(step.Do, name))
			}
			step.Do = name
			err = json.Unmarshal(value, &step.Target)
		}
		if err != nil {
			return fmt.Errorf("cannot read %q of a step: %w", name, err)
		}
	}
	if step.Do == "" {
		return errors.New("cannot read a step: it has no action")
	}
	*s = step
	return nil
}

// MarshalJSON writes a duration like people do, "1m30s".
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON reads a duration in the format of time.ParseDuration.
func (d *Duration) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf(`cannot read a duration: it must be text with a unit, like "90s": %w`, err)
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("cannot read a duration: %w", err)
	}
	*d = Duration(v)
	return nil
}

// String returns the duration without units that are zero, as "2m" instead of "2m0s".
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// UnmarshalJSON accepts the name of a known viewport, or an object.
func (v *Viewport) UnmarshalJSON(text []byte) error {
	if text = bytes.TrimSpace(text); len(text) > 0 && text[0] == '"' {
		var name string
		if err := json.Unmarshal(text, &name); err != nil {
			return fmt.Errorf("cannot read a viewport: %w", err)
		}
		if known, ok := KnownViewport(name); ok {
			*v = known
			return nil
		}
		return fmt.Errorf("cannot read a viewport: unknown name %.100q; known are desktop, mobile", name)
	}
	type plain Viewport // without this method
	return json.Unmarshal(text, (*plain)(v))
}

// KnownViewport returns the viewport with a name.
func KnownViewport(name string) (Viewport, bool) {
	for _, v := range []Viewport{Desktop, Mobile} {
		if v.Name == name {
			return v, true
		}
	}
	return Viewport{}, false
}
