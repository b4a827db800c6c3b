package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// randomWorkflow writes a workflow: a chain of nodes with jumps back and forth,
// some of them fan-out sections.
func randomWorkflow(r *rand.Rand) string {
	var nodes, transitions strings.Builder
	key := map[string]string{} // what a node's result has
	node := func(id string) {
		fmt.Fprintf(&nodes, "  - id: %s\n", id)
		switch r.IntN(4) {
		case 0:
			key[id] = "comment"
			fmt.Fprintf(&nodes, "    human: go on with %s?\n", id)
		case 1:
			key[id] = "status"
			fmt.Fprintf(&nodes, "    workflow: child\n    inherit_branch: false\n    input: {number: %d}\n", r.IntN(9))
		default:
			key[id] = "exit_code"
			fmt.Fprintf(&nodes, "    run: do %s\n    execution: {retries: %d}\n", id, r.IntN(3))
		}
		fmt.Fprintf(&nodes, "    max_visits: %d\n", 1+r.IntN(6))
		if r.IntN(2) == 0 {
			fmt.Fprintf(&nodes, "    output: {k%d: 'has(result.%s) ? result.%[2]s : -1'}\n", r.IntN(4), key[id])
		}
		if r.IntN(5) == 0 {
			fmt.Fprintf(&nodes, "    when: %s\n",
				[]string{"true", "false", "size(state) > 2", "\"!('k1' in state)\""}[r.IntN(4)])
		}
	}
	edge := func(from, to, rest string) {
		fmt.Fprintf(&transitions, "  - {from: %s, to: %s%s}\n", from, to, rest)
	}
	length := 2 + r.IntN(6)
	main := func(i int) string { return fmt.Sprintf("m%d", i) }
	for i := range length {
		node(main(i))
		if r.IntN(2) == 0 {
			edge(main(i), main(r.IntN(length)), ", on: failure")
		}
		if r.IntN(3) == 0 {
			edge(main(i), main(r.IntN(length)), fmt.Sprintf(`, when: "has(result.%s) && result.%[1]s == 3"`, key[main(i)]))
		}
		if i+1 == length {
			if r.IntN(2) == 0 {
				edge(main(i), "$complete", "")
			}
			break
		}
		if r.IntN(2) == 0 {
			edge(main(i), main(i+1), []string{"", ", on: always"}[r.IntN(2)])
			continue
		}
		entry, second := fmt.Sprintf("f%d", i), fmt.Sprintf("g%d", i)
		node(entry)
		node(second)
		edge(main(i), entry, []string{", fan_out: {spawn_count: 3, branch: true}",
			", fan_out: {over: \"[1, 'x', {'a': 2}]\", branch: true}", ", fan_out: {over: \"[]\", branch: true}"}[r.IntN(3)])
		edge(entry, second, "")
		if r.IntN(2) == 0 {
			edge(entry, main(i+1), ", on: failure, fan_in: true")
		}
		if r.IntN(3) == 0 {
			edge(second, entry, ", on: failure")
		}
		edge(second, main(i+1), ", fan_in: true")
	}
	return "id: random\nnodes:\n" + nodes.String() + "transitions:\n" + transitions.String()
}

// scripted is a result that only the step's name and a seed decide.
func scripted(step Step, seed uint64) StepResult {
	h := fnv.New64a()
	fmt.Fprint(h, step.ID, seed)
	n := h.Sum64()
	r := StepResult{OK: n%5 != 0, Output: map[string]any{"exit_code": n % 4, "comment": n % 4, "status": n % 4}}
	switch {
	case step.Kind == KindFork || step.Kind == KindJoin:
		r.OK = n%50 != 0
	case n%7 == 0:
		r.Output = nil
		r.Error = "lost"
		r.OK = false
	}
	return r
}

