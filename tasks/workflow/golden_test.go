package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/internal/golden"
)

// testOptions knows the workflows under testdata/sub.
var testOptions = Options{LLM: true, Load: func(id string) ([]byte, error) {
	return os.ReadFile(filepath.Join("testdata", "sub", id+".yaml"))
}}

// Each NAME.yaml of testdata/bad is a workflow with mistakes. NAME.problems has
// the messages about them.
func TestProblems(t *testing.T) {
	files, _ := filepath.Glob("testdata/bad/*.yaml")
	if len(files) == 0 {
		t.Fatal("no files")
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			o := testOptions
			if strings.Contains(file, "nothing-known") {
				o = Options{}
			}
			_, err = Parse(t.Context(), filepath.Base(file), text, o)
			var problems Problems
			if !errors.As(err, &problems) || len(problems) == 0 {
				t.Fatalf("got %v, want problems", err)
			}
			golden.CompareFile(t, strings.TrimSuffix(file, ".yaml")+".problems", strings.TrimRight(err.Error(), "\n")+"\n")
		})
	}
}

// script is a list of results for the steps of a run.
type script struct {
	Input   map[string]any `json:"input"`
	Context map[string]any `json:"context"`
	// Results by step ID, else by node; else the step succeeds with nothing.
	Results map[string]StepResult `json:"results"`
	// Order in which running steps finish: "first" (default) or "last".
	Order string `json:"order"`
}

// result is what a step of a script comes to.
func (s script) result(step Step) StepResult {
	if r, ok := s.Results[step.ID]; ok {
		return r
	}
	if r, ok := s.Results[step.Node]; ok && step.Kind != KindFork && step.Kind != KindJoin {
		return r
	}
	return StepResult{OK: true, Output: map[string]any{"stdout": "output of " + step.ID + "\n", "exit_code": 0}}
}

// trace runs a workflow by a script and writes down what happened.
func trace(t *testing.T, w *Workflow, s script) (string, []Recorded) {
	t.Helper()
	var b strings.Builder
	var recorded []Recorded
	m, err := NewMachine(w, s.Input, s.Context)
	if err != nil {
		return fmt.Sprintf("cannot start: %v\n", err), nil
	}
	for {
		steps, err := m.Next()
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range steps {
			line, err := json.Marshal(step)
			if err != nil {
				t.Fatal(err)
			}
			var again Step
			if err := json.Unmarshal(line, &again); err != nil {
				t.Fatal(err)
			}
			second, _ := json.Marshal(again)
			if !bytes.Equal(line, second) {
				t.Errorf("a step does not survive JSON: %s, %s", line, second)
			}
			fmt.Fprintf(&b, "next   %s\n", line)
		}
		if o, done := m.Done(); done {
			line, _ := json.Marshal(o)
			state, _ := json.MarshalIndent(m.State(), "", "  ")
			fmt.Fprintf(&b, "done   %s\nstate  %s\n", line, state)
			return b.String(), recorded
		}
		running := m.Running()
		if len(running) == 0 {
			t.Fatal("nothing runs and the machine is not done")
		}
		step := running[0]
		if s.Order == "last" {
			step = running[len(running)-1]
		}
		r := s.result(step)
		line, _ := json.Marshal(r)
		fmt.Fprintf(&b, "finish %s %s\n", step.ID, line)
		recorded = append(recorded, Recorded{step.ID, r})
		if err := m.Finish(step.ID, r); err != nil {
			t.Fatal(err)
		}
	}
}

// Each NAME.yaml of testdata/run is a workflow. NAME.CASE.json is a script of results,
// and NAME.CASE.trace has the actions of the machine.
func TestTraces(t *testing.T) {
	scripts, _ := filepath.Glob("testdata/run/*.json")
	if len(scripts) == 0 {
		t.Fatal("no scripts")
	}
	for _, file := range scripts {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var s script
			if err := json.Unmarshal(text, &s); err != nil {
				t.Fatal(err)
			}
			base, _, _ := strings.Cut(name, ".")
			yaml, err := os.ReadFile("testdata/run/" + base + ".yaml")
			if err != nil {
				t.Fatal(err)
			}
			w, err := Parse(t.Context(), base+".yaml", yaml, testOptions)
			if err != nil {
				t.Fatalf("\n%v", err)
			}
			got, _ := trace(t, w, s)
			golden.CompareFile(t, "testdata/run/"+name+".trace", got)
		})
	}
}
