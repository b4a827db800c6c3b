package secret_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/sealed"
	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/internal/growth"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/standin/vaulttest"
)

// open opens a store in a folder.
func open(t testing.TB, dir string, set *redact.Secrets) *secret.Store {
	t.Helper()
	s := &secret.Store{Box: &sealed.Box{Dir: filepath.Join(dir, "sealed"),
		KeyFile: filepath.Join(dir, "keys", "seal.key")}, Redact: set}
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	set := new(redact.Secrets)
	s := open(t, dir, set)
	put := func(x secret.Secret, value string) {
		t.Helper()
		if _, err := s.Put([]secret.Secret{x}, []string{value}); err != nil {
			t.Fatal(err)
		}
	}
	put(secret.Secret{Name: "TOKEN", Hosts: []string{"a.org"}}, "value of all")
	put(secret.Secret{Name: "TOKEN", Repo: "app", Hosts: []string{"a.org", "b.org:8443"}}, "value of app 1")
	put(secret.Secret{Name: "TOKEN", Repo: "app", Hosts: []string{"a.org", "b.org:8443"}}, "value of app 2")
	put(secret.Secret{Name: "TOKEN", Owner: secret.OfPerson("ada"), Hosts: []string{"a.org"}}, "value of ada")
	put(secret.Secret{Name: "TOKEN", Owner: secret.OfRun("run:x/1"), Hosts: []string{"a.org"}}, "value of a run")
	value := func(u secret.User, host string) string {
		v, err := s.Value(ctx, "TOKEN", u, host)
		switch {
		case errors.Is(err, record.ErrInvalid):
			return "refused"
		case err != nil:
			return err.Error()
		}
		return v
	}
	for range 2 { // before and after a restart
		for want, u := range map[string]secret.User{
			"value of all": {Repo: "web"}, "value of app 2": {Repo: "app", Person: "bob"},
			"value of ada":   {Repo: "app", Person: "ada", Run: "run:x/2"},
			"value of a run": {Repo: "app", Person: "ada", Run: "run:x/1"},
		} {
			if got := value(u, "a.org"); got != want {
				t.Errorf("%v: %q, want %q", u, got, want)
			}
		}
		if got := value(secret.User{Repo: "app"}, "b.org:8443"); got != "value of app 2" {
			t.Errorf("at another port: %q", got)
		}
		// A person's secret is not for more hosts because the repository's is.
		if got := value(secret.User{Repo: "app", Person: "ada"}, "b.org:8443"); got != "refused" {
			t.Errorf("another host: %q", got)
		}
		if got := value(secret.User{Repo: "web"}, ""); got != "value of all" {
			t.Errorf("for the server's own configuration: %q", got)
		}
		if list := s.List(nil); len(list) != 4 || list[0].Owner != secret.OfServer || list[0].Last != "" ||
			len(s.List(secret.OfRepository("app"))) != 2 {
			t.Errorf("%+v", list)
		}
		s = open(t, dir, set)
	}
	if got := set.String("a value of ada b"); got != "a [secret TOKEN] b" {
		t.Errorf("a stored value is shown: %q", got)
	}

	if err := s.Rename("app", "team/app"); err != nil || value(secret.User{Repo: "team/app"}, "a.org") != "value of app 2" {
		t.Errorf("after a rename: %v", err)
	}
	x, err := s.Find(secret.OfRepo("team/app"), "TOKEN")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(x.ID); err != nil || value(secret.User{Repo: "team/app"}, "a.org") != "value of all" {
		t.Errorf("after the removal: %v", err)
	}
	if err := s.Remove(x.ID); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("a second removal: %v", err)
	}
	if err := s.RemoveRuns(func(string) bool { return false }); err != nil ||
		value(secret.User{Run: "run:x/1"}, "a.org") != "value of all" {
		t.Errorf("after the end of the run: %v", err)
	}
}

// auditor keeps uses.
type auditor struct {
	uses []string
	err  error
}

func (a *auditor) Used(_ context.Context, x secret.Secret, u secret.Use) error {
	if a.err != nil {
		return a.err
	}
	a.uses = append(a.uses, fmt.Sprintf("%s of %s by %s of %s to %s", x.Name, x.Owner, u.Run, u.By, u.To))
	return nil
}