// play runs a machine to its end; pick chooses which running step finishes next.
func play(t *testing.T, w *Workflow, seed uint64, pick func(n int) int) (Outcome, map[string]any, []Recorded) {
	t.Helper()
	m, err := NewMachine(w, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var recorded []Recorded
	seen := map[string]bool{}
	for {
		steps, err := m.Next()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range steps {
			if seen[s.ID] {
				t.Fatalf("the step %s was given out twice", s.ID)
			}
			seen[s.ID] = true
		}
		if o, done := m.Done(); done {
			if more, _ := m.Next(); len(more) > 0 || len(m.Running()) > 0 {
				t.Fatal("steps after the end")
			}
			return o, m.State(), recorded
		}
		running := m.Running()
		if len(running) == 0 {
			t.Fatalf("nothing runs, and the machine is not done")
		}
		if len(recorded) > maxSteps {
			t.Fatal("the machine does not end")
		}
		s := running[pick(len(running))]
		r := scripted(s, seed)
		recorded = append(recorded, Recorded{s.ID, r})
		if err := m.Finish(s.ID, r); err != nil {
			t.Fatal(err)
		}
	}
}

// Random workflows with random results: each run ends, the order in which lines
// finish changes nothing, and a run rebuilt from any part of its journal, read
// back from JSON, waits for the same steps.
func TestRandomRuns(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	valid, succeeded, steps := 0, 0, 0
	rounds := 80
	if testing.Short() {
		rounds = 60
	}
	for round := range rounds {
		text := randomWorkflow(r)
		w, err := Parse(t.Context(), "random.yaml", []byte(text), testOptions)
		if err != nil {
			var problems Problems
			if !errors.As(err, &problems) {
				t.Fatal(err)
			}
			if valid == 0 {
				t.Logf("\n%v", err)
			}
			continue
		}
		valid++
		seed := uint64(round)
		first, state, recorded := play(t, w, seed, func(int) int { return 0 })
		steps += len(recorded)
		if first.OK {
			succeeded++
		}
		for _, pick := range []func(int) int{func(n int) int { return n - 1 }, r.IntN} {
			again, otherState, _ := play(t, w, seed, pick)
			if again.OK != first.OK {
				t.Errorf("the order of results changed the outcome: %v, %v\n%s", first, again, text)
			}
			a, _ := json.Marshal(state)
			b, _ := json.Marshal(otherState)
			if first.OK && !bytes.Equal(a, b) {
				t.Errorf("the order of results changed the state: %s, %s\n%s", a, b, text)
			}
		}
		journal, err := json.Marshal(recorded)
		if err != nil {
			t.Fatal(err)
		}
		var read []Recorded
		if err := json.Unmarshal(journal, &read); err != nil {
			t.Fatal(err)
		}
		cut := 0
		if len(read) > 0 {
			cut = r.IntN(len(read) + 1)
		}
		m, pending, _, err := Replay(w, nil, nil, read[:cut], "")
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		for _, rec := range read[cut:] {
			if !slices.ContainsFunc(pending, func(s Step) bool { return s.ID == rec.Step }) {
				t.Fatalf("after the replay %s does not wait", rec.Step)
			}
			if err := m.Finish(rec.Step, rec.Result); err != nil {
				t.Fatal(err)
			}
			if _, err := m.Next(); err != nil {
				t.Fatal(err)
			}
			pending = m.Running()
		}
		o, done := m.Done()
		a, _ := json.Marshal(state)
		b, _ := json.Marshal(m.State())
		if !done || o != first || !bytes.Equal(a, b) {
			t.Errorf("a replayed run ended as %v with %s, the first as %v with %s", o, b, first, a)
		}
		if len(read) > 0 {
			until := read[r.IntN(len(read))].Step
			_, pending, _, err := Replay(w, nil, nil, read, until)
			if err != nil || !slices.ContainsFunc(pending, func(s Step) bool { return s.ID == until }) {
				t.Errorf("a replay until %s waits for %v (%v)", until, pending, err)
			}
		}
	}
	t.Logf("%d workflows, %d runs succeeded, %d steps", valid, succeeded, steps)
	if valid < rounds/3 || succeeded < 5 {
		t.Errorf("%d of %d workflows were valid and %d runs succeeded; this proves little", valid, rounds, succeeded)
	}
}

func parsed(t testing.TB, text string) *Workflow {
	t.Helper()
	w, err := Parse(t.Context(), "test.yaml", []byte(text), testOptions)
	if err != nil {
		t.Fatalf("\n%v", err)
	}
	return w
}

// --from NODE: the results before the node are taken over, the node and what
// follows is done again, with the context of the new run.
func TestReplayUntilNode(t *testing.T) {
	w := parsed(t, "id: x\nnodes:\n  - {id: a, run: a, output: {out: stdout}}\n  - {id: b, run: 'b {{out}} {{context.branch}}'}\n  - {id: c, run: c}\n")
	recorded := []Recorded{
		{"a", StepResult{OK: true, Output: map[string]any{"stdout": "from a"}}},
		{"b", StepResult{OK: false, Output: map[string]any{"exit_code": 1}}},
	}
	_, pending, _, err := Replay(w, nil, map[string]any{"branch": "new"}, recorded, "b")
	if err != nil || len(pending) != 1 || pending[0].Command != "b 'from a' 'new'" {
		t.Errorf("got %v, %v", pending, err)
	}
	if _, _, _, err := Replay(w, nil, nil, recorded, "c"); err == nil {
		t.Error("a node that was never reached was accepted")
	}
	if _, _, _, err := Replay(w, nil, nil, append(recorded, Recorded{Step: "zzz"}), ""); !errors.Is(err, ErrNoStep) {
		t.Errorf("a result without its step: %v", err)
	}
}

// A step of a machine that is not running has no result to give.
func TestFinishTwice(t *testing.T) {
	m, err := NewMachine(parsed(t, "id: x\nnodes: [{id: a, run: a}, {id: b, run: b}]\n"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Finish("a", StepResult{OK: true}); !errors.Is(err, ErrNoStep) {
		t.Errorf("a step that was not given out yet: %v", err)
	}
	if _, err := m.Next(); err != nil {
		t.Fatal(err)
	}
	if err := m.Finish("a", StepResult{OK: true, Output: map[string]any{"f": func() {}}}); err == nil {
		t.Error("a result that is no JSON was accepted")
	}
	if err := m.Finish("a", StepResult{OK: true}); err != nil {
		t.Error(err)
	}
	if err := m.Finish("a", StepResult{OK: true}); !errors.Is(err, ErrNoStep) {
		t.Errorf("a step that has finished: %v", err)
	}
}

// Loops and large values end in an outcome, not in memory.
func TestMachineBounds(t *testing.T) {
	forever := func(m *Machine, r StepResult) Outcome {
		for {
			steps, _ := m.Next()
			if o, done := m.Done(); done {
				return o
			}
			for _, s := range steps {
				if err := m.Finish(s.ID, r); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for name, c := range map[string]struct {
		text, want string
		result     StepResult
	}{
		"visits": {"nodes: [{id: a, run: a}]\ntransitions: [{from: a, to: a}]", "visited 100 times",
			StepResult{OK: true}},
		"steps":   {"nodes: [{id: a, run: a, max_visits: 10000}, {id: b, run: b, max_visits: 10000}]\ntransitions: [{from: a, to: b}, {from: b, to: a}]", "10000 steps", StepResult{OK: true}},
		"skipped": {"nodes: [{id: a, run: a, when: false, max_visits: 10000}, {id: b, run: b, when: false, max_visits: 10000}]\ntransitions: [{from: a, to: b}, {from: b, to: a}]", "10000 steps", StepResult{}},
		"large value": {"nodes: [{id: a, run: a, output: {x: stdout}}]", "a key of the state may have",
			StepResult{OK: true, Output: map[string]any{"stdout": strings.Repeat("x", 2<<20)}}},
		"large state": {"nodes: [{id: a, run: a, output: {x: '{\"v\": result.stdout}', " + strings.Join(func() (l []string) {
			for i := range 9 {
				l = append(l, fmt.Sprintf("x%d: stdout", i))
			}
			return
		}(), ", ") + "}}]", "the state has",
			StepResult{OK: true, Output: map[string]any{"stdout": strings.Repeat("x", 1<<20-100)}}},
		"lines":   {"nodes: [{id: a, task: lib_git_status}, {id: b, human: b}, {id: c, run: c}]\ntransitions: [{from: a, to: b, fan_out: {over: result.list}}, {from: b, to: c, fan_in: true}]", "257 lines", StepResult{OK: true, Output: map[string]any{"list": make([]int, 257)}}},
		"no list": {"nodes: [{id: a, task: lib_git_status}, {id: b, human: b}, {id: c, run: c}]\ntransitions: [{from: a, to: b, fan_out: {over: result.list}}, {from: b, to: c, fan_in: true}]", "over is text, not a list", StepResult{OK: true, Output: map[string]any{"list": "abc"}}},
		"long words": {"nodes: [{id: a, run: a, output: {x: stdout}}, {id: b, run: 'echo {{x}}'}]", "lib_write_file",
			StepResult{OK: true, Output: map[string]any{"stdout": strings.Repeat("'", 100_000)}}},
		"NUL": {"nodes: [{id: a, run: a, output: {x: stdout}}, {id: b, run: 'echo {{x}}'}]", "NUL",
			StepResult{OK: true, Output: map[string]any{"stdout": "a\x00b"}}},
		"glued list": {"nodes: [{id: a, run: a, output: {x: '[1, 2]'}}, {id: b, run: 'echo --x={{x}}'}]",
			"touches other text", StepResult{OK: true}},
		"condition":  {"nodes: [{id: a, task: lib_git_status}, {id: b, run: b}]\ntransitions: [{from: a, to: b, when: result.nothing}]", "no such key", StepResult{OK: true}},
		"costly":     {"nodes: [{id: a, task: lib_git_status, output: {x: 'result.l.map(a, result.l.map(b, result.l.map(c, a + b + c)))'}}]", "cost limit", StepResult{OK: true, Output: map[string]any{"l": make([]int, 1000)}}},
		"many texts": {"nodes: [{id: a, task: lib_git_status, output: {x: 'result.l.map(a, result.s.split(\"\").map(b, b + result.s))'}}]", "cost limit", StepResult{OK: true, Output: map[string]any{"l": make([]int, 1000), "s": strings.Repeat("x", 10000)}}},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := NewMachine(parsed(t, "id: x\n"+c.text+"\n"), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if o := forever(m, c.result); o.OK || !strings.Contains(o.Error, c.want) {
				t.Errorf("ended as %.300v, want %q in it", o, c.want)
			}
		})
	}
}

// What whole numbers are stays whole through JSON, so that expressions count.
func TestNumbersSurvive(t *testing.T) {
	for in, want := range map[any]any{
		3: int64(3), 3.0: int64(3), 2.5: 2.5, uint8(7): int64(7), 1e30: 1e30, int64(1 << 60): int64(1 << 60),
	} {
		got, _, err := throughJSON(in)
		if err != nil || got != want {
			t.Errorf("%v (%T) became %v (%T), %v", in, in, got, got, err)
		}
		again, _, _ := throughJSON(got)
		if again != got {
			t.Errorf("%v became %v on the second journey", got, again)
		}
	}
}

func FuzzMachine(f *testing.F) {
	files := exampleFiles(f)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, []byte(`{"ok":true,"output":{"stdout":"a\nb","exit_code":0,"json":{"verdict":"x"}}}`), uint64(1))
	}
	f.Fuzz(func(t *testing.T, text, result []byte, order uint64) {
		w, err := Parse(t.Context(), "fuzz.yaml", text, Options{LLM: true, Load: loadExample})
		if err != nil {
			return
		}
		var r StepResult
		if json.Unmarshal(result, &r) != nil {
			return
		}
		input := map[string]any{}
		for _, in := range w.Inputs() {
			if in.Required {
				input[in.Name] = map[string]any{"string": "x", "integer": 1, "number": 1.5, "boolean": true,
					"list": []int{1}, "object": map[string]any{}, "any": nil}[in.Type]
			}
		}
		m, err := NewMachine(w, input, map[string]any{"branch": "b", "run_id": "r"})
		if err != nil {
			return
		}
		var recorded []Recorded
		for len(recorded) < 300 {
			if _, err := m.Next(); err != nil {
				t.Fatal(err)
			}
			running := m.Running()
			if _, done := m.Done(); done || len(running) == 0 {
				if !done {
					t.Fatal("nothing runs, and the machine is not done")
				}
				break
			}
			s := running[int(order%uint64(len(running)))]
			recorded = append(recorded, Recorded{s.ID, r})
			if err := m.Finish(s.ID, r); err != nil {
				t.Fatal(err)
			}
		}
		again, _, _, err := Replay(w, input, map[string]any{"branch": "b", "run_id": "r"}, recorded, "")
		if err != nil {
			t.Fatal(err)
		}
		a, _ := json.Marshal(m.State())
		b, _ := json.Marshal(again.State())
		if !bytes.Equal(a, b) {
			t.Fatalf("replayed state %s, not %s", b, a)
		}
	})
}
