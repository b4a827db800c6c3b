package workflow

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// costScope has the values for expressions of the tests.
func costScope() scope {
	ints := func(n int) []any {
		list := make([]any, n)
		for i := range list {
			list[i] = int64(i)
		}
		return list
	}
	keys := map[string]any{}
	for i := range 20 {
		keys[fmt.Sprint(i)] = int64(i)
	}
	return scope{state: map[string]any{
		"n": int64(3), "f": 3.0, "s": "text", "é": "éé", "none": nil, "yes": true,
		"few": ints(3), "many": ints(20_000), "nested": []any{ints(20_000)}, "keys": keys,
		"large":  strings.Repeat("é", 100_000),
		"large2": strings.Repeat("é", 99_999) + "aa",
		"a":      map[string]any{"x": []any{int64(1), map[string]any{"y": "z"}}, "w": nil},
		"b":      map[string]any{"x": []any{1.0, map[string]any{"y": "z"}}, "w": nil},
		"c":      map[string]any{"x": []any{int64(1), map[string]any{"y": "other"}}, "w": nil},
	}, input: map[string]any{}, context: map[string]any{}}
}

// TestConditionCost checks that an evaluation ends with an error if it would take too many steps. Each of these takes
// seconds to hours, or all memory, if only the outer sizes count.
func TestConditionCost(t *testing.T) {
	const limit = 50_000 // steps, fewer than maxCost to end early
	env, err := environments()
	if err != nil {
		t.Fatal(err)
	}
	chain := func(start, step string, n int, end string) string { return start + strings.Repeat(step, n) + end }
	s := costScope()
	for _, source := range []string{
		chain("[1]", ".map(x,[x,x])", 24, ".all(x,x==x)"),
		chain("[1]", ".map(x,[x,x])", 24, ".all(x,x!=x||true)"),
		chain("[1]", ".map(x,[x,x])", 24, ".all(x,x in [x])"),
		chain("[1]", ".map(x,[x,x])", 24, ".all(x,[x,1]==[x,2]||true)"),
		chain("[1]", ".map(x,{'a':x,'b':x})", 24, ".all(x,x==x)"),
		chain("[1]", ".map(x,{'a':x,'b':x})", 24, ".all(x,x in dyn([x]))"),
		chain("[[1]]", ".map(x,x+x)", 24, ".all(x,0 in x)"),
		chain("[state.few]", ".map(x,x+x)", 24, ".all(x,-1 in x||true)"),
		chain("[[1]]", ".map(x,x+x)", 24, ".all(x,x==x)"),
		chain("[['']]", ".map(x,x+x)", 24, ".all(x,x.join('')=='')"),
		chain("[state.s]", ".map(x,x+x)", 24, ".all(x,x!='')"),
		chain("['a']", ".map(x,x+x)", 24, ".all(x,x!='')"),
		"state.many.all(i,state.nested==state.nested)",
		"state.many.all(i,!(-1 in state.many))",
		"state.many.all(i,!(state.few in [state.nested[0],state.few+[i]])&&!(state.large2 in [state.large]))",
		"state.many.all(i,[state.large2]!=[state.large])",
		"state.many.all(i,size(state.large)>0)",
		"state.many.all(i,state.many.all(j,state.large!='a'))",
		"state.many.all(i,state.large.contains(''))",
		"state.many.all(i,state.large.matches(''))",
		"state.many.all(i,!(state.large in state.keys))",
		"state.many.all(i,bytes(state.large)!=b'')",
		"state.many.all(i,int(state.large)==1||true)",
	} {
		ast, issues := env.before.Compile(source)
		if issues.Err() != nil {
			t.Errorf("%s: %v", source, issues.Err())
			continue
		}
		program, err := programOf(env.before, ast, limit)
		if err != nil {
			t.Fatal(err)
		}
		c := &condition{source: source, program: program}
		if v, err := c.eval(s, nil); err == nil || !hasEnd(err.Error(), "operation cancelled: actual cost limit exceeded") {
			t.Errorf("%s: %v, %v", source, v, err)
		}
	}
}

