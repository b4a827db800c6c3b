package gitd

import (
	"fmt"
	"strings"
	"testing"

	curve "github.com/ramus-dev/ramus/internal/growth"
)

// TestObjectGrowth checks that the time to read objects of git grows with them.
func TestObjectGrowth(t *testing.T) {
	head := "tree " + strings.Repeat("0", 40) + "\n"
	curve.Check(t, "commit", func(text []byte) { _, _ = parseCommit(text) },
		append(curve.Tokens("a", "\n", "a\n", " a\n", "parent "+strings.Repeat("1", 40)+"\n"),
			curve.Case{Prefix: head, Token: "parent " + strings.Repeat("1", 40) + "\n"}, curve.Case{Prefix: head, Token: "a b\n"}, curve.Case{Prefix: head, Token: " a\n"},
			curve.Case{Prefix: head + "gpgsig a\n", Token: " a\n"}, curve.Case{Prefix: head, Token: "\n"})...)
	curve.Check(t, "message", func(text []byte) { cleanMessage(string(text)) }, curve.Tokens("a", "\n", " ", " \n", "a\n\n\n", "a \n", "\t", "\r\n", "#\n", "\x00", "é")...)
	curve.Check(t, "raw diff", func(text []byte) { _, _ = parseChanges(string(text)) }, curve.Tokens("a", "\x00", ":", ":100644 100644 a b M\x00a\x00", "1\t1\ta\x00", "-\t-\ta\x00", "1\t1\t\x00a\x00b\x00")...)
}

// TestKeyGrowth checks that the time to read authorized keys, names of refs and tokens grows with them.
func TestKeyGrowth(t *testing.T) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJEFzNsxW7dIJc9nJqZ7zT7Dn9xUQrAuyrvIKtJ8UyJ4"
	cases := curve.Tokens("a", "\n", "#\n", " ", "\t", `"`, `\"`, `a="`, ",", "a,", "a=\"b\",", "restrict,", key+"\n", key+" a\n", "restrict "+key+"\n", "from=\"!a\" "+key+"\n", "ramus-refs=\"refs/heads/*\" "+key+"\n", "\x00", "é", "\r\n",
		key+" "+strings.Repeat("a", 60_000)+"\n")
	for _, o := range []string{"from", "ramus-repos", "ramus-refs", "expiry-time", "command"} {
		for _, value := range []string{"a,", ",", "*,", "!", "refs/heads/a,", `\"`, "[", "*"} {
			cases = append(cases, curve.Case{Name: o + " " + value, Prefix: o + `="`, Token: value, Suffix: `" ` + key + "\n", Limit: 60_000})
		}
	}
	for i := range cases {
		if cases[i].Limit == 0 {
			cases[i].Limit = authorizedKeysMax
		}
	}
	curve.Check(t, "authorized keys", func(text []byte) { parseAuthorizedKeys(text, func(int, error) {}) }, cases...)
	curve.Check(t, "ref", func(text []byte) {
		_ = CheckRef(string(text))
		_ = CheckName(string(text))
	}, curve.Tokens("a", "a/", ".", "..", "/", "@{", "a.lock/", "\x00", "é", "~")...)

	s := newServer(t)
	token, err := s.Sign(Grant{Subject: "a", Repo: "*", Scopes: []string{ScopeRead}, Expires: s.now().Add(1 << 40)})
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(token, ".")
	var tokens []curve.Case
	for _, c := range []curve.Case{{Token: "a"}, {Token: "."}, {Token: "a."}, {Token: "="}, {Token: "{"}, {Token: "é"}, {Prefix: parts[0] + ".", Token: "W1tb"}, {Prefix: parts[0] + ".", Token: "e30", Suffix: "." + parts[2]},
		{Prefix: parts[0] + "." + parts[1] + ".", Token: "a"}, {Token: "W1tb", Suffix: "." + parts[1] + "." + parts[2]}} {
		c.Name, c.Limit = fmt.Sprintf("%.20s%q", c.Prefix, c.Token), tokenMax
		tokens = append(tokens, c)
	}
	curve.Check(t, "token", func(text []byte) { _, _ = s.Verify(string(text)) }, tokens...)
}
