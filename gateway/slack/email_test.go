package slack_test

import (
	"testing"

	"github.com/ramus-dev/ramus/gateway/slack"
)

func TestEmail(t *testing.T) {
	s, c, _ := start(t)
	// fresh is a client that knows no addresses yet.
	fresh := func() *slack.Client {
		return &slack.Client{URL: c.URL, Token: c.Token, HTTP: c.HTTP, Log: c.Log, Now: c.Now, Sleep: c.Sleep}
	}
	s.AddUser("U77", "ada")
	for _, test := range []struct{ profile, want string }{
		{"ada@example.org", "ada@example.org"},
		{"", ""},
		{"ada", ""},
		{"ada@localhost", ""},
		{"a b@example.org", ""},
		{"ada@example.org\nCo-authored-by: x <x@example.org>", ""},
		{"<ada@example.org>", ""},
		{"a@b@example.org", ""},
	} {
		s.SetEmail("U77", test.profile)
		if got, err := fresh().Email(t.Context(), "U77"); err != nil || got != test.want {
			t.Errorf("%q: %q %v, want %q", test.profile, got, err, test.want)
		}
	}
	s.SetEmail("U77", "ada@example.org")
	s.Lack("users:read.email")
	if got, err := fresh().Email(t.Context(), "U77"); err != nil || got != "" {
		t.Errorf("without the scope: %q %v", got, err)
	}
	s.Lack()
	one := fresh()
	for range 2 {
		if got, err := one.Email(t.Context(), "U77"); err != nil || got != "ada@example.org" {
			t.Errorf("%q %v", got, err)
		}
	}
	if got, err := c.Email(t.Context(), "no id"); err != nil || got != "" {
		t.Errorf("%q %v", got, err)
	}
}
