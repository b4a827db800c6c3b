package workflow

import (
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	celast "cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// CEL counts a comparison as the outer size of its sides, and only after the call. A value can hold another one many
// times, so a comparison of small values can take any time. Some functions read a whole text for one step.
const (
	// A step takes about a microsecond at most, in which Go compares, counts or reads this many bytes.
	textStep = 500 // bytes of text
	// CEL itself counts 10 elements of a compared list as one step.
	elementStep = 10 // elements of a list in which a value is searched
	// New texts take memory, too. So the texts of one evaluation take 50 MB at most.
	newTextStep = 100 // bytes of text
)

// stepsFunction is the name under which a comparison counts the steps that CEL does not count.
const stepsFunction = "@steps"

// stepsCall is the call of stepsFunction.
type stepsCall struct{}

func (stepsCall) Function() string   { return stepsFunction }
func (stepsCall) OverloadID() string { return stepsFunction }

// programOf returns the program of a checked expression, which ends with an error after limit steps.
func programOf(e *cel.Env, ast *cel.Ast, limit uint64) (cel.Program, error) {
	return e.Program(ast, cel.CostLimit(limit), cel.CostTracking(textCost{}), cel.CustomDecoratorV2(
		func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
			call, ok := i.(interpreter.InterpretableCall)
			if !ok || len(call.Args()) != 2 {
				return i, nil
			}
			switch call.Function() {
			case operators.Equals, operators.NotEquals, operators.In:
				args := call.Args()
				return &comparison{InterpretableCall: call, lhs: args[0], rhs: args[1], limit: limit}, nil
			}
			return i, nil
		}))
}

// comparison is a call of ==, != or in that counts its steps before the call. A call with more steps than are left ends
// the evaluation.
type comparison struct {
	interpreter.InterpretableCall
	lhs, rhs interpreter.InterpretableV2
	limit    uint64
}

// Eval evaluates the call.
func (c *comparison) Eval(ctx interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(ctx, c.Exec)
}

// Exec evaluates the call.
func (c *comparison) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	l := c.lhs.Exec(frame)
	if types.IsError(l) {
		return l
	}
	r := c.rhs.Exec(frame)
	if types.IsError(r) {
		return r
	}
	lUnknown, _ := l.(*types.Unknown)
	rUnknown, _ := r.(*types.Unknown)
	switch {
	case lUnknown != nil && rUnknown != nil:
		return types.MergeUnknowns(lUnknown, rUnknown)
	case lUnknown != nil:
		return l
	case rUnknown != nil:
		return r
	}
	if costs := frame.CostTracker(); costs != nil {
		costs.EvalBinary(frame, c.ID(), c, l, r, types.True)
		w := walk{left: int64(c.limit - min(costs.ActualCost(), c.limit))}
		start := w.left
		if c.Function() == operators.In {
			w.contains(l, r, c.OverloadID() == overloads.InList)
		} else {
			w.differ(l, r)
		}
		if n := start - w.left; n > 0 {
			costs.EvalUnary(frame, c.ID(), stepsCall{}, types.Int(n), types.True)
		}
	}
	switch c.Function() {
	case operators.Equals:
		return types.Equal(l, r)
	case operators.NotEquals:
		return types.Bool(types.Equal(l, r) != types.True)
	}
	if container, ok := r.(traits.Container); ok && r.Type().HasTrait(traits.ContainerType) {
		return types.LabelErrNode(c.ID(), container.Contains(l))
	}
	return types.NewErrWithNodeID(c.ID(), "no such overload")
}

// walk counts the steps of a comparison. It ends as soon as none are left.
type walk struct {
	left int64 // below 0 at the end
}

// take counts n steps, and reports whether they were left.
func (w *walk) take(n int64) bool {
	if n > w.left {
		w.left = -1
		return false
	}
	w.left -= n
	return true
}

// differ counts the pairs of elements and the texts that types.Equal can compare. It reports whether the comparison of
// l and r surely ends with false. The entries of a mapping come in any order, so all of them count.
func (w *walk) differ(l, r ref.Val) bool {
	switch l := l.(type) {
	case traits.Lister:
		r, ok := r.(traits.Lister)
		if !ok || l.Size() != r.Size() {
			return true
		}
		size, _ := l.Size().(types.Int)
		for i := types.Int(0); i < size && w.take(1); i++ {
			if w.differ(l.Get(i), r.Get(i)) {
				return true
			}
		}
		return false
	case traits.Mapper:
		r, ok := r.(traits.Mapper)
		if !ok || l.Size() != r.Size() {
			return true
		}
		if size, _ := l.Size().(types.Int); !w.take(int64(size)) {
			return false
		}
		for it := l.Iterator(); w.left >= 0 && it.HasNext() == types.True; {
			key := it.Next()
			if other, ok := r.Find(key); ok {
				w.differ(l.Get(key), other)
			}
		}
		return false
	case types.String:
		r, ok := r.(types.String)
		if !ok || len(l) != len(r) {
			return true
		}
		return !w.take(int64(len(l)/textStep)) || l != r
	case types.Bytes:
		r, ok := r.(types.Bytes)
		return !ok || len(l) != len(r) || !w.take(int64(len(l)/textStep))
	default:
		return types.Equal(l, r) == types.False
	}
}

