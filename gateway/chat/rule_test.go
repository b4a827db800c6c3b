package chat

import (
	"strings"
	"testing"
)

func TestRules(t *testing.T) {
	rules := []Rule{
		{Words: []string{"checkout", "Add to Cart"}, Repo: "shop"},
		{Words: []string{"größe"}, Channels: []string{"C02"}, Repo: "sizes", Base: "next", Agent: "tailor"},
		{Words: []string{"out"}, Repo: "out"},
	}
	for _, x := range []struct{ channel, text, want string }{
		{"C01", "the Checkout is slow", "shop"},
		{"C01", "the checkouts are slow", ""},
		{"C01", "checkout_test fails", ""},
		{"C01", "(checkout)", "shop"},
		{"C01", "please: add to cart!", "shop"},
		{"C01", "recheckout, out", "out"},
		{"C01", "die GRÖSSE", ""},
		{"C01", "die größe", ""},
		{"C02", "die GRÖße stimmt nicht", "sizes"},
		{"C01", "", ""},
		{"C01", strings.Repeat("x ", maxRuleText) + "checkout", ""},
	} {
		if got := findRule(rules, x.channel, x.text).Repo; got != x.want {
			t.Errorf("%s: %.40q leads to %q, want %q", x.channel, x.text, got, x.want)
		}
	}
	for _, bad := range []Rule{{}, {Repo: "x"}, {Words: []string{" "}, Repo: "x"}, {Words: []string{"x"}},
		{Words: make([]string, maxRuleWords+1), Repo: "x"}} {
		if CheckRules([]Rule{bad}) == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	if err := CheckRules(rules); err != nil {
		t.Error(err)
	}
}
