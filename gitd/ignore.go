package gitd

import (
	"bytes"
	"strings"
)

// ignoreRules are the patterns of one .gitignore or info/exclude, in their order.
type ignoreRules []pathPattern

// ruleFileMax is how large the .gitignore and .gitattributes that are read in process may
// be, each and, of one work tree, together.
const ruleFileMax = 1 << 20

// parseIgnore reads a .gitignore (gitignore(5)). There is none that git would refuse.
func parseIgnore(data []byte) ignoreRules {
	rules := make(ignoreRules, 0, bytes.Count(data, []byte("\n"))+1)
	for line := range bytes.Lines(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))) {
		text := strings.TrimSuffix(string(line), "\n")
		if text == "" || text[0] == '#' {
			continue
		}
		text, _, _ = strings.Cut(strings.TrimSuffix(text, "\r"), "\x00")
		rules = append(rules, parsePathPattern(withoutTrailingSpaces(text)))
	}
	return rules
}

// withoutTrailingSpaces leaves a space at the end that has a backslash before it.
func withoutTrailingSpaces(s string) string {
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

// verdict is what rules say about a path.
type verdict byte

const (
	silent  verdict = iota // nothing
	ignored                // it is ignored
	kept                   // a pattern with "!" takes back that it is
)

// of asks the rules about path, relative to their folder, with the last part name: the last
// pattern that matches decides.
func (rules ignoreRules) of(path, name string, folder bool, m *matching) verdict {
	for i := len(rules) - 1; i >= 0; i-- {
		if rules[i].match(path, name, folder, m) {
			if rules[i].negative {
				return kept
			}
			return ignored
		}
	}
	return silent
}
