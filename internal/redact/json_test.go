package redact

import (
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestJSON(t *testing.T) {
	s := set(t, map[string]string{"A": "hunter\"2/2", "N": "1234567890"})
	for text, want := range map[string]string{
		`{"a":["x hunter\"2/2 y",1]}`:                    `{"a":["x [secret A] y",1]}`,
		`{"a":"\u0068unter\u00222\/2"}`:                  `{"a":"[secret A]"}`,
		`{"hunter\"2/2":{"b":null}}`:                     `{"[secret A]":{"b":null}}`,
		`{"n":1234567890,"big":12345678901234567890123}`: `{"big":"[secret N][secret N]123","n":"[secret N]"}`,
		`"a\u00e4<>"`:        `"a\u00e4<>"`,
		`{"a": "plain"}`:     `{"a": "plain"}`,
		`no hunter"2/2 JSON`: `no [secret A] JSON`,
		`"hunter\"2/2" 5`:    `"[secret A]" 5`,
		// The first of two fields with one key is in the text, and not in the value.
		`{"a":"hunter\"2/2","a":"x"}`:           `{"a":"x"}`,
		`{"a":"\u0068unter\"2/2","b":1,"a":[]}`: `{"a":[],"b":1}`,
		`{}] hunter"2/2`:                        `{}] [secret A]`,
	} {
		if got := string(s.JSON([]byte(text))); got != want {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
	}
}

func TestClean(t *testing.T) {
	type word string
	type inner struct{ Text string }
	type thing struct {
		Name   string
		Word   word
		Count  int64
		Any    map[string]any
		Raw    json.RawMessage
		Bytes  []byte
		List   []string
		In     *inner
		Inner  []inner
		Time   time.Time
		Reader io.Reader
		hidden string
	}
	s := set(t, map[string]string{"A": "hunter22", "N": "1234567890"})
	make := func(text, number string) thing {
		return thing{Name: "my " + text, Word: "hunter22", Count: 1234567890,
			Any: map[string]any{"n": number, text: []any{text}, "other": 5.0},
			Raw: json.RawMessage(`["` + text + `"]`), Bytes: []byte(text), List: []string{"a", text}, In: &inner{text},
			Inner: []inner{{"b"}, {text}}, hidden: "hunter22"}
	}
	before := make("hunter22", "")
	before.Any["n"] = 1234567890.0
	before.Reader = strings.NewReader("hunter22")
	want := make("[secret A]", "[secret N]")
	want.Reader = before.Reader
	if got := Clean(s, before); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	again := make("hunter22", "")
	again.Any["n"] = 1234567890.0
	again.Reader = before.Reader
	if !reflect.DeepEqual(before, again) {
		t.Error("the value itself was changed")
	}
	same := &thing{Name: "x", Any: map[string]any{"n": nil, "f": 1.5}, List: []string{"a"}}
	if Clean(s, same) != same || Clean[any](s, nil) != nil || Clean[any](s, "hunter22") != "[secret A]" {
		t.Error("a value without secrets was copied, or one with them not cleaned")
	}
}

// TestCleanKinds checks values that a first look may take for unchanged or for no text.
func TestCleanKinds(t *testing.T) {
	const ten, label = "ten-bytes!", "[secret A]" // of the same length
	s := set(t, map[string]string{"A": ten, "N": "1234567890"})
	type late struct {
		hidden string
		Text   string
	}
	for name, tt := range map[string]struct{ in, want any }{
		"bytes of the same length":   {[]byte(ten), []byte(label)},
		"JSON of the same length":    {json.RawMessage(`"` + ten + `"`), json.RawMessage(`"` + label + `"`)},
		"no bytes":                   {[]byte{}, []byte{}},
		"bytes after others":         {[]byte("a" + ten), []byte("a" + label)},
		"a field after a hidden one": {late{ten, ten}, late{ten, label}},
		"a number": {[]any{int64(1234567890), uint32(1234567890), json.Number("1234567890"),
			1234567890.0, 7, 1.5}, []any{"[secret N]", "[secret N]", "[secret N]", "[secret N]", 7, 1.5}},
		"a number of a type":     {[]int64{1234567890}, []int64{1234567890}},
		"a key":                  {map[string]int{ten: 1, "b": 2}, map[string]int{label: 1, "b": 2}},
		"a map of none":          {map[string]string(nil), map[string]string(nil)},
		"a list of lists":        {[][]string{{"a"}, {"b", ten}}, [][]string{{"a"}, {"b", label}}},
		"a pointer to a pointer": {new(*late), new(*late)},
		"truth":                  {[]any{true, nil}, []any{true, nil}},
	} {
		if got := Clean(s, tt.in); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %v becomes %v, want %v", name, tt.in, got, tt.want)
		}
	}
}
