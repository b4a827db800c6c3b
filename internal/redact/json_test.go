package redact

import (
	"encoding/json"
	"reflect"
	"testing"
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
	} {
		if got := string(s.JSON([]byte(text))); got != want {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
	}
}

func TestClean(t *testing.T) {
	type thing struct {
		Name  string
		Count int64
		Any   map[string]any
		Raw   json.RawMessage
		Gone  func() `json:"-"`
	}
	s := set(t, map[string]string{"A": "hunter22", "N": "1234567890"})
	before := thing{Name: "my hunter22", Count: 1234567890, Any: map[string]any{"n": "1234567890"}, Raw: json.RawMessage(`["hunter22"]`)}
	got, err := Clean(s, before)
	want := thing{Name: "my [secret A]", Count: 1234567890, Any: map[string]any{"n": "[secret N]"}, Raw: json.RawMessage(`["[secret A]"]`)}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if before.Name != "my hunter22" || string(before.Raw) != `["hunter22"]` {
		t.Error("the value itself was changed")
	}
	same := thing{Name: "x", Gone: func() {}}
	if got, err := Clean(s, same); err != nil || got.Gone == nil {
		t.Error("a value without secrets was copied", err)
	}
	if _, err := Clean(s, make(chan int)); err == nil {
		t.Error("what cannot be looked through is taken as clean")
	}
}
