package gitd

import (
	"bytes"
	"errors"
	"strings"
)

// attributeRules are the lines of one .gitattributes file (gitattributes(5)).
type attributeRules struct {
	rules []attributeRule
	// macros are attributes that set others where they are set. The last definition counts.
	macros map[string][]attribute
}

type attributeRule struct {
	pattern pathPattern
	sets    []attribute
}

// attribute is an attribute in one of its states.
type attribute struct {
	name  string
	value attributeValue
}

// attributeValue is the state of an attribute: "-name", "name", "!name" or "name=text".
// That nobody says anything of it is the zero value.
type attributeValue struct {
	state attributeState
	text  string
}

type attributeState byte

const (
	attributeUnknown attributeState = iota
	attributeSet
	attributeUnset     // "-name": set to false
	attributeUnsettled // "!name": as if nobody had said anything
	attributeText
)

// attributeLineMax is how long a line may be: git leaves longer ones out, or refuses them.
const attributeLineMax = 2048

// errAttributes: a .gitattributes file that git's releases read in different ways.
var errAttributes = errors.New("a line of .gitattributes is too long")

// parseAttributes reads a .gitattributes file. Lines that git leaves out, with a warning,
// are left out; macros count in the file at the root only.
func parseAttributes(data []byte, root bool) (attributeRules, error) {
	var rules attributeRules
	for line := range bytes.Lines(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))) {
		if len(line) >= attributeLineMax {
			return attributeRules{}, errAttributes
		}
		text, _, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), "\x00")
		rules.line(text, root)
	}
	return rules, nil
}

// attributeBlank is what stands between the words of a line.
const attributeBlank = " \t\r\n"

func (rules *attributeRules) line(line string, root bool) {
	line = strings.TrimLeft(line, attributeBlank)
	if line == "" || line[0] == '#' {
		return
	}
	name, rest, ok := unquoteC(line)
	if !ok {
		end := strings.IndexAny(line, attributeBlank)
		if end < 0 {
			end = len(line)
		}
		name, rest = line[:end], line[end:]
	}
	sets, ok := parseAttributeSets(rest)
	if !ok {
		return
	}
	const macro = "[attr]"
	if len(name) > len(macro) && strings.HasPrefix(name, macro) {
		words := strings.FieldsFunc(name[len(macro):], func(r rune) bool { return strings.ContainsRune(attributeBlank, r) })
		if root && len(words) > 0 && validAttribute(words[0]) {
			if rules.macros == nil {
				rules.macros = map[string][]attribute{}
			}
			rules.macros[words[0]] = sets
		}
		return
	}
	if len(sets) == 0 {
		return // it says nothing
	}
	if p := parsePathPattern(name); !p.negative {
		rules.rules = append(rules.rules, attributeRule{pattern: p, sets: sets})
	}
}

// parseAttributeSets reads the attributes behind a pattern. One name that is none spoils the line.
func parseAttributeSets(s string) ([]attribute, bool) {
	var sets []attribute
	for s = strings.TrimLeft(s, attributeBlank); s != ""; s = strings.TrimLeft(s, attributeBlank) {
		end := strings.IndexAny(s, attributeBlank)
		if end < 0 {
			end = len(s)
		}
		word := s[:end]
		s = s[end:]
		name, text, isText := strings.Cut(word, "=")
		value := attributeValue{state: attributeSet}
		switch {
		case strings.HasPrefix(name, "-"):
			name, value = name[1:], attributeValue{state: attributeUnset}
		case strings.HasPrefix(name, "!"):
			name, value = name[1:], attributeValue{state: attributeUnsettled}
		case isText:
			value = attributeValue{state: attributeText, text: text}
		}
		if !validAttribute(name) {
			return nil, false
		}
		sets = append(sets, attribute{name, value})
	}
	return sets, true
}

func validAttribute(name string) bool {
	if name == "" || name[0] == '-' {
		return false
	}
	for i := range len(name) {
		if c := name[i]; !isDigit(c) && !isLetter(c) && c != '-' && c != '.' && c != '_' {
			return false
		}
	}
	return true
}

