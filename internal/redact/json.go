package redact

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// JSON is a JSON text without secrets: none in any string, key or number, however
// it is escaped. A number that is a secret becomes a string. The same text when
// there is none, and text that is no JSON is treated as text.
func (s *Secrets) JSON(text []byte) []byte {
	// Escapes of letters are the only ones that the forms do not know.
	if s.Empty() || len(text) < MinLength || len(s.find(text)) == 0 && !bytes.Contains(text, []byte(`\u`)) {
		return text
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil || d.More() {
		return s.Bytes(text)
	}
	clean, changed := s.clean(reflect.ValueOf(&v).Elem())
	if !changed {
		return text
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if e.Encode(clean.Interface()) != nil { // what was decoded is encoded
		return s.Bytes(text)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}