// TestComparisonResults checks that ordinary expressions have the value, the error and nearly the cost that CEL gives
// them.
func TestComparisonResults(t *testing.T) {
	env, err := environments()
	if err != nil {
		t.Fatal(err)
	}
	s := costScope()
	vars := map[string]any{"state": s.state, "input": s.input, "context": s.context}
	values := []string{"state.n", "state.f", "state.s", "state.é", "state.none", "state.few", "state.a", "state.b",
		"state.c", "state.nope", "3", "3u", "3.5", "'text'", "b'text'", "null", "[0.0,1u,2]", "[state.a]",
		"{'x':1}", "{1:2}", "{1.0:2u}", "{3:state.few}", "type(1)", "state.a.x", "state.few+[1]", "1/0", "dyn([[0,1,2],3])",
		"duration('1s')", "[dyn(0),1,2].map(x,x)"}
	var sources []string
	forms := []string{"(%s) == (%s)", "(%s) != (%s)", "(%s) in (%s)", "(%s) + (%s)", "(%s) < (%s)", "(%s)==(%s)||true",
		"false&&(%s) in dyn(%s)", "[dyn(%s)]==[dyn(%s)]", "{'k':dyn(%s)}!={'k':dyn(%s)}", "dyn(%s) in [dyn(%s)]"}
	for i, a := range values {
		for j, b := range values {
			sources = append(sources, fmt.Sprintf(forms[(i*3+j)%len(forms)], a, b)) // each pair has one of the forms
		}
		sources = append(sources, fmt.Sprintf("size(%s)", a), fmt.Sprintf("string(%s)", a), fmt.Sprintf("int(%s)", a),
			fmt.Sprintf("bytes(%s)", a), fmt.Sprintf("[%s].map(x,{x:1})==[{dyn(%s):1}]", a, a),
			fmt.Sprintf("[%s].map(x,{x:x,'k':1}[x])", a))
	}
	compared := 0
	for _, source := range sources {
		var plain cel.Program
		ast, issues := env.before.Compile(source)
		err := issues.Err()
		if err == nil {
			plain, err = env.before.Program(ast, cel.CostLimit(maxCost), cel.CostTracking(nil))
		}
		c, wrong := compileCondition(source, nil, false, false)
		if (err == nil) != (c != nil) {
			t.Errorf("%s: %v; CEL: %v", source, wrong, err)
		}
		if err != nil || c == nil {
			continue
		}
		want, wantDetails, wantErr := plain.Eval(vars)
		got, details, err := c.program.Eval(vars)
		if fmt.Sprint(err) != fmt.Sprint(wantErr) || wantErr == nil && !sameValue(got, want) {
			t.Errorf("%s: %v, %v; CEL: %v, %v", source, got, err, want, wantErr)
		}
		if cost, most := *details.ActualCost(), *wantDetails.ActualCost()+20; cost > most {
			t.Errorf("%s: %d steps, want at most %d", source, cost, most)
		}
		compared++
	}
	if compared < 300 {
		t.Errorf("only %d expressions of %d were compared", compared, len(sources))
	}
}

func sameValue(a, b ref.Val) bool {
	if a.Type() != b.Type() {
		return false
	}
	x, xErr := native(a, newRoom())
	y, yErr := native(b, newRoom())
	return reflect.DeepEqual(x, y) && fmt.Sprint(xErr) == fmt.Sprint(yErr)
}

// TestWalkEnds checks that the walk of a comparison counts all pairs, and ends when no steps are left.
func TestWalkEnds(t *testing.T) {
	deep := types.DefaultTypeAdapter.NativeToValue(1)
	for range 60 {
		deep = types.DefaultTypeAdapter.NativeToValue([]ref.Val{deep, deep})
	}
	w := walk{left: 100}
	if w.differ(deep, deep); w.left != -1 {
		t.Errorf("%d steps are left", w.left)
	}
	list := types.DefaultTypeAdapter.NativeToValue([]any{1, []any{2, 3}, map[string]any{"a": 4, "b": []any{5}}})
	other := types.DefaultTypeAdapter.NativeToValue([]any{1, []any{2, 4}, map[string]any{"a": 4, "b": []any{5}}})
	w = walk{left: 100}
	if w.differ(list, list) || w.left != 100-8 {
		t.Errorf("%d steps are left", w.left)
	}
	w = walk{left: 100}
	if !w.differ(list, other) || w.left != 100-4 {
		t.Errorf("%d steps are left after a difference", w.left)
	}
}

