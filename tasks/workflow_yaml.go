package tasks

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds on the YAML of a workflow file. They are far above what people write
// and far below what hurts: a file is checked in well under a second.
const (
	maxYAMLFile   = 1 << 20 // bytes
	maxYAMLTokens = 100_000 // lexical tokens; the YAML parser is a recursive one
	maxYAMLDepth  = 64      // nesting
	maxYAMLValues = 50_000  // values once aliases are expanded
)

// value is a YAML value that knows its place. A tree of values has no aliases
// and no duplicate keys; parts may be shared, so a value is never changed.
type value struct {
	kind   valueKind
	line   int // of the value's first character, from 1
	column int // in characters, from 1
	text   string
	any    any      // of a scalar: nil, bool, int64, float64 or string
	style  style    // of a scalar
	items  []*value // of a list
	fields []field  // of a mapping, in written order
}

// field is one key of a mapping.
type field struct {
	key          string
	line, column int
	value        *value
}

type valueKind int

const (
	nullValue valueKind = iota
	boolValue
	numberValue
	stringValue
	listValue
	mapValue
	brokenValue // has been complained about; nothing more is said of it
)

// String names the kind as a sentence needs it.
func (k valueKind) String() string {
	return [...]string{"nothing", "true or false", "a number", "text", "a list", "a mapping", "nothing"}[k]
}

type style int

const (
	plainStyle style = iota
	singleQuoted
	doubleQuoted
	literalStyle // |
	foldedStyle  // >
)

// get is the value of a key, or nil.
func (v *value) get(key string) *value {
	if v == nil {
		return nil
	}
	for _, f := range v.fields {
		if f.key == key {
			return f.value
		}
	}
	return nil
}

// data is the value as JSON would have it.
func (v *value) data() any {
	switch v.kind {
	case listValue:
		list := make([]any, len(v.items))
		for i, item := range v.items {
			list[i] = item.data()
		}
		return list
	case mapValue:
		m := make(map[string]any, len(v.fields))
		for _, f := range v.fields {
			m[f.key] = f.value.data()
		}
		return m
	default:
		return v.any
	}
}

// document is a YAML file with its mistakes.
type document struct {
	file     string
	lines    []string
	problems Problems
}