// TestAgentKey checks the choice of the key, and that Audit gets each first use by a run before the key is given.
func TestAgentKey(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	s := open(t, dir, nil)
	put := func(x secret.Secret, value string) secret.Secret {
		t.Helper()
		x.Type = secret.TypeAgentKey
		list, err := s.Put([]secret.Secret{x}, []string{value})
		if err != nil {
			t.Fatal(err)
		}
		return list[0]
	}
	put(secret.Secret{Agent: "anthropic", Active: true}, "sk-of-the-server-1")
	put(secret.Secret{Owner: secret.OfPerson("ada"), Agent: "claude-code", Active: true}, "sk-of-ada-the-first")
	second := put(secret.Secret{Owner: secret.OfPerson("ada"), Agent: "claude-code", Kind: secret.KindOAuth,
		Active: true}, "oauth-of-ada-12345")
	put(secret.Secret{Owner: secret.OfPerson("bob"), Agent: "claude-code"}, "sk-of-bob-not-active")
	if second.Name != "CLAUDE_CODE_OAUTH_TOKEN" || second.Last != "2345" {
		t.Errorf("%+v", second)
	}
	audit := &auditor{}
	s.Audit = audit
	get := func(u secret.User) string {
		k, ok, err := s.AgentKey(ctx, "anthropic", u)
		if err != nil || !ok {
			return fmt.Sprint(ok, err)
		}
		return k.Value
	}
	ada := secret.User{Repo: "app", Person: "ada", Run: "run:x/1"}
	for range 2 {
		if got := get(ada); got != "oauth-of-ada-12345" {
			t.Errorf("ada: %s", got)
		}
	}
	if got := get(secret.User{Repo: "app", Person: "bob", Run: "run:y/1"}); got != "sk-of-the-server-1" {
		t.Errorf("bob: %s", got)
	}
	want := []string{"CLAUDE_CODE_OAUTH_TOKEN of person:ada by run:x/1 of ada to anthropic",
		"ANTHROPIC_API_KEY of server by run:y/1 of bob to anthropic"}
	if !slices.Equal(audit.uses, want) {
		t.Errorf("%q, want %q", audit.uses, want)
	}
	if x, err := s.Get(second.ID); err != nil || len(x.Uses) != 1 || x.Uses[0].Run != "run:x/1" {
		t.Errorf("%+v, %v", x.Uses, err)
	}
	if _, ok, err := s.AgentKey(ctx, "openai", ada); ok || err != nil {
		t.Errorf("a key of another model API is taken: %v", err)
	}
	audit.err = errors.New("the disk is full")
	if got := get(secret.User{Person: "ada", Run: "run:x/2"}); !strings.Contains(got, "disk is full") {
		t.Errorf("a use that is not recorded: %s", got)
	}
	audit.err = nil
	if _, err := s.SetActive(second.ID, false); err != nil || get(ada) != "sk-of-the-server-1" {
		t.Errorf("switched off: %v, %s", err, get(ada))
	}
	first, err := s.Find(secret.OfPerson("ada"), "CLAUDE_CODE_API_KEY")
	if err == nil {
		_, err = s.SetActive(first.ID, true)
	}
	if err != nil || get(ada) != "sk-of-ada-the-first" {
		t.Errorf("switched on: %v, %s", err, get(ada))
	}
	// It is no secret for hosts.
	if _, err := s.Value(ctx, "CLAUDE_CODE_API_KEY", ada, "a.org"); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("the key of an agent goes to a host: %v", err)
	}

	// A damaged key is refused, and the server's is not taken in its place, also after a restart.
	file := filepath.Join(dir, "sealed", first.ID)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)-1] ^= 1
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := s.AgentKey(ctx, "anthropic", ada); !ok || !errors.Is(err, record.ErrDamaged) {
		t.Errorf("a damaged key: %v, %v", ok, err)
	}
	s = open(t, dir, nil)
	if _, ok, err := s.AgentKey(ctx, "anthropic", ada); !ok || !errors.Is(err, record.ErrDamaged) {
		t.Errorf("a damaged key after a restart: %v, %v", ok, err)
	}
	if x, err := s.Get(first.ID); err != nil || !strings.Contains(x.Problem, "somebody has changed it") {
		t.Errorf("%+v, %v", x, err)
	}
}

