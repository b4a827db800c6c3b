package browser

import (
	_ "embed"
	"encoding/json"
	"slices"
)

//go:embed spec.schema.json
var specSchema []byte

// Schema is the JSON Schema of a spec, for editors and tools. It has no references, so
// that it can stand within another one. It knows the shape of a spec; what regular expressions,
// addresses and times mean is [Parse]'s.
func Schema() json.RawMessage { return slices.Clone(specSchema) }
