package results

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/internal/pattern"
)

var (
	// placed matches "path/file.go:12:3: message", the format of go vet, gcc, ruff, flake8, clippy's short one and
	// others.
	placed = pattern.New(`^(?:vet: )?((?:[A-Za-z]:)?[^:\s][^:]*):([0-9]{1,9})(?::([0-9]{1,9}))?:? +(.+?)\s*$`)
	// tscPlaced matches "src/a.ts(3,7): error TS2322: message", the format of tsc.
	tscPlaced = pattern.New(`^([^(\s][^(]*)\(([0-9]{1,9}),([0-9]{1,9})\): (.+?)\s*$`)
)

// ParseFindings reads the positions in files that compilers and linters print. It skips all other lines.
func ParseFindings(out []byte) Lint {
	l := Lint{Findings: []Finding{}}
	seen := map[Finding]bool{}
	for raw := range bytes.Lines(ansi.ReplaceAll(out, nil)) {
		if len(raw) > 10_000 {
			continue
		}
		line := strings.TrimRight(string(raw), "\r\n")
		m := tscPlaced.FindStringSubmatch(line)
		if m == nil {
			m = placed.FindStringSubmatch(line)
		}
		// A time of day or a URL with a port has numbers between colons as well.
		if m == nil || strings.Contains(m[1], "//") || isDigits(m[1]) {
			continue
		}
		f := Finding{File: strings.TrimPrefix(m[1], "./"), Message: m[4]}
		f.Line, _ = strconv.Atoi(m[2])
		f.Column, _ = strconv.Atoi(m[3])
		// A position is reported once for a package and once for its test variant.
		if seen[f] {
			continue
		}
		seen[f] = true
		l.Add(f)
	}
	return l
}

func isDigits(s string) bool {
	return strings.Trim(s, "0123456789-T. ") == ""
}

// ParseESLint reads eslint's json format. Names below root become relative to it.
func ParseESLint(out []byte) (Lint, bool) {
	l := Lint{Findings: []Finding{}}
	i := bytes.IndexByte(out, '[')
	if i < 0 {
		return l, false
	}
	var files []struct {
		FilePath string
		Messages []struct {
			RuleID       *string
			Message      string
			Line, Column int
		}
	}
	if err := json.NewDecoder(bytes.NewReader(out[i:])).Decode(&files); err != nil {
		return l, false
	}
	for _, f := range files {
		for _, m := range f.Messages {
			message := m.Message
			if m.RuleID != nil && *m.RuleID != "" {
				message += " (" + *m.RuleID + ")"
			}
			l.Add(Finding{f.FilePath, m.Line, m.Column, message})
		}
	}
	return l, true
}