// contains counts the steps to search v in a list, or as a key of a mapping. counted says that CEL counts the elements of
// the list.
func (w *walk) contains(v, in ref.Val, counted bool) {
	text, _ := v.(types.String)
	list, ok := in.(traits.Lister)
	if !ok {
		w.take(int64(len(text) / textStep))
		return
	}
	size, _ := list.Size().(types.Int)
	if !counted && !w.take(int64(size/elementStep)) {
		return
	}
	switch v.(type) {
	case traits.Lister, traits.Mapper, types.Bytes:
	default:
		if len(text) < textStep {
			return // each comparison takes no time
		}
	}
	for i := types.Int(0); i < size && w.left >= 0; i++ {
		w.differ(v, list.Get(i))
	}
}

// celCost returns the steps of a call of a function of CEL that reads a whole text, or nil if CEL counts them. CEL has no
// overload if the types of the arguments are not known before the call, and counts one step then.
func celCost(function, overload string, args []ref.Val) *uint64 {
	steps := func(n int) *uint64 { cost := uint64(n); return &cost }
	switch function {
	case stepsFunction:
		n, _ := args[0].(types.Int)
		return steps(int(n))
	case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater,
		operators.GreaterEquals:
		if len(args) == 2 {
			if n, ok := smallerSize(args[0], args[1]); ok {
				return steps((n + 9) / 10)
			}
		}
	case overloads.Size, overloads.TypeConvertInt, overloads.TypeConvertUint, overloads.TypeConvertDouble,
		overloads.TypeConvertBool, overloads.TypeConvertTimestamp, overloads.TypeConvertDuration:
		if text, ok := args[0].(types.String); ok {
			return steps(1 + len(text)/textStep)
		}
	case operators.Add, overloads.TypeConvertBytes, overloads.TypeConvertString:
		if overload != "" {
			return nil
		}
		n := 0
		for _, v := range args {
			switch v := v.(type) {
			case types.String:
				n += len(v)
			case types.Bytes:
				n += len(v)
			}
		}
		return steps(1 + n/newTextStep)
	case overloads.Contains, overloads.Matches:
		// CEL counts nothing if the searched text is empty.
		if text, ok := args[0].(types.String); ok && len(args) == 2 && args[1] == types.String("") {
			return steps(len(text) / textStep)
		}
	}
	return nil
}

// smallerSize returns the smaller size of two values of which one is a large text, as CEL does. CEL counts the characters
// of both texts, and so reads all of a large one for one step.
func smallerSize(a, b ref.Val) (int, bool) {
	left, isLeft := a.(types.String)
	right, isRight := b.(types.String)
	switch {
	case len(left) < textStep && len(right) < textStep:
		return 0, false
	case isLeft && isRight:
		if len(left) > len(right) {
			left, right = right, left
		}
		return charactersUpTo(string(right), utf8.RuneCountInString(string(left))), true
	case isRight:
		return charactersUpTo(string(right), sizeOf(a)), true
	case isLeft:
		return charactersUpTo(string(left), sizeOf(b)), true
	default:
		return 0, false
	}
}

// charactersUpTo returns the number of characters of s, or most if there are more.
func charactersUpTo(s string, most int) int {
	if len(s)/utf8.UTFMax >= most {
		return most
	}
	return min(utf8.RuneCountInString(s), most)
}

// sizeOf returns the outer size of a value that is not a text.
func sizeOf(v ref.Val) int {
	if sizer, ok := v.(traits.Sizer); ok {
		if n, ok := sizer.Size().(types.Int); ok {
			return int(n)
		}
	}
	return 1
}

// plainKeys makes the type of each key of a mapping that reads a variable dynamic. Otherwise
// [1].map(x, {x: x}).map(x, {x: x}) has a type that doubles with each step, and so does the time to check it.
func plainKeys(tree *celast.AST) {
	next := int64(1)
	celast.PostOrderVisit(tree.Expr(), celast.NewExprVisitor(func(e celast.Expr) { next = max(next, e.ID()+1) }))
	for id := range tree.SourceInfo().MacroCalls() {
		next = max(next, id+1)
	}
	for id := range tree.SourceInfo().OffsetRanges() {
		next = max(next, id+1)
	}
	factory := celast.NewExprFactory()
	celast.PostOrderVisit(tree.Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		if e.Kind() != celast.MapKind {
			return
		}
		for _, entry := range e.AsMap().Entries() {
			key := entry.AsMapEntry().Key()
			if !readsVariable(key) {
				continue
			}
			at, _ := tree.SourceInfo().GetOffsetRange(key.ID())
			inner := factory.CopyExpr(key)
			inner.RenumberIDs(func(id int64) int64 {
				if id == key.ID() {
					return next
				}
				return id
			})
			key.SetKindCase(factory.NewCall(next, overloads.TypeConvertDyn, inner))
			tree.SourceInfo().SetOffsetRange(next, at)
			next++
		}
	}))
}

// readsVariable reports whether an expression reads a variable, which may be that of a macro by any name.
func readsVariable(e celast.Expr) bool {
	uses := false
	celast.PreOrderVisit(e, celast.NewExprVisitor(func(e celast.Expr) {
		uses = uses || e.Kind() == celast.IdentKind
	}))
	return uses
}
