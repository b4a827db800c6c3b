package browser

import "encoding/json"

// Parse reads a spec from YAML or JSON and fills in every default but URL and
// Start. name is what messages call it and where Name's default comes from. All mistakes are told
// at once, with line and column where there are any.
func Parse(name string, text []byte) (Spec, error) { panic("not built") }

// Schema is the JSON Schema of a spec, for editors and tools.
func Schema() json.RawMessage { panic("not built") }
