package github_test

import (
	"net/http"
	"testing"

	"github.com/ramus-dev/ramus/gateway/github"
)

// TestRepos lists the repositories of an App's installations and of a token's account.
func TestRepos(t *testing.T) {
	o := newOffice(t)
	h, c := newHub(t)
	h.answer("GET /user/repos", []any{map[string]any{"full_name": "acme/b"}, map[string]any{"full_name": "other/c"},
		map[string]any{"full_name": "acme/a"}})
	name := o.hub.Account + "/app"
	for _, x := range []struct {
		about   string
		client  *github.Client
		account string
		want    string
	}{
		{"all of an App", o.client(), "", name},
		{"an account of an App", o.client(), o.hub.Account, name},
		{"another account of an App", o.client(), "nobody", ""},
		{"all of a token", c, "", "acme/a acme/b other/c"},
		{"an account of a token", c, "ACME", "acme/a acme/b"},
	} {
		list, err := x.client.Repos(t.Context(), x.account)
		got := ""
		for i, r := range list {
			if i > 0 {
				got += " "
			}
			got += r.Name
		}
		if err != nil || got != x.want {
			t.Errorf("%s: %q, %v", x.about, got, err)
		}
	}
	h.handle("GET /app/installations", func(w http.ResponseWriter, r *http.Request) { t.Error("a token has no installations") })
	if list, err := c.Installations(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
}
