package web_test

import (
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/sealed"
	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/gateway/credential"
	"github.com/ramus-dev/ramus/gateway/token"
	"github.com/ramus-dev/ramus/gateway/web"
	"github.com/ramus-dev/ramus/gitd"
)

// TestCredentials stores, tries, switches and removes credentials by their page, which shows no value.
func TestCredentials(t *testing.T) {
	store := &secret.Store{Box: &sealed.Box{Dir: t.TempDir(), KeyFile: filepath.Join(t.TempDir(), "seal.key")}}
	if err := store.Open(); err != nil {
		t.Fatal(err)
	}
	who := ada
	if _, err := store.Put([]secret.Secret{{Name: "OF_EVE", Owner: secret.OfPerson("eve"), Hosts: []string{"a.org"}}},
		[]string{"a-value-of-eve-1234"}); err != nil {
		t.Fatal(err)
	}
	w := open(t, who, func(api *web.API) {
		api.Credentials, api.Tokens = &credential.API{Store: store}, &token.API{Git: api.Git}
	})
	page := func(path string) string {
		t.Helper()
		status, _, body := w.get(path)
		if status != http.StatusOK {
			t.Fatalf("%s: %d", path, status)
		}
		parse(t, path, body).check()
		return body
	}
	page("/settings/credentials")
	const value = "sk-canary-0123456789-last"
	for _, x := range []struct {
		form   url.Values
		status int
		want   string
	}{
		{url.Values{"owner": {"me"}, "kind": {"api-key"}, "agent": {"claude-code"}}, 422, "Paste the value."},
		{url.Values{"owner": {"me"}, "kind": {"api-key"}, "agent": {"hal"}, "value": {value}}, 422, "is not known"},
		{url.Values{"owner": {"me"}, "kind": {"secret"}, "name": {"lower"}, "value": {value}}, 422, "capital letters"},
		{url.Values{"owner": {"me"}, "kind": {"dotenv"}, "dotenv": {"bad=" + value}}, 422, "line 1"},
		{url.Values{"owner": {"me"}, "kind": {"api-key"}, "agent": {"claude-code"}, "value": {value}}, 303,
			"/settings/credentials"},
		{url.Values{"owner": {"me"}, "kind": {"dotenv"}, "dotenv": {"FIRST=" + value + "\nSECOND='" + value + "'"},
			"hosts": {"a.org, b.org:8443"}}, 303, "/settings/credentials"},
	} {
		status, header, body := w.post("/settings/credentials", x.form)
		if status != x.status || !strings.Contains(header.Get("Location")+body, x.want) || strings.Contains(body, value) {
			t.Errorf("%v: %d %s %s, want %d %q", x.form, status, header.Get("Location"), body, x.status, x.want)
		}
		if status == 422 {
			parse(t, "/settings/credentials", body).check()
		}
	}
	body := page("/settings/credentials")
	for _, want := range []string{"CLAUDE_CODE_API_KEY", "…last", "FIRST", "b.org:8443", "In use"} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
	if strings.Contains(body, value) {
		t.Error("the page has a value")
	}
	action := regexp.MustCompile(`/settings/credentials/(\w+)/off`).FindStringSubmatch(body)
	if action == nil {
		t.Fatalf("nothing to switch off: %s", body)
	}
	at := "/settings/credentials/" + action[1]
	if status, _, body := w.post(at+"/verify", nil); status != 200 || !strings.Contains(body, "Works") || strings.Contains(body, value) {
		t.Errorf("a trial: %d %s", status, body)
	}
	for path, want := range map[string]int{at + "/none": 404, "/settings/credentials/none/remove": 404, at + "/off": 303} {
		if status, _, body := w.post(path, nil); status != want {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if body := page("/settings/credentials"); !strings.Contains(body, ">Off</span>") {
		t.Error("it is not off")
	}
	if status, _, _ := w.post(at+"/remove", nil); status != 303 {
		t.Errorf("remove: %d", status)
	}
	if body := page("/settings/credentials"); strings.Contains(body, "CLAUDE_CODE_API_KEY") {
		t.Error("it is not removed")
	}

	// Tokens.
	page("/settings/tokens")
	_, g, err := w.git.Issue(gitd.Grant{Subject: who.Subject, Repo: "*", Scopes: []string{gitd.ScopeRead},
		Expires: time.Now().Add(time.Hour)}, "test")
	if err != nil {
		t.Fatal(err)
	}
	if body := page("/settings/tokens"); !strings.Contains(body, g.ID) {
		t.Error("a token is not on the page")
	}
	if status, _, _ := w.post("/settings/tokens/"+g.ID+"/revoke", nil); status != 303 {
		t.Errorf("revoke: %d", status)
	}
	if body := page("/settings/tokens"); !strings.Contains(body, "Revoked") {
		t.Error("the token is not revoked")
	}
}
