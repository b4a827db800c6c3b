package record_test

import (
	"fmt"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/growth"
)

// TestGrowth checks that the time to read a journal and the name of a caller grows with them.
func TestGrowth(t *testing.T) {
	growth.Check(t, "journal", func(text []byte) { _, _ = record.ParseJournal(text) },
		append(growth.Tokens("a", "{", "{}\n", "\n", `{"kind":"a"}`+"\n", "[", `"`, "\x00"), growth.Case{Name: "fields",
			Prefix: "{", Each: func(n int) string { return fmt.Sprintf(`"k%d":1,`, n) }, Suffix: `"a":1}` + "\n"})...)
	growth.Check(t, "caller", func(text []byte) { _, _ = record.ParseCaller(string(text)) },
		growth.Tokens("a", ":", "a:", "/", "é")...)
}
