package acp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/ramus-dev/ramus/internal/text"
)

// Bounds of a question in words, in bytes.
const (
	maxTitle   = 512  // the title of the call
	maxKind    = 40   // its kind
	maxCommand = 1536 // the command, and the input as JSON
)

// Describe returns the question for a person, and the command that it is about, or "". The words do not repeat the
// command, nor an input that the title contains. Any other input is in the words as JSON. If the title, the command or
// the input is longer than its bound, the words have its length, so that a person knows that a part is not shown.
func (q Question) Describe() (words, command string) {
	title, kind := q.Tool.Words(), ""
	if k := text.OneLine(q.Tool.Kind, maxKind); k != "" {
		kind = " (" + k + ")"
	}
	command, rest := splitInput(q.Tool.RawInput, title)
	cut := cutNote("command", command, maxCommand) + cutNote("input", rest, maxCommand)
	bare := strings.Trim(title, "` ")
	if flat := strings.Join(strings.Fields(command), " "); flat != "" && strings.HasSuffix(bare, flat) &&
		len(bare)-len(flat) < 20 {
		words = "The agent asks for permission to run a command" + kind + ":"
	} else {
		words = "The agent asks for permission: " + text.Clip(title, maxTitle) + kind
		cut = cutNote("title", title, maxTitle) + cut
	}
	words += cut
	if rest != "" {
		words += "\n" + text.Clip(rest, maxCommand)
	}
	return words, text.Clip(command, maxCommand)
}

// cutNote returns a line with the number of bytes of a part of a question that are shown, or "" if all are.
func cutNote(part, s string, limit int) string {
	if len(s) <= limit {
		return ""
	}
	return fmt.Sprintf("\nOnly the first %d of %d bytes of the %s are shown.", len(text.Head(s, limit)), len(s), part)
}

// splitInput returns the command of an input, and the fields that neither the command nor the title contains, as JSON.
func splitInput(raw json.RawMessage, title string) (command, rest string) {
	if len(raw) == 0 {
		return "", ""
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var value any
	if d.Decode(&value) != nil {
		return "", string(raw)
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return "", readable(value)
	}
	if s, ok := fields["command"].(string); ok && strings.TrimSpace(s) != "" {
		command = strings.TrimSpace(s)
		delete(fields, "command")
	}
	if len(fields) > 1 { // a title does not say which value is which
		return command, readable(fields)
	}
	for name, v := range fields {
		s, ok := v.(string)
		if !ok || !slices.Contains(titled, name) ||
			!slices.Contains(strings.FieldsFunc(title, inTitle), s) && s != title {
			return command, readable(fields)
		}
	}
	return command, ""
}

// titled lists the fields that a title may repeat. Any other field is shown, also if its value is in the title.
var titled = []string{"path", "file_path", "url", "query", "pattern", "description"}

// inTitle reports whether a character is between the words of a title.
func inTitle(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("`'\"", r) }

// readable returns a value as JSON with the characters <, > and & as they are.
func readable(value any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return "" // it was decoded from JSON
	}
	return strings.TrimSpace(b.String())
}

// Command returns the command line that the question is about, as the agent names it, or "".
func (q Question) Command() string {
	command, _ := splitInput(q.Tool.RawInput, "")
	return command
}
