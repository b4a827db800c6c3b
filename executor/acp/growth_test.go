package acp

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/ramus-dev/ramus/internal/growth"
)

// TestGrowth checks that the time to read an agent's messages grows with
// their size.
func TestGrowth(t *testing.T) {
	cases := growth.Tokens("a", "{", "[", `"`, `\`, `{"a":`, " ", "1", "\xff", `{"update":`)
	for _, u := range []string{UpdateMessage, UpdateTool, UpdatePlan, UpdateMode} {
		head := `{"sessionId":"a","update":{"sessionUpdate":"` + u + `",`
		for _, token := range []string{`"a":1,`, `"content":{"text":"a"},`, `"entries":[],`,
			`"locations":[{"path":"a"}],`, `"content":[{"type":"diff"}],`} {
			cases = append(cases, growth.Case{Name: u + " " + token, Prefix: head, Token: token, Suffix: `"b":1}}`})
		}
		cases = append(cases, growth.Case{Name: u + " text", Prefix: head + `"title":"`, Token: `a \n`, Suffix: `","b":1}}`},
			growth.Case{Name: u + " entries", Prefix: head + `"entries":[`, Token: `{"content":"a"},`, Suffix: `{}]}}`},
			growth.Case{Name: u + " members", Prefix: head,
				Each: func(n int) string { return fmt.Sprintf(`"k%d":1,`, n) }, Suffix: `"b":1}}`})
	}
	growth.Check(t, "update", func(text []byte) {
		if _, u, err := ParseUpdate(text); err == nil && u.Tool != nil {
			u.Tool.Words()
		}
	}, cases...)

	ready := make(chan struct{})
	close(ready)
	messages := growth.Tokens("a", "\n", "a\n", "{", "{}\n", `{"a":`, "[", "[]\n", `{"id":1}`+"\n",
		`{"id":1,"method":"a"}`+"\n", `{"method":"session/update"}`+"\n", `{"method":"a"}`+"\n", `"`, "\x00", "é\n", "\r\n")
	growth.Check(t, "lines", func(text []byte) {
		l := &lines{from: bufio.NewReader(bytes.NewReader(text)), stray: io.Discard, ready: ready,
			over: make(chan struct{}), requests: make(chan struct{}, len(text)), notes: make(chan struct{}, len(text))}
		_, _ = io.Copy(io.Discard, l)
	}, messages...)
	growth.Check(t, "replay", func(text []byte) {
		_, _ = Replay(bytes.NewReader(text), func(Update) {}, func() {})
	}, messages...)
}
