package record

import (
	"encoding/json"
	"fmt"
)

// Marshal returns the JSON of a value of ramus's own types. It panics if JSON cannot hold the value.
func Marshal(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("cannot marshal %T: %v", v, err))
	}
	return b
}
