package github

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"testing"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/internal/growth"
)

// TestDeliveryGrowth checks that the time to read a signed delivery grows with it.
func TestDeliveryGrowth(t *testing.T) {
	const repository = `"repository":{"name":"r","owner":{"login":"o"}}`
	tokens := growth.Tokens("a", "{", "[", `"`, `\`, `{"a":`, "[[", " ", "1", "-", "é", "\xff", "\x00", `{"repository":`)
	for _, member := range []string{`"a":1,`, `"a":[],`, `"check_run":{},`, `"pull_request":{"number":1},`,
		`"repository":{},`, `"ref":"a",`, `"commits":[{}],`, `"action":"a",`, `"number":1e9,`, `"issue":{"number":1},`} {
		tokens = append(tokens, growth.Case{Name: member, Prefix: "{" + repository + ",", Token: member, Suffix: `"b":1}`})
	}
	for _, value := range []string{`\u0061`, "é", `\\`, "<!--", "\xff", `\ud83d\ude00`, "<"} {
		tokens = append(tokens, growth.Case{Name: "in a text " + value,
			Prefix: "{" + repository + `,"issue":{"number":1,"body":"`, Token: value, Suffix: `"}}`})
	}
	tokens = append(tokens, growth.Case{Name: "members", Prefix: "{" + repository + ",", Suffix: `"b":1}`,
		Each: func(n int) string { return fmt.Sprintf(`"k%d":{},`, n) }},
		growth.Case{Name: "numbers", Prefix: "{" + repository + `,"a":[`, Token: "1,", Suffix: "1]}"},
		growth.Case{Name: "pull requests", Prefix: `{"check_run":{"pull_requests":[`, Token: `{"number":1},`,
			Suffix: "{}]}," + repository + "}"})
	for _, event := range []string{"check_run", "push"} {
		growth.Check(t, event, func(text []byte) {
			mac := hmac.New(sha256.New, []byte("s"))
			mac.Write(text)
			h := http.Header{"X-Github-Delivery": {"1"}, "X-Github-Event": {event},
				"Content-Type": {"application/json"}, "X-Hub-Signature-256": {"sha256=" + hex.EncodeToString(mac.Sum(nil))}}
			_, _ = ParseDelivery(h, text, "s")
		}, tokens...)
	}
	growth.Check(t, "name", func(text []byte) { ParseName(string(text)) },
		growth.Tokens("a", "/", "a/", "https://", "@", ":", ".", "git@github.com:")...)
	c := &Client{}
	growth.Check(t, "comment", func(text []byte) {
		forge.Bounded(string(text))
		forge.LastLines(string(text))
		c.text(string(text), forge.Trailer("a"))
	}, growth.Tokens("a", "\n", "`", "```", "```\n", "~~~\n", "<!--", "-->", "@a ", "é", "\xff", "```a\n", "    a\n",
		"<details>")...)
}
