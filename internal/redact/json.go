package redact

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// JSON is a JSON text without secrets: none in any string, key or number, however
// it is escaped. A number that is a secret becomes a string. The same text when
// there is none, and text that is no JSON is treated as text.
func (s *Secrets) JSON(text []byte) []byte { return s.cleanJSON(text, true) }

func (s *Secrets) cleanJSON(text []byte, numbers bool) []byte {
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
	v, changed := s.value(v, numbers)
	if !changed {
		return text
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil { // what was decoded is encoded
		return s.Bytes(text)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// value cleans a decoded JSON value in place.
func (s *Secrets) value(v any, numbers bool) (_ any, changed bool) {
	switch v := v.(type) {
	case string:
		clean := s.String(v)
		return clean, clean != v
	case json.Number:
		if clean := s.String(v.String()); numbers && clean != v.String() {
			return clean, true
		}
	case []any:
		for i := range v {
			clean, c := s.value(v[i], numbers)
			v[i], changed = clean, changed || c
		}
		return v, changed
	case map[string]any:
		for key, value := range v {
			clean, c := s.value(value, numbers)
			if name := s.String(key); name != key {
				delete(v, key)
				key, c = name, true
			}
			v[key], changed = clean, changed || c
		}
		return v, changed
	}
	return v, false
}

// Clean is v without secrets, by way of its JSON: fields that JSON does not
// show are lost when there is one. v itself is not changed, and is returned when there is none.
func Clean[T any](s *Secrets, v T) (T, error) {
	if s.Empty() {
		return v, nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return v, fmt.Errorf("cannot look for secrets in %T: %w", v, err)
	}
	text := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	clean := s.JSON(text)
	if bytes.Equal(clean, text) {
		return v, nil
	}
	var out T
	if json.Unmarshal(clean, &out) == nil {
		return out, nil
	}
	// Where the type wants a number, it is a count that happens to look like a secret.
	var counts T
	if err := json.Unmarshal(s.cleanJSON(text, false), &counts); err != nil {
		return v, fmt.Errorf("cannot remove secrets from %T: %w", v, err)
	}
	return counts, nil
}
