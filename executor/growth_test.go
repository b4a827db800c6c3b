package executor

import (
	"bytes"
	"encoding/binary"
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
	entry := func(n int) string {
		var b bytes.Buffer
		b.Write(make([]byte, indexFixed-2))
		name := fmt.Sprintf("n%07d", n)
		_ = binary.Write(&b, binary.BigEndian, uint16(len(name))) // never fails
		b.WriteString(name)
		b.Write(make([]byte, 8-(indexFixed+len(name))%8))
		return b.String()
	}
	growth.Check(t, "index", func(text []byte) {
		head := append([]byte("DIRC\x00\x00\x00\x02"), binary.BigEndian.AppendUint32(nil, uint32(len(text)/72))...)
		_, _ = parseIndex(append(append(head, text...), make([]byte, indexTrailer)...))
	}, growth.Case{Name: "entries", Each: entry}, growth.Repeat("a"), growth.Repeat("\x00"), growth.Repeat("TREE\x00\x00\x00\x00"), growth.Repeat("\xff"))
	growth.Check(t, "page", func(text []byte) { _, _ = parsePage("http://localhost:8080/" + string(text)) }, growth.Tokens("a", "/", "%", "%41", "?", "#", "&a=b", "..", "../", "é", " ")...)
	growth.Check(t, "state", func(text []byte) { _, _, _ = parseState(text) }, append(growth.Tokens("{", "[", `"`, "a"),
		growth.Case{Name: "cookies", Prefix: `{"cookies":[`, Token: `{"name":"a","value":"0123456789abcdef"},`, Suffix: "{}]}"}, growth.Case{Name: "storage", Prefix: `{"origins":[{"localStorage":[`, Token: `{"name":"a","value":"0123456789abcdef"},`, Suffix: "{}]}]}"})...)
	growth.Check(t, "caller", func(text []byte) { _, _ = record.ParseCaller(string(text)) }, growth.Tokens("a", ":", "a:", "/", "é")...)
}
