package workflow

import (
	_ "embed"
	"encoding/json"
	"slices"
)

//go:embed workflow.schema.json
var workflowSchema []byte

// Schema is the JSON Schema of workflow files, for editors. It knows
// the shape of a file; what only the whole of it tells (names, reachability,
// expressions, slots) is [Parse]'s.
func Schema() json.RawMessage { return slices.Clone(workflowSchema) }
