package environment

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// AddSetup returns a file with further setup commands, each once, after those that it has. The rest of the file stays as
// it is written. The file must have no mistake, and the result has none.
func AddSetup(text []byte, commands []string) ([]byte, error) {
	f, err := Parse(Path, text)
	if err != nil {
		return nil, err
	}
	all := slices.Clone(f.Setup)
	for _, c := range commands {
		if !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	if len(all) == len(f.Setup) {
		return text, nil
	}
	section := "setup:\n"
	for _, c := range all {
		var quoted strings.Builder // a text of JSON is one of YAML
		enc := json.NewEncoder(&quoted)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(c); err != nil {
			return nil, err
		}
		section += "  - " + quoted.String()
	}

	lines := strings.SplitAfter(string(text), "\n")
	from, to := setupLines(lines)
	before := strings.Join(lines[:from], "")
	if before != "" && !strings.HasSuffix(before, "\n") {
		before += "\n"
	}
	edited := []byte(before + section + strings.Join(lines[to:], ""))
	if _, err := Parse(Path, edited); err != nil {
		return nil, fmt.Errorf("cannot add setup commands to %s; write them by hand: %w", Path, err)
	}
	return edited, nil
}

// setupLines returns the lines of the setup key. If there is none, both are the end of the file.
func setupLines(lines []string) (from, to int) {
	from = slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "setup:") })
	if from < 0 {
		return len(lines), len(lines)
	}
	for to = from + 1; to < len(lines); to++ {
		if l := lines[to]; l != "" && !strings.ContainsRune(" \t\r\n-]", rune(l[0])) {
			break // the next key, or a comment before it
		}
	}
	// Blank lines belong to the entry after them. The first line is not blank.
	for strings.TrimSpace(lines[to-1]) == "" {
		to--
	}
	return from, to
}
