package pathspec

import (
	"bytes"
	"strings"
)

// Ignore holds the patterns of one .gitignore or info/exclude in the order of the file. The
// zero value has no patterns.
type Ignore []pattern

// MaxFile is the largest size in bytes of a .gitignore or .gitattributes that callers should
// read in process. It also bounds the sum of these files in one work tree.
const MaxFile = 1 << 20

// ParseIgnore parses a .gitignore (gitignore(5)). It accepts every content, as git does.
func ParseIgnore(data []byte) Ignore {
	rules := make(Ignore, 0, bytes.Count(data, []byte("\n"))+1)
	for line := range bytes.Lines(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))) {
		text := strings.TrimSuffix(string(line), "\n")
		if text == "" || text[0] == '#' {
			continue
		}
		text, _, _ = strings.Cut(strings.TrimSuffix(text, "\r"), "\x00")
		rules = append(rules, parsePattern(trimTrailingSpaces(text)))
	}
	return rules
}

// trimTrailingSpaces removes the spaces at the end of s. A space that follows a backslash
// stays.
func trimTrailingSpaces(s string) string {
	end := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case ' ':
			continue
		case '\\':
			if i++; i == len(s) {
				return s
			}
		}
		end = i + 1
	}
	return s[:end]
}

// Verdict is the answer of an [Ignore] for a path.
type Verdict byte

const (
	Undecided Verdict = iota // no pattern matches
	Ignored                  // the path is ignored
	Kept                     // a pattern with "!" excepts the path from an earlier pattern
)

// Match returns the verdict of the last pattern that matches path. The path is relative to
// the folder of the file, and name is its last part. folder reports whether it is a folder.
// Match adds its cost to tally.
func (rules Ignore) Match(path, name string, folder bool, tally *Tally) Verdict {
	for i := len(rules) - 1; i >= 0; i-- {
		if rules[i].match(path, name, folder, tally) {
			if rules[i].negative {
				return Kept
			}
			return Ignored
		}
	}
	return Undecided
}
