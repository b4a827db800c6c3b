package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	celast "cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/ramus-dev/ramus/internal/pattern"
)

// Bounds on expressions. The cost of an expression counts the values that it reads and makes. So it bounds time and
// memory, and is the same on every machine.
const (
	// The time in which CEL compiles an expression grows with the square of its length.
	maxExpression  = 4_000   // bytes of text
	maxExpressions = 50_000  // bytes of all expressions of a workflow
	maxCost        = 500_000 // steps of one evaluation
	maxElements    = 100_000 // values in one result
	// A result may hold one text many times. JSON holds each of them.
	maxResultText = 2 * maxState // bytes of the texts in one result
)

// condition is a CEL expression, the `when` of a transition or a node, the `over` of a fan-out, or an output mapping.
// It is immutable and safe for concurrent use.
type condition struct {
	source  string
	program cel.Program
	// refs are the used names of state, input, context and result.
	refs []reference
}

// reference is a use of ROOT.NAME in an expression.
type reference struct {
	root, name string
	line       int // in the expression, from 1
	column     int // from 0
}

// environments returns the CEL environments for expressions after a step, which may use its result, and before any
// step.
var environments = sync.OnceValues(func() (e struct{ after, before *cel.Env }, err error) {
	dynMap := cel.MapType(cel.StringType, cel.DynType)
	texts := cel.ListType(cel.StringType)
	e.before, err = cel.NewEnv(
		cel.Variable("state", dynMap),
		cel.Variable("input", dynMap),
		cel.Variable("context", dynMap),
		cel.CrossTypeNumericComparisons(true),
		cel.ParserExpressionSizeLimit(maxExpression),
		cel.ParserRecursionLimit(100),
		cel.DefaultUTCTimeZone(true),
		cel.Function("trim", cel.MemberOverload("text_trim", []*cel.Type{cel.StringType}, cel.StringType,
			cel.UnaryBinding(func(v ref.Val) ref.Val { return types.String(strings.TrimSpace(string(v.(types.String)))) }))),
		cel.Function("lines", cel.MemberOverload("text_lines", []*cel.Type{cel.StringType}, texts,
			cel.UnaryBinding(func(v ref.Val) ref.Val {
				return types.DefaultTypeAdapter.NativeToValue(textLines(string(v.(types.String))))
			}))),
		cel.Function("split", cel.MemberOverload("text_split", []*cel.Type{cel.StringType, cel.StringType}, texts,
			cel.BinaryBinding(func(v, sep ref.Val) ref.Val {
				return types.DefaultTypeAdapter.NativeToValue(strings.Split(string(v.(types.String)),
					string(sep.(types.String))))
			}))),
		cel.Function("join", cel.MemberOverload("list_join", []*cel.Type{cel.ListType(cel.DynType), cel.StringType},
			cel.StringType,
			cel.BinaryBinding(joinTexts))),
		cel.Function("json", cel.Overload("json_text", []*cel.Type{cel.StringType}, cel.DynType,
			cel.UnaryBinding(func(v ref.Val) ref.Val {
				var parsed any
				if err := decodeJSON([]byte(v.(types.String)), &parsed); err != nil {
					return types.NewErr("this is not JSON: %v", err)
				}
				return types.DefaultTypeAdapter.NativeToValue(parsed)
			}))),
	)
	if err != nil {
		return e, err
	}
	e.after, err = e.before.Extend(cel.Variable("result", dynMap))
	return e, err
})

// textLines splits text into lines. A line break at the end starts no further line.
func textLines(s string) []string {
	s = strings.TrimSuffix(s, "\n")
	if s == "" {
		return []string{}
	}
	return strings.Split(s, "\n")
}

func joinTexts(list, sep ref.Val) ref.Val {
	// The cost of the call counts the elements afterwards, and empty texts make no long text.
	if n, ok := list.(traits.Lister).Size().(types.Int); !ok || n > maxCost {
		return types.NewErr("the list has more than %d elements", maxCost)
	}
	var b strings.Builder
	for it, first := list.(traits.Lister).Iterator(), true; it.HasNext() == types.True; first = false {
		text, ok := it.Next().(types.String)
		if !ok {
			return types.NewErr("join needs a list of texts")
		}
		if !first {
			b.WriteString(string(sep.(types.String)))
		}
		b.WriteString(string(text))
		if b.Len() > maxStateValue {
			return types.NewErr("the joined text is longer than %d bytes", maxStateValue)
		}
	}
	return types.String(b.String())
}

// textCost gives ramus' own functions the cost of the text that they read, like CEL's own.
type textCost struct{}

// CallCost returns the cost of one call, or nil for the cost that CEL counts.
func (textCost) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	switch function {
	case "trim", "lines", "split", "join", "json":
	default:
		return celCost(function, overload, args)
	}
	cost := uint64(1)
	for _, v := range append(args, result) {
		switch v := v.(type) {
		case types.String:
			cost += uint64(len(v)) / 10
		case traits.Sizer:
			if n, ok := v.Size().(types.Int); ok {
				cost += uint64(n)
			}
		}
	}
	return &cost
}

var (
	barePath = pattern.New(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)
	celWords = map[string]bool{"result": true, "state": true, "input": true, "context": true, "true": true,
		"false": true, "null": true}
)

// celMistake is a mistake at a line and column of an expression.
type celMistake struct {
	line, column int // from 1 and 0
	message      string
}

