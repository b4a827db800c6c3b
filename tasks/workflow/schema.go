package workflow

import (
	_ "embed"
	"encoding/json"
	"slices"
)

//go:embed workflow.schema.json
var workflowSchema []byte

// Schema returns the JSON Schema of workflow files, for editors. It describes the form of a file. [Parse] also checks
// the file as a whole (names, reachability, expressions, slots).
func Schema() json.RawMessage { return slices.Clone(workflowSchema) }
