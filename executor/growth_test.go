package executor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/growth"
)

// TestGrowth checks that the time to read what comes from containers grows with it.
func TestGrowth(t *testing.T) {
	id := strings.Repeat("0", 40)
	growth.Check(t, "raw diff", func(text []byte) { parseRaw(string(text)) }, growth.Tokens("a", "\x00", ":", ":100644 100755 "+id+" "+id+" M\x00a\x00", ":1 1 a a M\x00\x00", " ", "1 ", "é", "\n")...)
	growth.Check(t, "commit output", func(text []byte) { parseCommitOutput(string(text)) }, growth.Tokens("a", "\x00", " ", "tip "+id+"\x00", "left a\x00", "left ", "index a\x00", "artifacts\x00", "loose\x00", "\n")...)
	growth.Check(t, "journal", func(text []byte) { _, _ = record.ParseJournal(text) }, append(growth.Tokens("a", "{", "{}\n", "\n", `{"kind":"a"}`+"\n", "[", `"`, "\x00"), growth.Case{Name: "fields", Prefix: "{", Each: func(n int) string { return fmt.Sprintf(`"k%d":1,`, n) }, Suffix: `"a":1}` + "\n"})...)
	growth.Check(t, "page", func(text []byte) { _, _ = parsePage("http://localhost:8080/" + string(text)) }, growth.Tokens("a", "/", "%", "%41", "?", "#", "&a=b", "..", "../", "é", " ")...)
	growth.Check(t, "state", func(text []byte) { _, _, _ = parseState(text) }, append(growth.Tokens("{", "[", `"`, "a"),
		growth.Case{Name: "cookies", Prefix: `{"cookies":[`, Token: `{"name":"a","value":"0123456789abcdef"},`, Suffix: "{}]}"}, growth.Case{Name: "storage", Prefix: `{"origins":[{"localStorage":[`, Token: `{"name":"a","value":"0123456789abcdef"},`, Suffix: "{}]}]}"})...)
	growth.Check(t, "caller", func(text []byte) { _, _ = record.ParseCaller(string(text)) }, growth.Tokens("a", ":", "a:", "/", "é")...)
}