// compileCondition checks and compiles an expression. want is its required type, or nil for any. after allows it to use
// result. path allows a mapping without the leading "result.".
func compileCondition(source string, want *cel.Type, after, path bool) (*condition, []celMistake) {
	env, err := environments()
	if err != nil {
		return nil, []celMistake{{1, 0, fmt.Sprintf("CEL cannot be set up: %v", err)}}
	}
	e := env.before
	if after {
		e = env.after
	}
	c := &condition{source: strings.TrimRight(source, " \t\n")}
	shift := 0 // from columns of the expression to columns of the source
	if first, _, _ := strings.Cut(c.source, "."); path && barePath.MatchString(c.source) && !celWords[first] {
		c.source, shift = "result."+c.source, -len("result.")
	}
	if c.source == "" {
		return nil, []celMistake{{1, 0, "an expression cannot be empty"}}
	}
	ast, issues := e.Parse(c.source)
	if issues.Err() == nil {
		plainKeys(ast.NativeRep())
		ast, issues = e.Check(ast)
	}
	if issues.Err() != nil {
		var wrong []celMistake
		for _, issue := range issues.Errors() {
			message, _, _ := strings.Cut(issue.Message, "\n")
			message = strings.ReplaceAll(message, " (in container '')", "")
			message, _, _ = strings.Cut(message, " expecting {") // the rest lists all tokens
			if !after && strings.Contains(c.source, "result") {
				message += "; there is no result yet before a node has run"
			}
			wrong = append(wrong, celMistake{issue.Location.Line(), max(issue.Location.Column()+shift, 0),
				"CEL: " + message})
		}
		return nil, wrong
	}
	if kind := ast.OutputType(); want != nil && !kind.IsExactType(cel.DynType) && kind.Kind() != want.Kind() {
		return nil, []celMistake{{1, 0, fmt.Sprintf("this gives %s, not %s", kind, want)}}
	}
	c.refs = references(ast.NativeRep(), shift)
	c.program, err = programOf(e, ast, maxCost)
	if err != nil {
		return nil, []celMistake{{1, 0, fmt.Sprintf("CEL: %v", err)}}
	}
	return c, nil
}

// references returns the names that an expression reads, as ROOT.NAME and ROOT["NAME"].
func references(tree *celast.AST, shift int) []reference {
	var refs []reference
	note := func(operand celast.Expr, name string) {
		if operand.Kind() != celast.IdentKind || !celWords[operand.AsIdent()] {
			return
		}
		at := tree.SourceInfo().GetStartLocation(operand.ID())
		refs = append(refs, reference{operand.AsIdent(), name, at.Line(), max(at.Column()+shift, 0)})
	}
	celast.PreOrderVisit(tree.Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		switch e.Kind() {
		case celast.SelectKind:
			note(e.AsSelect().Operand(), e.AsSelect().FieldName())
		case celast.CallKind:
			call := e.AsCall()
			if call.FunctionName() == operators.Index && len(call.Args()) == 2 && call.Args()[1].Kind() == celast.LiteralKind {
				if name, ok := call.Args()[1].AsLiteral().(types.String); ok {
					note(call.Args()[0], string(name))
				}
			}
		}
	}))
	return refs
}

// eval returns the expression's value in the types of JSON.
func (c *condition) eval(s scope, result map[string]any) (any, error) {
	vars := map[string]any{"state": s.state, "input": s.input, "context": s.context}
	if result != nil {
		vars["result"] = result
	}
	out, _, err := c.program.Eval(vars)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.source, err)
	}
	v, err := native(out, newRoom())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.source, err)
	}
	return v, nil
}

// holds evaluates a condition, which must be true or false.
func (c *condition) holds(s scope, result map[string]any) (bool, error) {
	v, err := c.eval(s, result)
	if err != nil {
		return false, err
	}
	b, ok := v.(bool)
	if !ok {
		return false, fmt.Errorf("%s: gives %s, not true or false", c.source, kindOfJSON(v))
	}
	return b, nil
}

// room is what a result may still have.
type room struct{ values, text int }

func newRoom() *room { return &room{values: maxElements, text: maxResultText} }

// take takes a value with so many bytes of text.
func (r *room) take(text int) error {
	r.values--
	r.text -= text
	switch {
	case r.values < 0:
		return fmt.Errorf("the value has more than %d elements", maxElements)
	case r.text < 0:
		return fmt.Errorf("the texts of the value have more than %d bytes", maxResultText)
	}
	return nil
}

// native converts a CEL value that has room to the types of JSON.
func native(v ref.Val, left *room) (any, error) {
	text, _ := v.(types.String)
	if err := left.take(len(text)); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case types.Null:
		return nil, nil
	case types.Bool:
		return bool(v), nil
	case types.Int:
		return int64(v), nil
	case types.Uint:
		if uint64(v) > math.MaxInt64 {
			return float64(v), nil
		}
		return int64(v), nil
	case types.Double:
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return nil, errors.New("the number is not finite")
		}
		return float64(v), nil
	case types.String:
		return string(v), nil
	case traits.Lister:
		list := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			item, err := native(it.Next(), left)
			if err != nil {
				return nil, err
			}
			list = append(list, item)
		}
		return list, nil
	case traits.Mapper:
		m := map[string]any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			name, ok := key.(types.String)
			if !ok {
				return nil, fmt.Errorf("a mapping with keys of type %s cannot be kept; keys are texts",
					key.Type().TypeName())
			}
			left.text -= len(name) // the item's take fails if that is too much
			item, err := native(v.Get(key), left)
			if err != nil {
				return nil, err
			}
			m[string(name)] = item
		}
		return m, nil
	default:
		return nil, fmt.Errorf("a %s cannot be kept as JSON; turn it into text with string()", v.Type().TypeName())
	}
}

// kindOfJSON returns the kind of a JSON value, for people.
func kindOfJSON(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "true or false"
	case int64, float64, int, json.Number:
		return "a number"
	case string:
		return "text"
	case []any:
		return "a list"
	default:
		return "a mapping"
	}
}
