package browser

import (
	_ "embed"
	"encoding/json"
	"slices"
)

//go:embed spec.schema.json
var specSchema []byte

// Schema returns the JSON Schema of a spec, for editors and tools. It has no references, so that it can be a part of
// another schema. It describes the form of a spec. [Parse] also checks regular expressions, addresses and times.
func Schema() json.RawMessage { return slices.Clone(specSchema) }
