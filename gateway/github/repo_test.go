package github_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
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
	// An installation that its account has suspended comes first, by the name of the account.
	suspended := o.client()
	suspended.HTTP = &http.Client{Transport: suspendedFirst{o.http.Transport}}
	if list, err := suspended.Repos(t.Context(), ""); err != nil || len(list) != 1 || list[0].Name != name {
		t.Errorf("after a suspended installation: %v, %v", list, err)
	}
	h.handle("GET /app/installations", func(w http.ResponseWriter, r *http.Request) { t.Error("a token has no installations") })
	if list, err := c.Installations(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
}

// suspendedFirst puts a suspended installation before those in answers.
type suspendedFirst struct{ http.RoundTripper }

func (s suspendedFirst) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.RoundTripper.RoundTrip(r)
	if err != nil || !strings.HasSuffix(r.URL.Path, "/app/installations") {
		return resp, err
	}
	defer resp.Body.Close()
	var list []any
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return nil, err
	}
	list = append([]any{object{"id": 99, "account": object{"login": "0-gone"}, "suspended_at": "2024-01-02T03:04:05Z"}}, list...)
	text, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	resp.Header.Del("Content-Length")
	return resp, nil
}
