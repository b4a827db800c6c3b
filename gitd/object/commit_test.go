package object

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	curve "github.com/ramus-dev/ramus/internal/growth"
)

func FuzzParseCommit(f *testing.F) {
	f.Add([]byte("tree " + strings.Repeat("ab", 20) +
		"\nauthor A <a> 1 +0000\ncommitter C <c> 1 +0000\nencoding latin1\n\nText\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseCommit(data)
		if err != nil {
			return
		}
		again, err := ParseCommit(c.Encode())
		if err != nil || again.Tree != c.Tree || again.Author != c.Author || !bytes.Equal(again.Message, c.Message) {
			t.Errorf("%q became %q, %v", data, c.Encode(), err)
		}
	})
}

// TestParseCommit checks which headers count.
func TestParseCommit(t *testing.T) {
	hash := func(c string) string { return strings.Repeat(c, 40) }
	text := "tree " + hash("a") + "\nparent " + hash("b") + "\nparent " + hash("c") + "\nauthor A <a> 1 +0000\n" +
		"parent " + hash("d") + "\ntree " + hash("e") +
		"\ncommitter C <c> 1700000000 +0100\nencoding latin1\n\nText\n\ntree x\n"
	c, err := ParseCommit([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if c.Tree != Hash(hash("a")) || !slices.Equal(c.Parents, []Hash{Hash(hash("b")), Hash(hash("c"))}) {
		t.Errorf("%+v", c)
	}
	if c.Author != "A <a> 1 +0000" || c.Encoding != "latin1" || string(c.Message) != "Text\n\ntree x\n" {
		t.Errorf("%+v", c)
	}
	for committer, want := range map[string]int64{c.Committer: 1700000000, "": 0, "C": 0, "C <c> x +0000": 0, "5 +0000": 5} {
		if got := (RawCommit{Committer: committer}).CommitterTime(); got != want {
			t.Errorf("%q: %d, want %d", committer, got, want)
		}
	}
	plain := RawCommit{Tree: EmptyTree, Author: "A <a> 1 +0000", Committer: "C <c> 1 +0000", Message: []byte("m\n")}
	if got, want := string(plain.Encode()),
		"tree "+string(EmptyTree)+"\nauthor A <a> 1 +0000\ncommitter C <c> 1 +0000\n\nm\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, damaged := range []string{"", "tree x\n\n", "parent " + hash("a") + "\n\n"} {
		if c, err := ParseCommit([]byte(damaged)); err == nil {
			t.Errorf("%q: %+v", damaged, c)
		}
	}
}

// TestCommitGrowth checks that the time to parse a commit grows with it.
func TestCommitGrowth(t *testing.T) {
	head := "tree " + strings.Repeat("0", 40) + "\n"
	curve.Check(t, "commit", func(text []byte) { _, _ = ParseCommit(text) },
		append(curve.Tokens("a", "\n", "a\n", " a\n", "parent "+strings.Repeat("1", 40)+"\n"),
			curve.Case{Prefix: head, Token: "parent " + strings.Repeat("1", 40) + "\n"},
			curve.Case{Prefix: head, Token: "a b\n"}, curve.Case{Prefix: head, Token: " a\n"},
			curve.Case{Prefix: head + "gpgsig a\n", Token: " a\n"}, curve.Case{Prefix: head, Token: "\n"})...)
}