// TestWalkOfLists counts the comparisons with the elements of a list, if they take time.
func TestWalkOfLists(t *testing.T) {
	native := types.DefaultTypeAdapter.NativeToValue
	text := func(n int) ref.Val { return types.String(strings.Repeat("x", n)) }
	for _, x := range []struct {
		name string
		v    ref.Val
		list any
		want int64
	}{
		{"a number", types.Int(1), []any{1, 2, 3}, 0},
		{"a short text", text(textStep - 1), []any{text(textStep - 1), text(textStep - 1)}, 0},
		{"a text of one step", text(textStep), []any{text(textStep), text(textStep)}, 2},
		{"a list", native([]any{1}), []any{[]any{1}, []any{2}}, 2},
	} {
		w := walk{left: 100}
		if w.contains(x.v, native(x.list), true); 100-w.left != x.want {
			t.Errorf("%s: %d steps, want %d", x.name, 100-w.left, x.want)
		}
	}
	w := walk{left: 1}
	if w.contains(native([]any{1}), native([]any{[]any{1}, []any{2}}), true); w.left != -1 {
		t.Errorf("after more steps than there are, %d are left", w.left)
	}
}

// TestSmallerSize counts the characters of a comparison with a large text.
func TestSmallerSize(t *testing.T) {
	text := func(n int) ref.Val { return types.String(strings.Repeat("é", n/2)) }
	for _, x := range []struct {
		a, b  ref.Val
		want  int
		large bool
	}{
		{text(textStep - 2), text(textStep - 2), 0, false},
		{text(textStep), text(20), 10, true},
		{text(20), text(textStep), 10, true},
		{text(textStep), types.Int(1), 1, true},
		{types.Int(1), text(textStep), 1, true},
		{types.Int(1), types.Int(2), 0, false},
	} {
		if n, large := smallerSize(x.a, x.b); n != x.want || large != x.large {
			t.Errorf("%.10v, %.10v: %d, %t; want %d, %t", x.a, x.b, n, large, x.want, x.large)
		}
	}
}

// TestTypesOfKeys compiles mappings whose keys have a type that doubles with each step. Without a bound it takes hours.
func TestTypesOfKeys(t *testing.T) {
	c, wrong := compileCondition("[1]"+strings.Repeat(".map(x,{x:x})", 20)+".all(x,x==x)", nil, false, false)
	if c == nil {
		t.Fatal(wrong)
	}
	if ok, err := c.holds(costScope(), nil); err != nil || !ok {
		t.Errorf("got %v, %v", ok, err)
	}
	if c, wrong = compileCondition("[1]"+strings.Repeat(".map(state,{state:state})", 20)+".all(state,state==state)", nil, false, false); c == nil {
		t.Fatal(wrong)
	}
	_, wrong = compileCondition("[1].map(x,\n {nope: x, x: 1})", nil, false, false)
	if len(wrong) != 1 || wrong[0].line != 2 || wrong[0].column != 2 || !strings.Contains(wrong[0].message, "'nope'") {
		t.Errorf("got %v", wrong)
	}
}

// TestResultText checks that a result has a bound on its texts, each of which a list may have many times.
func TestResultText(t *testing.T) {
	large := types.String(strings.Repeat("x", 1<<20))
	list := func(n int) ref.Val {
		return types.DefaultTypeAdapter.NativeToValue(slices.Repeat([]ref.Val{large}, n))
	}
	if v, err := native(list(maxResultText>>20), newRoom()); err != nil || len(v.([]any)) != maxResultText>>20 {
		t.Errorf("a value of %d bytes: %v", maxResultText, err)
	}
	if _, err := native(list(maxResultText>>20+1), newRoom()); err == nil || !strings.Contains(err.Error(), "texts of the value") {
		t.Errorf("a larger value: %v", err)
	}
	keys := types.DefaultTypeAdapter.NativeToValue(map[string][]ref.Val{string(large): slices.Repeat([]ref.Val{large}, maxResultText>>20)})
	if _, err := native(keys, newRoom()); err == nil {
		t.Error("the text of a key does not count")
	}
}
