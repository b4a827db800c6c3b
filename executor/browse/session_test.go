package browse

import (
	"bytes"
	"reflect"
	"testing"
)

// FuzzParseState checks that a storage state that was read is read again as the same.
func FuzzParseState(f *testing.F) {
	f.Add([]byte(`{"cookies":[{"name":"a","value":"b%20c","domain":"127.0.0.1","path":"/","expires":-1,"httpOnly":true,"secure":false,"sameSite":"Lax"}],"origins":[]}`))
	f.Add([]byte(`{"origins":[{"origin":"http://127.0.0.1:1","localStorage":[{"name":"t","value":"{\"token\":\"0123456789abcdef\"}"}]}]}`))
	f.Add([]byte(`{"cookies":[]} x`))
	f.Add([]byte(`{"cookies":[],"more":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		state, values, err := parseState(text)
		if err != nil {
			return
		}
		again, more, err := parseState(state)
		if err != nil || !bytes.Equal(again, state) || !reflect.DeepEqual(more, values) {
			t.Errorf("%s becomes %s, then %s, %v", text, state, again, err)
		}
	})
}
