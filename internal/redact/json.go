package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
)

// JSON returns a JSON text without secrets in any string, key or number, independent of escapes. A number that is a
// secret becomes a string. It returns the same text if there is none. Text that is not JSON is treated as text.
func (s *Secrets) JSON(text []byte) []byte {
	// Escapes of letters are the only ones that the forms do not cover.
	if s.Empty() || len(text) < MinLength || len(s.find(text)) == 0 && !bytes.Contains(text, []byte(`\u`)) {
		return text
	}
	if !json.Valid(text) {
		return s.Bytes(text)
	}
	if !s.inTokens(text) {
		return text
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil { // valid text can be decoded
		return s.Bytes(text)
	}
	clean, _ := s.clean(reflect.ValueOf(&v).Elem())
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if e.Encode(clean.Interface()) != nil { // a decoded value can be encoded
		return s.Bytes(text)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// inTokens reports whether a string, key or number of a JSON text has a secret. A decoded value has only the last one of
// fields with the same key, so that it does not tell.
func (s *Secrets) inTokens(text []byte) bool {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err != nil {
			return !errors.Is(err, io.EOF)
		}
		word := ""
		switch token := token.(type) {
		case string:
			word = token
		case json.Number:
			word = token.String()
		}
		if s.String(word) != word {
			return true
		}
	}
}
