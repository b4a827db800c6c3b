package model

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/sealed"
	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/standin/modeltest"
)

// TestOwnKey checks that a provider is asked with the key of the person that the work is for, if there is one, and that
// no container gets it.
func TestOwnKey(t *testing.T) {
	const adas, bobs = "sk-of-ada-0123456789abcdefghij", "oauth-of-bob-0123456789abcdefghij"
	eachProtocol(t, func(t *testing.T, p protocol, path, body string, _ bool) {
		dir := t.TempDir()
		set := new(redact.Secrets)
		store := &secret.Store{Box: &sealed.Box{Dir: dir, KeyFile: filepath.Join(t.TempDir(), "seal.key")}, Redact: set}
		if err := store.Open(); err != nil {
			t.Fatal(err)
		}
		list, err := store.Put([]secret.Secret{
			{Owner: secret.OfPerson("ada"), Type: secret.TypeAgentKey, Agent: p.provider, Active: true},
			{Owner: secret.OfPerson("bob"), Type: secret.TypeAgentKey, Agent: p.provider, Kind: secret.KindOAuth,
				Active: true},
		}, []string{adas, bobs})
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, func(pr *Proxy) { pr.Keys = store })
		w.stand.Keys, w.stand.OAuth = []string{adas}, bobs
		w.stand.Reply = func(string) string { return "the keys are " + adas + " and " + bobs + " indeed" }
		w.stand.Split = 7
		ask := func(person string) reply {
			w.run.mu.Lock()
			w.run.person = person
			w.run.mu.Unlock()
			return w.post(path, body)
		}
		for person, want := range map[string]string{"ada": adas, "bob": bobs, "eve": modeltest.Key, "": modeltest.Key} {
			got := ask(person)
			if got.status != 200 || !strings.Contains(got.body, "indeed") || strings.Contains(got.body, want) {
				t.Errorf("%s: %d %s", person, got.status, got.body)
			}
			calls := w.stand.Calls()
			h := calls[len(calls)-1].Header
			if sent := h.Get("X-Api-Key") + h.Get("X-Goog-Api-Key") + strings.TrimPrefix(h.Get("Authorization"), "Bearer "); sent != want {
				t.Errorf("%s asks with %s", person, sent)
			}
			journalled := w.calls()
			wantID := map[string]string{"ada": list[0].ID, "bob": list[1].ID}[person]
			if got := journalled[len(journalled)-1].Credential; got != wantID {
				t.Errorf("%s: the journal has the credential %q, want %q", person, got, wantID)
			}
		}

		// A damaged key is refused, and the server's is not taken in its place.
		file := filepath.Join(dir, list[0].ID)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text[:len(text)-1], 0o600); err != nil {
			t.Fatal(err)
		}
		before := len(w.stand.Calls())
		got := ask("ada")
		if got.status != 403 || !strings.Contains(got.body, "is damaged") || len(w.stand.Calls()) != before {
			t.Errorf("a damaged key: %d %s", got.status, got.body)
		}
		checkFormat(t, p.provider, got.body)
	})
}

// TestOnlyOwnKey checks a provider for which the configuration has no key.
func TestOnlyOwnKey(t *testing.T) {
	store := &secret.Store{Box: &sealed.Box{Dir: t.TempDir(), KeyFile: filepath.Join(t.TempDir(), "seal.key")}}
	if err := store.Open(); err != nil {
		t.Fatal(err)
	}
	x := secret.Secret{Owner: secret.OfPerson("ada"), Type: secret.TypeAgentKey, Agent: "openai", Active: true}
	if _, err := store.Put([]secret.Secret{x}, []string{modeltest.Key}); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(pr *Proxy) {
		pr.Keys = store
		c := pr.Providers["openai"]
		c.Key = ""
		pr.Providers["openai"] = c
	})
	const path, body = "/model/openai/chat/completions", `{"model":"gpt-x-1","messages":[{"role":"user","content":"one"}]}`
	if got := w.post(path, body); got.status != 404 || !strings.Contains(got.body, "ramus secret set --agent") {
		t.Errorf("nobody: %d %s", got.status, got.body)
	}
	w.run.person = "ada"
	if got := w.post(path, body); got.status != 200 {
		t.Errorf("ada: %d %s", got.status, got.body)
	}
	w.settle()
}

// TestProbe checks the trial of a key.
func TestProbe(t *testing.T) {
	w := newWorld(t, nil)
	w.stand.OAuth = "oauth-token-0123456789"
	for _, name := range Names() {
		for _, c := range []struct {
			key   string
			oauth bool
			want  string
		}{
			{modeltest.Key, false, ""}, {"oauth-token-0123456789", true, ""},
			{"sk-wrong-wrong-wrong-wrong", false, name + " refuses it with status 401"},
		} {
			err := w.proxy.Probe(t.Context(), name, c.key, c.oauth)
			if err == nil && c.want != "" || err != nil && err.Error() != c.want {
				t.Errorf("%s, %s: %v, want %q", name, c.key, err, c.want)
			}
		}
	}
	if err := w.proxy.Probe(t.Context(), "hal", modeltest.Key, false); err == nil {
		t.Error("an unknown provider accepts a key")
	}
}
