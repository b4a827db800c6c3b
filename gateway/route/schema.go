package route

import (
	"encoding/json"
	"reflect"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/ramus-dev/ramus/executor/record"
)

// TypeSchemas are the schemas of types whose JSON is not that of their Go fields.
var TypeSchemas = map[reflect.Type]*jsonschema.Schema{
	reflect.TypeFor[record.Caller]():   {Type: "string", Description: "run:ID or conv:ID"},
	reflect.TypeFor[time.Duration]():   {Type: "integer", Description: "nanoseconds"},
	reflect.TypeFor[json.RawMessage](): {},
	reflect.TypeFor[[]byte]():          {Type: "string", Description: "base64"},
}