// TestEarlier moves the secrets of a data folder that an earlier version wrote.
func TestEarlier(t *testing.T) {
	dir := t.TempDir()
	copyFiles := func() {
		t.Helper()
		for _, name := range []string{"secrets.json", "secrets.key"} {
			text, err := os.ReadFile(filepath.Join("testdata", "earlier", name))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	reopen := func() (*secret.Store, error) {
		s := &secret.Store{Box: &sealed.Box{Dir: filepath.Join(dir, "sealed"),
			KeyFile: filepath.Join(dir, "keys", "seal.key")},
			EarlierFile: filepath.Join(dir, "secrets.json"), EarlierKey: filepath.Join(dir, "secrets.key")}
		s.References.Environ = []string{"HOME=/home/of/ada"}
		return s, s.Open()
	}
	copyFiles()
	for i := range 3 {
		s, err := reopen()
		if err != nil {
			t.Fatal(err)
		}
		list := s.List(nil)
		if len(list) != 3 || list[0].Name != "SERVER_TOKEN" || list[1].Name != "APP_TOKEN" || list[1].By != "local" ||
			list[1].Set.Year() != 2026 ||
			!slices.Equal(list[1].Hosts, []string{"api.example.org", "db.example.org:8443"}) ||
			list[2].Reference != "env://HOME" {
			t.Errorf("opened %d times: %+v", i+1, list)
		}
		app := secret.User{Repo: "app"}
		for name, want := range map[string]string{"SERVER_TOKEN": "canary-of-the-server-4711",
			"APP_TOKEN": "canary of app\nwith two lines", "ELSEWHERE": "/home/of/ada"} {
			if got, err := s.Value(t.Context(), name, app, ""); err != nil || got != want {
				t.Errorf("opened %d times: %s is %q, %v", i+1, name, got, err)
			}
		}
		for _, name := range []string{"secrets.json", "secrets.key"} {
			if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("opened %d times: %s is left: %v", i+1, name, err)
			}
		}
		if i == 0 {
			copyFiles() // as if the process had been killed before it removed them
		}
	}
	// Without its key the file stays.
	copyFiles()
	if err := os.Remove(filepath.Join(dir, "secrets.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := reopen(); err == nil || !strings.Contains(err.Error(), "its key") {
		t.Errorf("without the key: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "secrets.json")); err != nil {
		t.Errorf("the file is gone: %v", err)
	}
}

// TestRefused checks that a mistake stores nothing, and that no error has a value.
func TestRefused(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	good := secret.Secret{Name: "GOOD"}
	for _, x := range []struct {
		secret.Secret
		value, want string
	}{
		{secret.Secret{Name: "lower"}, "long enough", "capital letters"},
		{secret.Secret{Name: "A"}, "hunter2", "at least 8 characters"},
		{secret.Secret{Name: "A"}, strings.Repeat("v", 70<<10), "at most"},
		{secret.Secret{Name: "A", Hosts: []string{"*.a.org"}}, "long enough", "one host"},
		{secret.Secret{Name: "A", Hosts: []string{"https://a.org"}}, "long enough", "one host"},
		{secret.Secret{Name: "A", Reference: "http://a.org"}, "", "is no reference"},
		{secret.Secret{Name: "A", Reference: "file://relative"}, "", "want file:///PATH"},
		{secret.Secret{Name: "A", Reference: "vault://secret/../sys#a"}, "", "want vault://"},
		{secret.Secret{Name: "A", Reference: "op://vault"}, "", "want op://"},
		{secret.Secret{Name: "A", Reference: "env://A=B"}, "", "want env://NAME"},
		{secret.Secret{Name: "A", Reference: "env://HOME", Owner: secret.OfPerson("ada")}, "",
			"only the server and repositories"},
		{secret.Secret{Name: "A", Owner: "ada"}, "long enough", "want server, repo:NAME or person:ID"},
		{secret.Secret{Name: "A", Owner: "person:"}, "long enough", "want server"},
		{secret.Secret{Name: "A", Active: true}, "long enough", "only credentials of agents"},
		{secret.Secret{Name: "A", Type: "other"}, "long enough", "is no type"},
		{secret.Secret{Type: secret.TypeAgentKey, Agent: "hal"}, "long-enough", "is not known"},
		{secret.Secret{Type: secret.TypeAgentKey, Agent: "codex", Kind: "password"}, "long-enough", "is no kind"},
		{secret.Secret{Type: secret.TypeAgentKey, Agent: "codex", Hosts: []string{"a.org"}}, "long-enough",
			"only a secret has hosts"},
		{secret.Secret{Type: secret.TypeAgentKey, Agent: "codex"}, "long enough", "no white space"},
		{secret.Secret{Name: "A", Type: secret.TypeCloud, Agent: "Hetz Ner"}, "long-enough", "small letters"},
	} {
		_, err := s.Put([]secret.Secret{good, x.Secret}, []string{"a good value", x.value})
		if !errors.Is(err, record.ErrInvalid) || !strings.Contains(err.Error(), x.want) || x.value != "" &&
			strings.Contains(err.Error(), x.value) {
			t.Errorf("%+v: %v", x, err)
		}
	}
	if list := s.List(nil); len(list) > 0 {
		t.Errorf("%+v was stored", list)
	}
}

func TestReferences(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	vault := vaulttest.New("vault-token")
	defer vault.Close()
	vault.Put("secret/team/app", map[string]any{"token": "from the vault", "number": 5})
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	op := filepath.Join(dir, "op")
	if err := os.WriteFile(op,
		[]byte("#!/bin/sh\n[ \"$1 $2 $3 $4\" = 'read --no-newline -- op://vault/item/field' ] || { echo \"no $4\" >&2; exit 1; }\nprintf 'from op'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1e9, 0)
	token := "vault-token"
	r := &secret.Resolver{
		Environ: []string{"PATH=" + os.Getenv("PATH"), "TOKEN=from the environment"}, VaultURL: vault.URL,
		VaultToken: func() (string, error) { return token, nil },
		Op:         op, Now: func() time.Time { return now },
	}
	for ref, want := range map[string]string{
		"env://TOKEN": "from the environment", "file://" + dir + "/file": "from a file",
		"vault://secret/team/app#token": "from the vault", "op://vault/item/field": "from op",
	} {
		if got, err := r.Read(ctx, ref); err != nil || got != want {
			t.Errorf("%s: %q, %v", ref, got, err)
		}
	}
	for ref, want := range map[string]string{
		"env://NONE": "no such variable", "file://" + dir + "/none": "no such file",
		"vault://secret/team/none#token": "status 404", "vault://secret/team/app#none": "no field none",
		"vault://secret/team/app#number": "no field number", "op://vault/item/other": "no op://vault/item/other",
	} {
		if got, err := r.Read(ctx, ref); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v, want %s", ref, got, err, want)
		}
	}

	// A value is read again after a minute, and at most once until then.
	before := vault.Reads()
	vault.Put("secret/team/app", map[string]any{"token": "another one"})
	read := func(want string) {
		t.Helper()
		if got, err := r.Read(ctx, "vault://secret/team/app#token"); err != nil &&
			!strings.Contains(err.Error(), want) || err == nil && got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	read("from the vault")
	if vault.Reads() != before {
		t.Error("a fresh value is read again")
	}
	now = now.Add(2 * time.Minute)
	read("another one")
	for what, change := range map[string]func(){"is sealed": func() { vault.Seal(true) },
		"permission denied": func() { vault.Seal(false); token = "other" }} {
		change()
		now = now.Add(2 * time.Minute)
		if _, err := r.Read(ctx, "vault://secret/team/app#token"); err == nil {
			t.Errorf("%s: there is no error", what)
		}
	}
	token = "vault-token"
	vault.Seal(false)
	vault.Delete("secret/team/app")
	read("status 404")
	if _, err := new(secret.Resolver).Read(ctx, "vault://secret/a#b"); err == nil || !strings.Contains(err.Error(), "vault.url") {
		t.Errorf("without a Vault: %v", err)
	}

	set := new(redact.Secrets)
	s := open(t, dir, set)
	s.References.Environ = []string{"TOKEN=from the environment", "SHORT=x"}
	if _, err := s.Put([]secret.Secret{{Name: "A", Reference: "env://TOKEN"}, {Name: "B", Reference: "env://SHORT"}},
		[]string{"", ""}); err != nil {
		t.Fatal(err)
	}
	if v, err := s.Value(context.Background(), "A", secret.User{Repo: "app"}, ""); err != nil ||
		v != "from the environment" || set.String(v) != "[secret A]" {
		t.Errorf("%q, %v", v, err)
	}
	if v, err := s.Value(ctx, "B", secret.User{Repo: "app"}, ""); err == nil {
		t.Errorf("a short value is used: %q", v)
	}
}

const dotenv = `# Secrets of the application.
PLAIN=value one # why
export EXPORTED = 'a # b'
DOUBLE="a\tb\"c\\ $d"
EMPTY=
LINES="-----BEGIN-----
abc
-----END-----" # a key
LAST=x=y`

func TestParseDotenv(t *testing.T) {
	got, err := secret.ParseDotenv(dotenv)
	want := []secret.Pair{{Name: "PLAIN", Value: "value one"}, {Name: "EXPORTED", Value: "a # b"},
		{Name: "DOUBLE", Value: "a\tb\"c\\ $d"}, {Name: "EMPTY"},
		{Name: "LINES", Value: "-----BEGIN-----\nabc\n-----END-----"}, {Name: "LAST", Value: "x=y"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	for text, want := range map[string]string{
		"A=b\n\nhunter2": "line 3: want NAME=VALUE", "a=hunter2": "line 1: a name has",
		"A=1\nA=hunter2": "line 2: A is set twice",
		"A=\"hunter2":    "line 1: the quotes of A", "A='x' hunter2": "text after the quotes",
		"A=\"1\n2\"\nb": "line 3: want",
	} {
		if _, err := secret.ParseDotenv(text); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// FuzzParseDotenv checks that any text ends in pairs or in an error, and that plain values are what they are.
func FuzzParseDotenv(f *testing.F) {
	f.Add(dotenv)
	f.Add("A=\"\\\nB='")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := secret.ParseDotenv(text)
		if err != nil {
			return
		}
		for _, p := range list {
			if p.Name == "" || !strings.Contains(text, p.Name) {
				t.Errorf("%q is not in %q", p.Name, text)
			}
		}
	})
}

// TestGrowth checks that the time to read a .env file grows with it.
func TestGrowth(t *testing.T) {
	growth.Check(t, "dotenv", func(text []byte) { _, _ = secret.ParseDotenv(string(text)) },
		append(growth.Tokens("\n", "#\n", "A", "=", "\"", "'", "\\", "A=b\n", "A=\""),
			growth.Case{Name: "names", Each: func(n int) string {
				return "A" + strings.Repeat("B", n%7) + strings.Repeat("C", n/7%90) + "=\"x\ny\"\n"
			}})...)
}

// TestPersonal keeps a person's token of a forge apart from the secrets that requests may have.
func TestPersonal(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	s := open(t, dir, nil)
	forge := func(person string) secret.Secret {
		return secret.Secret{Name: "TOKEN", Owner: secret.OfPerson(person), Type: secret.TypeForge, Agent: "gitea"}
	}
	list := []secret.Secret{{Name: "TOKEN", Hosts: []string{"a.org"}}, {Name: "TOKEN", Repo: "app"},
		forge("slack:T:ada"), forge("slack:T:bob")}
	if _, err := s.Put(list, []string{"value of all", "value of app", "value-of-ada", "value-of-bob"}); err != nil {
		t.Fatal(err)
	}
	set := new(redact.Secrets)
	s = open(t, dir, set)
	for person, want := range map[string]string{"slack:T:ada": "value-of-ada", "slack:T:bob": "value-of-bob", "app": "",
		"": "", "slack:T:eve": ""} {
		if got, err := s.Personal(ctx, "TOKEN", person, "gitea"); got != want || (err == nil) == (want == "") {
			t.Errorf("%q: %q %v", person, got, err)
		}
	}
	// It goes to no host, and does not hide the secret of the server.
	for _, host := range []string{"a.org", ""} {
		if got, err := s.Value(ctx, "TOKEN", secret.User{Repo: "web", Person: "slack:T:ada"}, host); err != nil || got != "value of all" {
			t.Errorf("%q: %q, %v", host, got, err)
		}
	}
	for _, value := range []string{"value of all", "value of app", "value-of-ada", "value-of-bob"} { // all have one name
		if got := set.String("the " + value); strings.Contains(got, value) {
			t.Errorf("it is shown: %q", got)
		}
	}
	x := forge("")
	x.Owner = secret.OfServer
	if _, err := s.Put([]secret.Secret{x}, []string{"some-value"}); !errors.Is(err, record.ErrInvalid) {
		t.Errorf("a token of a forge belongs to the server: %v", err)
	}
	for _, want := range []error{nil, record.ErrNotFound} {
		if err := s.RemovePersonal("TOKEN", "slack:T:ada"); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	if err := s.RemovePersonal("TOKEN", ""); !errors.Is(err, record.ErrNotFound) {
		t.Error(err)
	}
}

// TestTrusted checks that the server's own configuration names secrets of the server and of repositories alone. Its
// headers go to hosts that a person's secret may not go to.
func TestTrusted(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	list := []secret.Secret{{Name: "TOKEN"}, {Name: "TOKEN", Owner: secret.OfPerson("ada"), Hosts: []string{"a.org"}},
		{Name: "ONLY", Owner: secret.OfPerson("ada"), Hosts: []string{"a.org"}}}
	if _, err := s.Put(list, []string{"value of all", "value of ada", "value of ada 2"}); err != nil {
		t.Fatal(err)
	}
	u := secret.User{Repo: "app", Person: "ada", Run: "run:x/1"}
	if got, err := s.Value(t.Context(), "TOKEN", u, ""); err != nil || got != "value of all" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := s.Value(t.Context(), "ONLY", u, ""); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("%q, %v", got, err)
	}
}