// problem notes a mistake at a place.
func (d *document) problem(line, column int, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	if len(message) > maxMessage {
		// What was written is part of many messages, and may be anything.
		message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	d.problems = append(d.problems, Problem{
		File: d.file, Line: max(line, 1), Column: max(column, 1),
		Message: message, Source: sourceLine(d.lines, max(line, 1)),
	})
}

// at notes a mistake at a value.
func (d *document) at(v *value, format string, args ...any) {
	if v.kind == brokenValue {
		return
	}
	d.problem(v.line, v.column, format, args...)
}

// within notes a mistake at a byte offset inside a scalar's text. Where the
// text stands in the file as it is (plain, quoted without escapes, literal
// block), the place is exact; elsewhere it is the scalar's beginning.
func (d *document) within(v *value, offset int, format string, args ...any) {
	line, column := d.place(v, offset)
	d.problem(line, column, format, args...)
}

func (d *document) place(v *value, offset int) (line, column int) {
	offset = min(max(offset, 0), len(v.text))
	before := v.text[:offset]
	current := before[strings.LastIndexByte(before, '\n')+1:]
	whole := v.text[offset-len(current):]
	if i := strings.IndexByte(whole, '\n'); i >= 0 {
		whole = whole[:i]
	}
	line = v.line + strings.Count(before, "\n")
	if v.style == literalStyle {
		line++ // the text begins below the mark
	} else if line != v.line {
		return v.line, v.column // a line break in the text is an escape or a folded one
	}
	if line < 1 || line > len(d.lines) {
		return v.line, v.column
	}
	source := d.lines[line-1]
	start := 0
	if v.style != literalStyle {
		skip := v.column - 1
		if v.style != plainStyle {
			skip++ // the quote
		}
		for range skip {
			_, n := utf8.DecodeRuneInString(source[start:])
			start += n
		}
	} else {
		start = strings.Index(source, whole)
	}
	if start < 0 || !strings.HasPrefix(source[start:], current) {
		return v.line, v.column
	}
	return line, utf8.RuneCountInString(source[:start]+current) + 1
}

// parseYAML reads one YAML document. Mistakes go into the document; nil means
// that there is nothing to look at.
func parseYAML(file string, data []byte) (*document, *value) {
	d := &document{file: file}
	if len(data) > maxYAMLFile {
		d.problem(1, 1, "the file has %d bytes; a workflow file may have %d", len(data), maxYAMLFile)
		return d, nil
	}
	text := strings.TrimPrefix(string(data), "\ufeff")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	d.lines = strings.Split(text, "\n")
	for i, line := range d.lines {
		if !utf8.ValidString(line) {
			good := 0
			for _, r := range line {
				if r == utf8.RuneError {
					break
				}
				good++
			}
			d.lines[i] = strings.ToValidUTF8(line, "\uFFFD")
			d.problem(i+1, good+1, "this is not UTF-8")
			return d, nil
		}
		if j := strings.IndexFunc(line, func(r rune) bool {
			return r < ' ' && r != '\t' || r == 0x7f
		}); j >= 0 {
			d.problem(i+1, utf8.RuneCountInString(line[:j])+1, "a control character (%#02x) may not stand in a YAML file", line[j])
			return d, nil
		}
	}
	tokens := lexer.Tokenize(text)
	if !d.bounded(tokens) || !d.tabs(tokens) {
		return d, nil
	}
	tree, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		d.syntax(err)
		return d, nil
	}
	var bodies []ast.Node
	for _, doc := range tree.Docs {
		if doc.Body != nil {
			bodies = append(bodies, doc.Body)
		}
	}
	switch {
	case len(bodies) == 0:
		d.problem(1, 1, "the file is empty; a workflow needs at least an id and nodes")
		return d, nil
	case len(bodies) > 1:
		at := bodies[1].GetToken().Position
		d.problem(at.Line, 1, "a second YAML document begins here; a workflow file holds one")
		return d, nil
	}
	e := &expander{document: d, anchors: map[string]*value{}}
	v := e.expand(bodies[0], 0)
	if e.stopped {
		return d, nil
	}
	return d, v
}

// bounded looks at the tokens before the parser does, since the parser follows
// nesting by recursion and a Go stack that overflows cannot be recovered from.
func (d *document) bounded(tokens token.Tokens) bool {
	if len(tokens) > maxYAMLTokens {
		at := tokens[maxYAMLTokens].Position
		d.problem(at.Line, at.Column, "the file has %d YAML tokens; a workflow file may have %d", len(tokens), maxYAMLTokens)
		return false
	}
	depth, line, inLine := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			line, inLine = t.Position.Line, 0
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth--
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			inLine++ // "- - - -" nests within one line
		}
		if depth > maxYAMLDepth || depth == 0 && inLine > maxYAMLDepth || t.Position.Column > 16*maxYAMLDepth && isBlockEntry(t) {
			d.problem(t.Position.Line, t.Position.Column, "nested more than %d deep", maxYAMLDepth)
			return false
		}
	}
	return true
}

// tabs reports tabs that the YAML parser would get wrong: it drops them from
// plain text, and loses count of lines behind them in double quotes.
func (d *document) tabs(tokens token.Tokens) bool {
	good := true
	for _, t := range tokens {
		switch {
		case t.Type == token.DoubleQuoteType && strings.Contains(t.Origin, "\t"):
			d.problem(t.Position.Line, t.Position.Column, `a tab stands in this text; write \t for it, or put the text into a | block`)
			return false // further places cannot be told
		case t.Type == token.StringType && t.CharacterType == token.CharacterTypeMiscellaneous && strings.Contains(strings.TrimSpace(t.Origin), "\t") && !d.inBlock(t):
			d.problem(t.Position.Line, t.Position.Column, "a tab stands in this text and would be lost; put the text into quotes or into a | block")
			good = false
		}
	}
	return good
}