// unquoteC reads a string in double quotes as git writes odd names, and returns what
// follows it.
func unquoteC(s string) (text, rest string, ok bool) {
	s, ok = strings.CutPrefix(s, `"`)
	if !ok {
		return "", "", false
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			i++
			if i == len(s) {
				return "", "", false
			}
			const escapes, bytes = `abfnrtv\"`, "\a\b\f\n\r\t\v\\\""
			if n := strings.IndexByte(escapes, s[i]); n >= 0 {
				b.WriteByte(bytes[n])
				continue
			}
			if i+2 >= len(s) || s[i] < '0' || s[i] > '3' || s[i+1] < '0' || s[i+1] > '7' || s[i+2] < '0' || s[i+2] > '7' {
				return "", "", false
			}
			b.WriteByte((s[i]-'0')<<6 | (s[i+1]-'0')<<3 | (s[i+2] - '0'))
			i += 2
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}

// builtinMacros are those that git knows without being told.
var builtinMacros = map[string][]attribute{"binary": {
	{"diff", attributeValue{state: attributeUnset}},
	{"merge", attributeValue{state: attributeUnset}},
	{"text", attributeValue{state: attributeUnset}},
}}

// macroDepthMax bounds how deep macros may stand in macros.
const macroDepthMax = 1000

// attributesOf finds out the attributes of a file by what says something about it. The
// rules come with the file's path as their folder sees it, the folder nearest to the file
// first and the root, whose macros count, last.
func attributesOf(name string, from []attributeSource, m *matching) map[string]attributeValue {
	values := map[string]attributeValue{}
	root := from[len(from)-1].rules.macros
	var fill func(sets []attribute, depth int)
	fill = func(sets []attribute, depth int) {
		if depth > macroDepthMax {
			m.doubt = true // git may have no stack for it
			return
		}
		m.steps += len(sets)
		for i := len(sets) - 1; i >= 0; i-- {
			a := sets[i]
			if values[a.name].state != attributeUnknown {
				continue
			}
			values[a.name] = a.value
			if a.value.state != attributeSet {
				continue
			}
			macro, ok := root[a.name]
			if !ok {
				macro = builtinMacros[a.name]
			}
			fill(macro, depth+1)
		}
	}
	for _, f := range from {
		for i := len(f.rules.rules) - 1; i >= 0; i-- {
			if rule := &f.rules.rules[i]; rule.pattern.match(f.path, name, false, m) {
				fill(rule.sets, 0)
			}
		}
	}
	return values
}

// attributeSource is one file's rules, and the path that is asked about as they see it.
type attributeSource struct {
	rules *attributeRules
	path  string
}

// conversion is what git does to a file between the work tree and the repository.
type conversion struct {
	portable string   // an attribute that only git itself can obey
	lines    lineEnds // what becomes of line ends on the way in
	crlf     bool     // on the way out a lone LF becomes CRLF
}

// lineEnds says what is done with CRLF on the way into the repository.
type lineEnds byte

const (
	linesKept lineEnds = iota // nothing
	linesText                 // it becomes LF
	linesAuto                 // it becomes LF where the file looks like text, and was not CRLF before
)

// conversionOf follows git's convert_attrs on a system whose own line end is LF, without
// configuration. A filter is not one then: no driver is configured.
func conversionOf(values map[string]attributeValue) conversion {
	if values["ident"].state == attributeSet {
		return conversion{portable: "ident"}
	}
	if e := values["working-tree-encoding"]; e.state != attributeUnknown && e.state != attributeUnsettled {
		return conversion{portable: "working-tree-encoding"}
	}
	said, known := textOf(values["text"])
	if !known {
		// The name that text had long ago.
		said, known = textOf(values["crlf"])
	}
	if known && said == linesKept {
		return conversion{}
	}
	c := conversion{lines: said}
	switch values["eol"] {
	case attributeValue{attributeText, "lf"}:
		c.lines = max(said, linesText)
	case attributeValue{attributeText, "crlf"}:
		c.lines, c.crlf = max(said, linesText), true
	}
	return c
}

// textOf reads the attribute text; known: it says something.
func textOf(v attributeValue) (lines lineEnds, known bool) {
	switch v {
	case attributeValue{state: attributeSet}, attributeValue{attributeText, "input"}:
		return linesText, true
	case attributeValue{state: attributeUnset}:
		return linesKept, true
	case attributeValue{attributeText, "auto"}:
		return linesAuto, true
	}
	return linesKept, false
}
