package pathspec

import (
	"bytes"
	"errors"
	"strings"
)

// Attributes holds the lines of one .gitattributes file (gitattributes(5)). The zero value
// has no lines.
type Attributes struct {
	rules []attributeRule
	// macros maps an attribute to the attributes that it sets. The last definition counts.
	macros map[string][]attribute
}

// Empty reports whether no line sets an attribute of a path.
func (rules *Attributes) Empty() bool { return len(rules.rules) == 0 }

// attributeRule is one line, which is a pattern and the attributes that it sets.
type attributeRule struct {
	pattern pattern
	sets    []attribute
}

// attribute is a name and its value.
type attribute struct {
	name  string
	value Value
}

// Value is the value of an attribute, written as "-name", "name", "!name" or "name=text".
// The zero value means that no line mentions the attribute.
type Value struct {
	state attributeState
	text  string
}

// attributeState is the kind of a [Value].
type attributeState byte

const (
	stateUnknown attributeState = iota
	stateSet
	stateUnset       // "-name", set to false
	stateUnspecified // "!name", as if no line mentioned the attribute
	stateText
)

// maxAttributeLine bounds the bytes of a line. Git skips longer lines or refuses the file,
// depending on its release.
const maxAttributeLine = 2048

// errAttributes means that releases of git read a .gitattributes file in different ways.
var errAttributes = errors.New("a line of .gitattributes is too long")

// ParseAttributes parses a .gitattributes file. It skips the lines that git skips with a
// warning. Macros count only if root reports that the file is at the root of the work tree.
// Returns an error if releases of git read the file in different ways.
func ParseAttributes(data []byte, root bool) (Attributes, error) {
	var rules Attributes
	for line := range bytes.Lines(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))) {
		if len(line) >= maxAttributeLine {
			return Attributes{}, errAttributes
		}
		text, _, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), "\x00")
		rules.addLine(text, root)
	}
	return rules, nil
}

// attributeBlank holds the characters that separate the words of a line.
const attributeBlank = " \t\r\n"

// addLine parses one line. It adds nothing if git skips the line.
func (rules *Attributes) addLine(line string, root bool) {
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
		return // the line sets nothing
	}
	if p := parsePattern(name); !p.negative {
		rules.rules = append(rules.rules, attributeRule{pattern: p, sets: sets})
	}
}

// parseAttributeSets parses the attributes that follow a pattern. Returns false if one of the
// names is invalid, which makes git skip the line.
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
		value := Value{state: stateSet}
		switch {
		case strings.HasPrefix(name, "-"):
			name, value = name[1:], Value{state: stateUnset}
		case strings.HasPrefix(name, "!"):
			name, value = name[1:], Value{state: stateUnspecified}
		case isText:
			value = Value{state: stateText, text: text}
		}
		if !validAttribute(name) {
			return nil, false
		}
		sets = append(sets, attribute{name, value})
	}
	return sets, true
}

// validAttribute reports whether git accepts the name of an attribute.
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

// unquoteC parses a string in double quotes, the form in which git writes unusual names. rest
// is the text after the closing quote. ok is false if s does not begin with a valid string.
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

// builtinMacros are the macros that git defines itself.
var builtinMacros = map[string][]attribute{"binary": {
	{"diff", Value{state: stateUnset}},
	{"merge", Value{state: stateUnset}},
	{"text", Value{state: stateUnset}},
}}

// macroDepthMax bounds the depth to which macros expand to macros.
const macroDepthMax = 1000

// Resolve returns the attributes of a file. name is the last part of its path. sources holds
// one entry for each folder above the file, the nearest folder first and the root, the only
// one whose macros count, last. Resolve adds its cost to m. It panics if sources is empty.
func Resolve(name string, sources []Source, m *Tally) map[string]Value {
	values := map[string]Value{}
	root := sources[len(sources)-1].Attributes.macros
	var fill func(sets []attribute, depth int)
	fill = func(sets []attribute, depth int) {
		if depth > macroDepthMax {
			m.Ambiguous = true // the stack of git may not suffice
			return
		}
		m.Steps += len(sets)
		for i := len(sets) - 1; i >= 0; i-- {
			a := sets[i]
			if values[a.name].state != stateUnknown {
				continue
			}
			values[a.name] = a.value
			if a.value.state != stateSet {
				continue
			}
			macro, ok := root[a.name]
			if !ok {
				macro = builtinMacros[a.name]
			}
			fill(macro, depth+1)
		}
	}
	for _, f := range sources {
		for i := len(f.Attributes.rules) - 1; i >= 0; i-- {
			if rule := &f.Attributes.rules[i]; rule.pattern.match(f.Path, name, false, m) {
				fill(rule.sets, 0)
			}
		}
	}
	return values
}

// Source is one .gitattributes file and a path relative to the folder of that file.
type Source struct {
	Attributes *Attributes // must not be nil
	Path       string
}

// Conversion is the effect of attributes on the content of a file between the work tree and
// the repository. The zero value leaves the content unchanged.
type Conversion struct {
	GitOnly string   // the name of an attribute that only git itself can obey, or ""
	Lines   LineEnds // the treatment of line ends on the way into the repository
	CRLF    bool     // on the way out, a lone LF becomes CRLF
	Large   bool     // the filter is that of Git LFS, on the way into the repository
}

// LineEnds is the treatment of CRLF on the way into the repository.
type LineEnds byte

const (
	LinesKept LineEnds = iota // CRLF stays
	LinesText                 // CRLF becomes LF
	LinesAuto                 // CRLF becomes LF if the file looks like text and had no CRLF before
)

// ConversionOf follows convert_attrs of git on a system whose own line end is LF, without
// configuration. Of the attribute filter it knows that of Git LFS alone, because no other filter driver is configured.
func ConversionOf(values map[string]Value) Conversion {
	c := textConversionOf(values)
	c.Large = values["filter"] == Value{stateText, "lfs"}
	return c
}

func textConversionOf(values map[string]Value) Conversion {
	if values["ident"].state == stateSet {
		return Conversion{GitOnly: "ident"}
	}
	if e := values["working-tree-encoding"]; e.state != stateUnknown && e.state != stateUnspecified {
		return Conversion{GitOnly: "working-tree-encoding"}
	}

	lines, known := lineEndsOf(values["text"])
	if !known {
		lines, known = lineEndsOf(values["crlf"]) // the former name of text
	}
	if known && lines == LinesKept {
		return Conversion{}
	}

	c := Conversion{Lines: lines}
	switch values["eol"] {
	case Value{stateText, "lf"}:
		c.Lines = max(lines, LinesText)
	case Value{stateText, "crlf"}:
		c.Lines, c.CRLF = max(lines, LinesText), true
	}
	return c
}

// lineEndsOf interprets the attribute text. known reports whether the attribute decides.
func lineEndsOf(v Value) (lines LineEnds, known bool) {
	switch v {
	case Value{state: stateSet}, Value{stateText, "input"}:
		return LinesText, true
	case Value{state: stateUnset}:
		return LinesKept, true
	case Value{stateText, "auto"}:
		return LinesAuto, true
	}
	return LinesKept, false
}