// inBlock tells whether a token is the text of a | or > block.
func (d *document) inBlock(t *token.Token) bool {
	for t = t.Prev; t != nil && t.Type == token.CommentType; t = t.Prev {
	}
	return t != nil && (t.Type == token.LiteralType || t.Type == token.FoldedType)
}

// isBlockEntry tells whether a token opens a level of a block by its indentation.
func isBlockEntry(t *token.Token) bool {
	return t.Type == token.SequenceEntryType || t.Type == token.MappingValueType &&
		t.Prev != nil && (t.Prev.Prev == nil || t.Prev.Prev.Position.Line != t.Position.Line)
}

// syntax turns the parser's error into a problem.
func (d *document) syntax(err error) {
	var bad *yaml.SyntaxError
	if !errors.As(err, &bad) || bad.Token == nil {
		d.problem(1, 1, "this is not YAML: %v", err)
		return
	}
	at, message := bad.Token.Position, bad.Message
	source := sourceLine(d.lines, at.Line)
	switch {
	case strings.HasPrefix(strings.TrimLeft(source, " "), "\t"):
		message = "a tab indents this line; YAML wants spaces"
	case strings.Contains(source, ": {{"):
		message += "; a value that begins with {{ must stand in quotes, or YAML takes it for a mapping"
	}
	d.problem(at.Line, at.Column, "%s", message)
}

// expander turns the parser's tree into values: aliases are replaced by what
// they name, and what that costs is counted.
type expander struct {
	*document
	anchors map[string]*value
	sizes   map[*value]int // values below a value, once expanded
	count   int
	stopped bool
}

// stop ends the expansion at a mistake that would repeat without end.
func (e *expander) stop(t *token.Token, format string, args ...any) *value {
	if !e.stopped {
		e.stopped = true
		e.problem(t.Position.Line, t.Position.Column, format, args...)
	}
	return &value{line: t.Position.Line, column: t.Position.Column}
}

// broken notes a mistake at a value that nothing can be made of.
func (e *expander) broken(v *value, format string, args ...any) {
	e.at(v, format, args...)
	v.kind = brokenValue
}

func (e *expander) expand(n ast.Node, depth int) *value {
	if n == nil {
		return &value{line: 1, column: 1}
	}
	t := n.GetToken()
	if e.stopped {
		return &value{line: t.Position.Line, column: t.Position.Column}
	}
	if depth > maxYAMLDepth {
		return e.stop(t, "nested more than %d deep", maxYAMLDepth)
	}
	if e.count++; e.count > maxYAMLValues {
		return e.stop(t, "the file has more than %d values once its aliases are expanded", maxYAMLValues)
	}
	v := &value{line: t.Position.Line, column: t.Position.Column, text: t.Value}
	switch n := n.(type) {
	case *ast.MappingNode:
		e.mapping(v, n, depth)
	case *ast.MappingValueNode:
		e.mapping(v, ast.Mapping(t, false, n), depth)
	case *ast.SequenceNode:
		v.kind = listValue
		for _, item := range n.Values {
			v.items = append(v.items, e.expand(item, depth+1))
		}
	case *ast.AnchorNode:
		name := n.Name.GetToken().Value
		inner := e.expand(n.Value, depth+1)
		e.anchors[name] = inner
		return inner
	case *ast.AliasNode:
		name := n.Value.GetToken().Value
		target, ok := e.anchors[name]
		if !ok {
			e.broken(v, "no anchor &%s stands before this alias", name)
			return v
		}
		size, deep := e.measure(target)
		if depth+deep > maxYAMLDepth {
			return e.stop(t, "nested more than %d deep once its aliases are expanded", maxYAMLDepth)
		}
		if e.count += size; e.count > maxYAMLValues {
			return e.stop(t, "the file has more than %d values once its aliases are expanded", maxYAMLValues)
		}
		return target
	case *ast.LiteralNode:
		v.kind, v.style, v.text = stringValue, literalStyle, n.Value.Value
		if strings.HasPrefix(t.Value, ">") {
			v.style = foldedStyle
		}
		v.any = v.text
	case *ast.StringNode:
		v.kind, v.text, v.any = stringValue, n.Value, n.Value
		switch t.Type {
		case token.SingleQuoteType:
			v.style = singleQuoted
		case token.DoubleQuoteType:
			v.style = doubleQuoted
		}
	case *ast.BoolNode:
		v.kind, v.any = boolValue, n.Value
	case *ast.NullNode:
		v.kind = nullValue
	case *ast.IntegerNode:
		v.kind = numberValue
		switch i := n.Value.(type) {
		case int64:
			v.any = i
		case uint64:
			v.any = float64(i)
			if i <= math.MaxInt64 {
				v.any = int64(i)
			}
		default:
			e.broken(v, "%s is not a number that can be used here", strconv.Quote(v.text))
		}
	case *ast.FloatNode:
		v.kind, v.any = numberValue, n.Value
		if math.IsInf(n.Value, 0) || math.IsNaN(n.Value) {
			e.broken(v, "%s is not a number that can be used here", v.text)
		}
	case *ast.TagNode:
		e.broken(v, "tags (%s) are not used here", v.text)
	case *ast.MergeKeyNode:
		e.broken(v, "merge keys (<<) are not used here; repeat the keys, or give the whole mapping by an alias")
	default:
		e.broken(v, "%s cannot stand in a workflow file", strings.ToLower(n.Type().String()))
	}
	return v
}

