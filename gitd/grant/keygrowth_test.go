package grant

import (
	"fmt"
	"strings"
	"testing"

	curve "github.com/ramus-dev/ramus/internal/growth"
)

// TestKeyGrowth checks that the time to read authorized keys and tokens grows with them.
func TestKeyGrowth(t *testing.T) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJEFzNsxW7dIJc9nJqZ7zT7Dn9xUQrAuyrvIKtJ8UyJ4"
	cases := curve.Tokens("a", "\n", "#\n", " ", "\t", `"`, `\"`, `a="`, ",", "a,", "a=\"b\",", "restrict,", key+"\n",
		key+" a\n", "restrict "+key+"\n", "from=\"!a\" "+key+"\n", "ramus-refs=\"refs/heads/*\" "+key+"\n", "\x00",
		"é", "\r\n",
		key+" "+strings.Repeat("a", 60_000)+"\n")
	for _, o := range []string{"from", "ramus-repos", "ramus-refs", "expiry-time", "command"} {
		for _, value := range []string{"a,", ",", "*,", "!", "refs/heads/a,", `\"`, "[", "*"} {
			cases = append(cases, curve.Case{Name: o + " " + value, Prefix: o + `="`, Token: value,
				Suffix: `" ` + key + "\n", Limit: 60_000})
		}
	}
	for i := range cases {
		if cases[i].Limit == 0 {
			cases[i].Limit = 4 << 20
		}
	}
	curve.Check(t, "authorized keys", func(text []byte) { ParseAuthorizedKeys(text, func(int, error) {}) }, cases...)
	s := openSigner(t, "")
	token, err := s.Sign(Grant{Subject: "a", Repo: "*", Scopes: []string{ScopeRead}, Expires: s.now().Add(1 << 40)})
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(token, ".")
	var tokens []curve.Case
	for _, c := range []curve.Case{{Token: "a"}, {Token: "."}, {Token: "a."}, {Token: "="}, {Token: "{"}, {Token: "é"},
		{Prefix: parts[0] + ".", Token: "W1tb"}, {Prefix: parts[0] + ".", Token: "e30", Suffix: "." + parts[2]},
		{Prefix: parts[0] + "." + parts[1] + ".", Token: "a"}, {Token: "W1tb", Suffix: "." + parts[1] + "." + parts[2]}} {
		c.Name, c.Limit = fmt.Sprintf("%.20s%q", c.Prefix, c.Token), tokenMax
		tokens = append(tokens, c)
	}
	curve.Check(t, "token", func(text []byte) { _, _ = s.Verify(string(text)) }, tokens...)
}
