package document

import (
	"bytes"
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

// Bounds on the YAML of a file. They are far above files that people write. A file within them is checked in well under
// a second.
const (
	maxYAMLTokens = 100_000 // lexical tokens, because the YAML parser is recursive
	maxYAMLDepth  = 64      // nesting
	maxYAMLValues = 50_000  // values after the expansion of aliases
	maxYAMLKeys   = 1_000   // keys of one block mapping, because the YAML parser's time grows with their square
	maxYAMLBlank  = 100     // consecutive lines without text, because the YAML lexer's time is their product with the text before them
	maxYAMLText   = 2       // bytes of text after the expansion of aliases, as a multiple of the largest file
)

// Value is a YAML value that knows its position. A tree of values has no aliases and no duplicate keys. Parts may be
// shared, so a Value is never changed.
type Value struct {
	Kind   ValueKind
	Line   int // of the value's first character, from 1
	Column int // in characters, from 1
	Text   string
	Any    any      // of a scalar: nil, bool, int64, float64 or string
	style  style    // of a scalar
	Items  []*Value // of a list
	Fields []Field  // of a mapping, in written order
}

// Field is one key of a mapping.
type Field struct {
	Key          string
	Line, Column int
	Value        *Value
}

type ValueKind int

const (
	NullValue ValueKind = iota
	BoolValue
	NumberValue
	StringValue
	ListValue
	MapValue
	BrokenValue // its mistake was reported, and no further ones are
)

// String returns the kind for use in a sentence.
func (k ValueKind) String() string {
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

// Get returns the value of a key, or nil.
func (v *Value) Get(key string) *Value {
	if v == nil {
		return nil
	}
	for _, f := range v.Fields {
		if f.Key == key {
			return f.Value
		}
	}
	return nil
}

// Implied returns a text that is not in the file. Mistakes in it are reported at the given position.
func Implied(text string, line, column int) *Value {
	return &Value{Kind: StringValue, Text: text, Line: line, Column: column, style: foldedStyle}
}

// Data returns the value in the types of JSON.
func (v *Value) Data() any {
	switch v.Kind {
	case ListValue:
		list := make([]any, len(v.Items))
		for i, item := range v.Items {
			list[i] = item.Data()
		}
		return list
	case MapValue:
		m := make(map[string]any, len(v.Fields))
		for _, f := range v.Fields {
			m[f.Key] = f.Value.Data()
		}
		return m
	default:
		return v.Any
	}
}

// Document is a file with its mistakes.
type Document struct {
	Format
	Problems Problems // in the order in which they were found

	file   string
	lines  []string
	placed *places // of the value of the last call
	cursor cursor
	cut    excerpt // of the line that was shown last
	more   int     // mistakes beyond maxKept
}

// excerpt is a line in the form of messages.
type excerpt struct {
	line int
	text string
}

// maxKept bounds the mistakes that are kept with their texts. Further ones are counted.
const maxKept = 10 * maxProblems

// Full reports whether the document has so many mistakes that further ones are only counted.
func (d *Document) Full() bool { return len(d.Problems) >= maxKept }

// Mistakes returns the problems in the order of their positions, and a note about the number of the others.
func (d *Document) Mistakes() Problems {
	all := d.Problems.Sorted()
	if d.more == 0 {
		return all
	}
	last := &all[len(all)-1]
	last.Message = fmt.Sprintf("and %d more mistakes from here on", len(d.Problems)-maxProblems+d.more)
	return all
}

// Suggest is like [Suggest], but returns "" once the document is full.
func (d *Document) Suggest(name string, candidates func() []string) string {
	if d.Full() {
		return ""
	}
	return Suggest(name, candidates())
}

// Problem reports a mistake at a position.
func (d *Document) Problem(line, column int, format string, args ...any) {
	if d.Full() {
		d.more++
		return
	}
	line = max(line, 1)
	if d.cut.line != line {
		d.cut = excerpt{line, sourceLine(d.lines, line)}
	}
	for i, arg := range args {
		if text, ok := arg.(string); ok && len(text) > maxMessage {
			args[i] = text[:maxMessage+1] // longer than the message may be, so that the message is clipped below
		}
	}
	message := fmt.Sprintf(format, args...)
	if len(message) > maxMessage {
		// Many messages contain a part of the file, which may be anything.
		message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	d.Problems = append(d.Problems, Problem{
		File: d.file, Line: line, Column: max(column, 1), Message: message, Source: d.cut.text,
	})
}

// At reports a mistake at a value.
func (d *Document) At(v *Value, format string, args ...any) {
	if v.Kind == BrokenValue {
		return
	}
	d.Problem(v.Line, v.Column, format, args...)
}

// Within reports a mistake at a byte offset inside a scalar's text. The position is exact if the text is in the file
// unchanged (plain, quoted without escapes, literal block). Otherwise it is the beginning of the scalar.
func (d *Document) Within(v *Value, offset int, format string, args ...any) {
	line, column := d.Place(v, offset)
	d.Problem(line, column, format, args...)
}

// Format is a kind of file.
type Format struct {
	Noun     string // name of such a file in messages, as "workflow file"
	Needs    string // message for an empty file, as "a workflow needs at least an id and nodes"
	MaxBytes int    // larger files are not read
}

// Blank reports whether a file has nothing but comments. It is false for a file that is too large.
func (f Format) Blank(text []byte) bool {
	if len(text) > f.MaxBytes {
		return false
	}
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// Parse reads one YAML document. Mistakes are in the returned document, whose messages call it file. The value is nil
// if there is none to read.
func (f Format) Parse(file string, data []byte) (*Document, *Value) {
	d := &Document{Format: f, file: file}
	if len(data) > f.MaxBytes {
		d.Problem(1, 1, "the file has %d bytes; a %s may have %d", len(data), f.Noun, f.MaxBytes)
		return d, nil
	}
	text := strings.TrimPrefix(string(data), "\ufeff")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	d.lines = strings.Split(text, "\n")
	blank := 0
	for i, line := range d.lines {
		if blank++; strings.Trim(line, " \t") != "" {
			blank = 0
		}
		if blank > maxYAMLBlank && i < len(d.lines)-1 {
			d.Problem(i+1, 1, "more than %d lines without text in a row", maxYAMLBlank)
			return d, nil
		}
		if !utf8.ValidString(line) {
			good := 0
			for _, r := range line {
				if r == utf8.RuneError {
					break
				}
				good++
			}
			d.lines[i] = strings.ToValidUTF8(line, "\uFFFD")
			d.Problem(i+1, good+1, "this is not UTF-8")
			return d, nil
		}
		if j := strings.IndexFunc(line, func(r rune) bool {
			return r < ' ' && r != '\t' || r == 0x7f
		}); j >= 0 {
			d.Problem(i+1, utf8.RuneCountInString(line[:j])+1,
				"a control character (%#02x) is not allowed in a YAML file", line[j])
			return d, nil
		}
	}
	// Without a line break at the end, the lexer does not fold the last line of a text.
	ended := strings.TrimSpace(d.lines[len(d.lines)-1]) == ""
	if !ended {
		text += "\n"
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
		d.Problem(1, 1, "the file is empty; %s", f.Needs)
		return d, nil
	case len(bodies) > 1:
		at := bodies[1].GetToken().Position
		d.Problem(at.Line, 1, "a second YAML document begins here; a %s holds one", f.Noun)
		return d, nil
	}
	e := &expander{Document: d, anchors: map[string]*Value{}, ended: ended}
	v := e.expand(bodies[0], 0)
	if e.stopped {
		return d, nil
	}
	return d, v
}

// bounded checks the tokens before the parser, because the parser follows nesting by recursion and a Go program cannot
// recover from a stack overflow.
func (d *Document) bounded(tokens token.Tokens) bool {
	if len(tokens) > maxYAMLTokens {
		at := tokens[maxYAMLTokens].Position
		d.Problem(at.Line, at.Column, "the file has %d YAML tokens; a %s may have %d", len(tokens), d.Noun, maxYAMLTokens)
		return false
	}
	depth, line, inLine := 0, 0, 0
	var open []mappingKeys
	for _, t := range tokens {
		if depth == 0 {
			if open = countKeys(open, t); len(open) > 0 && open[len(open)-1].count > maxYAMLKeys {
				d.Problem(t.Position.Line, 1, "a mapping has more than %d keys", maxYAMLKeys)
				return false
			}
		}
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
			d.Problem(t.Position.Line, t.Position.Column, "nested more than %d deep", maxYAMLDepth)
			return false
		}
	}
	return true
}

// mappingKeys has the number of keys of an open block mapping.
type mappingKeys struct {
	column int // of its keys
	count  int
}

// countKeys counts one token outside of brackets. open has the mappings around it, the innermost last.
func countKeys(open []mappingKeys, t *token.Token) []mappingKeys {
	column := t.Position.Column
	switch {
	case t.Type == token.MappingValueType && t.Prev != nil:
		column = t.Prev.Position.Column
	case t.Type != token.SequenceEntryType:
		return open
	}
	for len(open) > 0 && open[len(open)-1].column > column {
		open = open[:len(open)-1]
	}
	if t.Type == token.SequenceEntryType {
		return open
	}
	if len(open) == 0 || open[len(open)-1].column < column {
		open = append(open, mappingKeys{column: column})
	}
	open[len(open)-1].count++
	return open
}

// tabs reports tabs that the YAML parser handles wrongly. It drops them from plain text, and loses count of lines after
// them in double quotes.
func (d *Document) tabs(tokens token.Tokens) bool {
	good := true
	for _, t := range tokens {
		switch {
		case t.Type == token.DoubleQuoteType && strings.Contains(t.Origin, "\t"):
			d.Problem(t.Position.Line, t.Position.Column,
				`this text has a tab; write \t for it, or put the text into a | block`)
			return false // the positions of further tokens are not known
		case t.Type == token.StringType && t.CharacterType == token.CharacterTypeMiscellaneous &&
			strings.Contains(strings.TrimSpace(t.Origin), "\t") && !d.inBlock(t):
			d.Problem(t.Position.Line, t.Position.Column,
				"this text has a tab, which would be lost; put the text into quotes or into a | block")
			good = false
		}
	}
	return good
}

// inBlock reports whether a token is the text of a | or > block.
func (d *Document) inBlock(t *token.Token) bool {
	for t = t.Prev; t != nil && t.Type == token.CommentType; t = t.Prev {
	}
	return t != nil && (t.Type == token.LiteralType || t.Type == token.FoldedType)
}

// isBlockEntry reports whether a token opens a level of a block by its indentation.
func isBlockEntry(t *token.Token) bool {
	return t.Type == token.SequenceEntryType || t.Type == token.MappingValueType &&
		t.Prev != nil && (t.Prev.Prev == nil || t.Prev.Prev.Position.Line != t.Position.Line)
}

// syntax converts the parser's error to a problem.
func (d *Document) syntax(err error) {
	var bad *yaml.SyntaxError
	if !errors.As(err, &bad) || bad.Token == nil {
		d.Problem(1, 1, "this is not YAML: %v", err)
		return
	}
	at, message := bad.Token.Position, bad.Message
	source := sourceLine(d.lines, at.Line)
	switch {
	case strings.HasPrefix(strings.TrimLeft(source, " "), "\t"):
		message = "a tab indents this line; YAML wants spaces"
	case strings.Contains(source, ": {{"):
		message += "; a value that begins with {{ must be in quotes, or YAML takes it for a mapping"
	}
	d.Problem(at.Line, at.Column, "%s", message)
}

// expander converts the parser's tree to values. It replaces aliases by their targets, and counts the cost.
type expander struct {
	*Document
	ended   bool // the file ends with a line break
	anchors map[string]*Value
	sizes   map[*Value]measured // sizes of expanded values
	count   int                 // values
	text    int                 // bytes of texts
	stopped bool
}

// stop ends the expansion at a mistake that would otherwise repeat many times.
func (e *expander) stop(t *token.Token, format string, args ...any) *Value {
	if !e.stopped {
		e.stopped = true
		e.Problem(t.Position.Line, t.Position.Column, format, args...)
	}
	return &Value{Line: t.Position.Line, Column: t.Position.Column}
}

// broken reports a mistake at a value that cannot be used.
func (e *expander) broken(v *Value, format string, args ...any) {
	e.At(v, format, args...)
	v.Kind = BrokenValue
}

func (e *expander) expand(n ast.Node, depth int) *Value {
	if n == nil {
		return &Value{Line: 1, Column: 1}
	}
	t := n.GetToken()
	if e.stopped {
		return &Value{Line: t.Position.Line, Column: t.Position.Column}
	}
	if depth > maxYAMLDepth {
		return e.stop(t, "nested more than %d deep", maxYAMLDepth)
	}
	if e.count++; e.count > maxYAMLValues {
		return e.stop(t, "the file has more than %d values once its aliases are expanded", maxYAMLValues)
	}
	v := &Value{Line: t.Position.Line, Column: t.Position.Column, Text: t.Value}
	e.text += len(t.Value)
	switch n := n.(type) {
	case *ast.MappingNode:
		e.mapping(v, n, depth)
	case *ast.MappingValueNode:
		e.mapping(v, ast.Mapping(t, false, n), depth)
	case *ast.SequenceNode:
		v.Kind = ListValue
		for _, item := range n.Values {
			v.Items = append(v.Items, e.expand(item, depth+1))
		}
	case *ast.AnchorNode:
		name := n.Name.GetToken().Value
		inner := e.expand(n.Value, depth+1)
		e.anchors[name] = inner
		return inner
	case *ast.AliasNode:
		return e.alias(v, n, depth)
	default:
		e.scalar(v, n)
	}
	return v
}

// alias returns the value of the anchor that an alias names. It counts as if it were written out.
func (e *expander) alias(v *Value, n *ast.AliasNode, depth int) *Value {
	t := n.GetToken()
	name := n.Value.GetToken().Value
	target, ok := e.anchors[name]
	if !ok {
		e.broken(v, "no anchor &%s comes before this alias", name)
		return v
	}
	m := e.measure(target)
	if depth+m.deep > maxYAMLDepth {
		return e.stop(t, "nested more than %d deep once its aliases are expanded", maxYAMLDepth)
	}
	if e.count += m.values; e.count > maxYAMLValues {
		return e.stop(t, "the file has more than %d values once its aliases are expanded", maxYAMLValues)
	}
	if e.text += m.text; e.text > maxYAMLText*e.MaxBytes {
		return e.stop(t, "the file has more than %d bytes of text once its aliases are expanded",
			maxYAMLText*e.MaxBytes)
	}
	return target
}

// scalar sets v to the value of a node that contains no others. All other nodes are mistakes.
func (e *expander) scalar(v *Value, n ast.Node) {
	t := n.GetToken()
	switch n := n.(type) {
	case *ast.LiteralNode:
		v.Kind, v.style, v.Text = StringValue, literalStyle, n.Value.Value
		if strings.HasPrefix(t.Value, ">") {
			v.style = foldedStyle
		}
		if !e.ended && n.Value.GetToken().Next == nil {
			v.Text = strings.TrimSuffix(v.Text, "\n")
		}
		v.Any = v.Text
	case *ast.StringNode:
		v.Kind, v.Text, v.Any = StringValue, n.Value, n.Value
		switch t.Type {
		case token.SingleQuoteType:
			v.style = singleQuoted
		case token.DoubleQuoteType:
			v.style = doubleQuoted
		}
	case *ast.BoolNode:
		v.Kind, v.Any = BoolValue, n.Value
	case *ast.NullNode:
		v.Kind = NullValue
	case *ast.IntegerNode:
		v.Kind = NumberValue
		switch i := n.Value.(type) {
		case int64:
			v.Any = i
		case uint64:
			v.Any = float64(i)
			if i <= math.MaxInt64 {
				v.Any = int64(i)
			}
		default:
			e.broken(v, "%s is not a number that can be used here", strconv.Quote(v.Text))
		}
	case *ast.FloatNode:
		v.Kind, v.Any = NumberValue, n.Value
		if math.IsInf(n.Value, 0) || math.IsNaN(n.Value) {
			e.broken(v, "%s is not a number that can be used here", v.Text)
		}
	case *ast.TagNode:
		e.broken(v, "tags (%s) are not used here", v.Text)
	case *ast.MergeKeyNode:
		e.broken(v, "merge keys (<<) are not used here; repeat the keys, or give the whole mapping by an alias")
	default:
		e.broken(v, "%s is not allowed in a %s", strings.ToLower(n.Type().String()), e.Noun)
	}
}

func (e *expander) mapping(v *Value, n *ast.MappingNode, depth int) {
	v.Kind = MapValue
	seen := map[string]Field{}
	for i, entry := range n.Values {
		key := entry.Key.GetToken()
		if i == 0 && !n.IsFlowStyle {
			// The parser gives a block mapping the position of its first colon.
			v.Line, v.Column = key.Position.Line, key.Position.Column
		}
		f := Field{Key: key.Value, Line: key.Position.Line, Column: key.Position.Column}
		switch entry.Key.(type) {
		case *ast.MergeKeyNode:
			e.Problem(f.Line, f.Column,
				"merge keys (<<) are not used here; repeat the keys, or give the whole mapping by an alias")
			continue
		case *ast.MappingKeyNode, *ast.AliasNode, *ast.AnchorNode, *ast.TagNode:
			e.Problem(f.Line, f.Column, "a key must be plain text")
			continue
		}
		f.Value = e.expand(entry.Value, depth+1)
		if first, ok := seen[f.Key]; ok {
			e.Problem(f.Line, f.Column, "the key %q is here twice, first in line %d", f.Key, first.Line)
			continue
		}
		seen[f.Key] = f
		v.Fields = append(v.Fields, f)
	}
}

// measured is the size that an alias adds to a file.
type measured struct {
	values int
	text   int // bytes of texts and keys
	deep   int
}

// measure returns the size of a value and of everything below it. Anchors only refer to earlier values, so there is no
// circle. Measured sizes are kept, so that a file of aliases to aliases stays cheap.
func (e *expander) measure(v *Value) measured {
	if len(v.Items) == 0 && len(v.Fields) == 0 {
		return measured{values: 1, text: len(v.Text), deep: 1}
	}
	if e.sizes == nil {
		e.sizes = map[*Value]measured{}
	}
	if m, ok := e.sizes[v]; ok {
		return m
	}
	m := measured{values: 1, text: len(v.Text)}
	add := func(child *Value) {
		c := e.measure(child)
		m.values = min(m.values+c.values, maxYAMLValues+1)
		m.text = min(m.text+c.text, maxYAMLText*e.MaxBytes+1)
		m.deep = max(m.deep, c.deep)
	}
	for _, item := range v.Items {
		add(item)
	}
	for _, f := range v.Fields {
		m.text += len(f.Key)
		add(f.Value)
	}
	m.deep = min(m.deep+1, 0xff)
	e.sizes[v] = m
	return m
}

// KindOf returns the kind of a value, for a message about the expected kind.
func KindOf(v *Value) string {
	if v.Kind == NumberValue {
		return v.Text
	}
	if v.Kind == StringValue && v.Text != "" && len(v.Text) <= 40 && !strings.Contains(v.Text, "\n") {
		return fmt.Sprintf("the text %q", v.Text)
	}
	return v.Kind.String()
}