func (e *expander) mapping(v *value, n *ast.MappingNode, depth int) {
	v.kind = mapValue
	seen := map[string]field{}
	for i, entry := range n.Values {
		key := entry.Key.GetToken()
		if i == 0 && !n.IsFlowStyle {
			// The parser gives a block mapping the place of its first colon.
			v.line, v.column = key.Position.Line, key.Position.Column
		}
		f := field{key: key.Value, line: key.Position.Line, column: key.Position.Column}
		switch entry.Key.(type) {
		case *ast.MergeKeyNode:
			e.problem(f.line, f.column, "merge keys (<<) are not used here; repeat the keys, or give the whole mapping by an alias")
			continue
		case *ast.MappingKeyNode, *ast.AliasNode, *ast.AnchorNode, *ast.TagNode:
			e.problem(f.line, f.column, "a key must be plain text")
			continue
		}
		f.value = e.expand(entry.Value, depth+1)
		if first, ok := seen[f.key]; ok {
			e.problem(f.line, f.column, "the key %q stands here twice, first in line %d", f.key, first.line)
			continue
		}
		seen[f.key] = f
		v.fields = append(v.fields, f)
	}
}

// measure is how many values a value has below it, and how deep. Since anchors
// only name what stands before them there is no circle; remembering the size of
// what was measured keeps a file of aliases to aliases cheap.
func (e *expander) measure(v *value) (size, deep int) {
	if len(v.items) == 0 && len(v.fields) == 0 {
		return 1, 1
	}
	if e.sizes == nil {
		e.sizes = map[*value]int{}
	}
	if packed, ok := e.sizes[v]; ok {
		return packed >> 8, packed & 0xff
	}
	size = 1
	add := func(child *value) {
		s, d := e.measure(child)
		size, deep = min(size+s, maxYAMLValues+1), max(deep, d)
	}
	for _, item := range v.items {
		add(item)
	}
	for _, f := range v.fields {
		add(f.value)
	}
	deep = min(deep+1, 0xff)
	e.sizes[v] = size<<8 | deep
	return size, deep
}

// kindOf says what a value is, for a message about what it should have been.
func kindOf(v *value) string {
	if v.kind == numberValue {
		return v.text
	}
	if v.kind == stringValue && v.text != "" && len(v.text) <= 40 && !strings.Contains(v.text, "\n") {
		return fmt.Sprintf("the text %q", v.text)
	}
	return v.kind.String()
}
