package redact

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// JSON returns a JSON text without secrets in any string, key or number, independent of escapes. A number that is a
// secret becomes a string. It returns the same text if there is none. Text that is not JSON is treated as text.
func (s *Secrets) JSON(text []byte) []byte {
	// Escapes of letters are the only ones that the forms do not cover.
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
	if e.Encode(clean.Interface()) != nil { // a decoded value can be encoded
		return s.Bytes(text)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}
