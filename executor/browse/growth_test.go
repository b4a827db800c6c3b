package browse

import (
	"testing"

	"github.com/ramus-dev/ramus/internal/growth"
)

// TestGrowth checks that the time to read addresses and storage states grows with them.
func TestGrowth(t *testing.T) {
	growth.Check(t, "page", func(text []byte) { _, _ = parsePage("http://localhost:8080/" + string(text)) },
		growth.Tokens("a", "/", "%", "%41", "?", "#", "&a=b", "..", "../", "é", " ")...)
	growth.Check(t, "state", func(text []byte) { _, _, _ = parseState(text) }, append(growth.Tokens("{", "[", `"`, "a"),
		growth.Case{Name: "cookies", Prefix: `{"cookies":[`, Token: `{"name":"a","value":"0123456789abcdef"},`,
			Suffix: "{}]}"}, growth.Case{Name: "storage", Prefix: `{"origins":[{"localStorage":[`,
			Token: `{"name":"a","value":"0123456789abcdef"},`, Suffix: "{}]}]}"})...)
}
