package workflow

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/internal/pattern"
	"github.com/ramus-dev/ramus/tasks"
)

// maxCommand bounds an expanded command line in bytes. `sh -c COMMAND` passes it as one argument, for which the kernel
// allows 128 KiB.
const maxCommand = 120_000

// maxExpanded bounds an expanded prompt, message or parameter in bytes.
const maxExpanded = 4 << 20

// template is text with slots, {{path}}. It is immutable.
//
// In a command each slot becomes one shell word, quoted ([tasks.Quote]). In prompts, messages and parameters it is
// plain text. `\{{` is a literal `{{`.
type template struct {
	source string
	parts  []part
}

// part is literal text or a slot.
type part struct {
	text string
	slot *slot
}

// slot is one {{path}}.
type slot struct {
	path   []string // "state", "x", "0"
	offset int      // of "{{" in the source
	// glued slots touch other text of their word, so they cannot be a list.
	glued bool
}

// String returns the slot as written.
func (s *slot) String() string { return "{{" + strings.Join(s.path, ".") + "}}" }

// mistake is a mistake at a byte offset of a text.
type mistake struct {
	offset  int
	message string
}

// maxSlot bounds the text between {{ and }}, in bytes.
const maxSlot = 1000

var slotPath = pattern.New(`^[A-Za-z_][A-Za-z0-9_-]*(\.([A-Za-z_][A-Za-z0-9_-]*|[0-9]{1,9}))*$`)

// parseTemplate splits a text into literal text and slots.
func parseTemplate(source string) (*template, []mistake) {
	t := &template{source: source}
	var wrong []mistake
	var text strings.Builder
	closed := -1 // position of the first }} that is not before the slot
	for at := 0; at < len(source); {
		open := strings.Index(source[at:], "{{")
		if open < 0 {
			text.WriteString(source[at:])
			break
		}
		open += at
		before := source[at:open]
		slashes := len(before) - len(strings.TrimRight(before, `\`))
		if slashes%2 == 1 {
			text.WriteString(before[:len(before)-1] + "{{")
			at = open + 2
			continue
		}
		text.WriteString(before)
		if closed < open {
			length := strings.Index(source[open:], "}}")
			if length < 0 {
				wrong = append(wrong, mistake{open, `this {{ is not closed by }}; write \{{ for a literal {{`})
				break
			}
			closed = open + length
		}
		path := strings.TrimSpace(source[open+2 : min(closed, open+2+maxSlot)])
		if closed > open+2+maxSlot || !slotPath.MatchString(path) {
			wrong = append(wrong, mistake{open,
				`a slot holds a dotted path like {{input.name}}; write \{{ for a literal {{`})
			at = open + 2
			continue
		}
		if text.Len() > 0 {
			t.parts = append(t.parts, part{text: text.String()})
			text.Reset()
		}
		t.parts = append(t.parts, part{slot: &slot{path: strings.Split(path, "."), offset: open}})
		at = closed + 2
	}
	if text.Len() > 0 {
		t.parts = append(t.parts, part{text: text.String()})
	}
	return t, wrong
}

// slots returns the slots in order.
func (t *template) slots() []*slot {
	var all []*slot
	for _, p := range t.parts {
		if p.slot != nil {
			all = append(all, p.slot)
		}
	}
	return all
}

// scope has the values that slots and conditions can use.
type scope struct {
	state, input, context map[string]any
	matrix                map[string]any // nil outside a cell
}

// lookup follows a slot's path. A path that begins with none of state, input and context, and in a cell matrix, is looked up in state,
// then in input.
func (s scope) lookup(path []string) (any, bool) {
	var v any
	switch {
	case path[0] == "state":
		v = s.state
	case path[0] == "input":
		v = s.input
	case path[0] == "context":
		v = s.context
	case path[0] == "matrix" && s.matrix != nil:
		v = s.matrix
	default:
		var ok bool
		if v, ok = s.state[path[0]]; !ok {
			if v, ok = s.input[path[0]]; !ok {
				return nil, false
			}
		}
	}
	for _, key := range path[1:] {
		switch inner := v.(type) {
		case map[string]any:
			var ok bool
			if v, ok = inner[key]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(inner) {
				return nil, false
			}
			v = inner[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// value returns the value of a slot. A missing value or null is an error, because a command with a gap is rarely the
// intended one.
func (s scope) value(at *slot) (any, error) {
	v, ok := s.lookup(at.path)
	if !ok {
		return nil, fmt.Errorf("%s has no value here; an optional input needs a default, a state key an output that set it before", at)
	}
	if v == nil {
		return nil, fmt.Errorf("%s is null", at)
	}
	return v, nil
}

// command expands a command template. Slots become quoted words.
func (t *template) command(s scope) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		if p.slot == nil {
			b.WriteString(p.text)
			continue
		}
		v, err := s.value(p.slot)
		if err != nil {
			return "", err
		}
		list, many := v.([]any)
		if !many {
			list = []any{v}
		} else if p.slot.glued {
			return "", fmt.Errorf("%s is a list and touches other text; only a slot that is a word of its own can hold a list", p.slot)
		}
		for i, item := range list {
			if item == nil {
				return "", fmt.Errorf("%s holds null at place %d", p.slot, i)
			}
			word := plain(item)
			if err := tasks.Quotable(word); err != nil {
				return "", fmt.Errorf("%s %w", p.slot, err)
			}
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(tasks.Quote(word))
			if b.Len() > maxCommand {
				break
			}
		}
		if b.Len() > maxCommand {
			return "", fmt.Errorf("the command with the value of %s is longer than %d bytes; hand large values over in a file (lib_write_file)", p.slot, maxCommand)
		}
	}
	return b.String(), nil
}

// expand expands a text template. Slots become plain text.
func (t *template) expand(s scope) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		if p.slot == nil {
			b.WriteString(p.text)
			continue
		}
		v, err := s.value(p.slot)
		if err != nil {
			return "", err
		}
		b.WriteString(plain(v))
		if b.Len() > maxExpanded {
			return "", fmt.Errorf("the text with the value of %s is longer than %d bytes", p.slot, maxExpanded)
		}
	}
	return b.String(), nil
}

// plain returns a value as text. Texts are unchanged, and other values become JSON.
func plain(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// param is a parameter. It is JSON whose texts may be templates.
type param struct {
	constant any // used if no other field is set
	text     *template
	list     []*param
	fields   map[string]*param
	slotted  bool // it has a slot
}

// expand returns the parameter's value. A text that is exactly one slot keeps the type of the slot's value.
func (p *param) expand(s scope) (any, error) {
	switch {
	case p.text != nil:
		if len(p.text.parts) == 1 && p.text.parts[0].slot != nil {
			return s.value(p.text.parts[0].slot)
		}
		return p.text.expand(s)
	case p.list != nil:
		list := make([]any, len(p.list))
		for i, item := range p.list {
			v, err := item.expand(s)
			if err != nil {
				return nil, err
			}
			list[i] = v
		}
		return list, nil
	case p.fields != nil:
		return p.object(s)
	default:
		return p.constant, nil
	}
}

// object is expand for a mapping. A nil param is an empty one.
func (p *param) object(s scope) (map[string]any, error) {
	m := map[string]any{}
	if p == nil {
		return m, nil
	}
	for key, field := range p.fields {
		v, err := field.expand(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		m[key] = v
	}
	return m, nil
}
