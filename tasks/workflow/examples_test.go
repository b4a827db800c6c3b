package workflow

import (
	"os"
	"path/filepath"
	"testing"
)

// examples is the folder of the workflows that people learn from.
const examples = "../../examples/workflows"

// loadExample finds a sub-workflow among the examples.
func loadExample(id string) ([]byte, error) {
	return os.ReadFile(filepath.Join(examples, id+".yaml"))
}

func exampleFiles(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(examples, "*.yaml"))
	if err != nil || len(files) < 5 {
		t.Fatalf("found %d examples (%v)", len(files), err)
	}
	return files
}

// People copy examples. Each must be valid as it is, and be
// called what its id says.
func TestExamplesAreValid(t *testing.T) {
	for _, file := range exampleFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			w, err := Parse(t.Context(), filepath.Base(file), text, Options{Load: loadExample, LLM: true})
			if err != nil {
				t.Fatalf("\n%v", err)
			}
			if w.ID+".yaml" != filepath.Base(file) {
				t.Errorf("its id is %q", w.ID)
			}
		})
	}
}
