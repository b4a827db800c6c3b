package secret_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/internal/growth"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/standin/vaulttest"
)

var key = []byte(strings.Repeat("k", secret.KeyBytes))

func open(t *testing.T, file string, set *redact.Secrets) *secret.Store {
	t.Helper()
	s := &secret.Store{File: file, Key: key, Redact: set}
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	ctx := t.Context()
	file := filepath.Join(t.TempDir(), "secrets.json")
	set := new(redact.Secrets)
	s := open(t, file, set)
	put := func(x secret.Secret, value string) {
		t.Helper()
		if err := s.Put([]secret.Secret{x}, []string{value}); err != nil {
			t.Fatal(err)
		}
	}
	put(secret.Secret{Name: "TOKEN", Hosts: []string{"a.org"}}, "value of all")
	put(secret.Secret{Name: "TOKEN", Repo: "app", Hosts: []string{"a.org", "b.org:8443"}}, "value of app 1")
	put(secret.Secret{Name: "TOKEN", Repo: "app", Hosts: []string{"a.org", "b.org:8443"}}, "value of app 2")
	value := func(s *secret.Store, repo, host string) string {
		v, err := s.Value(ctx, "TOKEN", repo, host)
		switch {
		case errors.Is(err, record.ErrInvalid):
			return "refused"
		case err != nil:
			return err.Error()
		}
		return v
	}
	for range 2 { // before and after a restart
		for want, at := range map[string][2]string{"value of all": {"web", "a.org"}, "value of app 2": {"app", "b.org:8443"}, "refused": {"web", "b.org:8443"}} {
			if got := value(s, at[0], at[1]); got != want {
				t.Errorf("%v: %q, want %q", at, got, want)
			}
		}
		if got := value(s, "web", ""); got != "value of all" {
			t.Errorf("for the server's own configuration: %q", got)
		}
		if list := s.List(""); len(list) != 2 || list[0].Repo != "" || list[1].Repo != "app" || len(s.List("web")) != 1 {
			t.Errorf("%+v", list)
		}
		s = open(t, file, set)
	}
	if got := set.String("a value of app 2 b"); got != "a [secret TOKEN] b" {
		t.Errorf("a stored value is shown: %q", got)
	}

	text, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(text), "value of") {
		t.Errorf("the file has a value: %s, %v", text, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	other := &secret.Store{File: file, Key: []byte(strings.Repeat("o", secret.KeyBytes))}
	if err := other.Open(); err == nil || !strings.Contains(err.Error(), "key") {
		t.Errorf("with another key: %v", err)
	}
	// A value cannot be moved to another name.
	moved := strings.Replace(string(text), `"TOKEN"`, `"TOKEM"`, 1)
	if err := os.WriteFile(file+".moved", []byte(moved), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&secret.Store{File: file + ".moved", Key: key}).Open(); err == nil {
		t.Error("a moved value is accepted")
	}

	if err := s.Remove("TOKEN", "app"); err != nil || value(s, "app", "a.org") != "value of all" {
		t.Errorf("after the removal: %v", err)
	}
	if err := s.Remove("TOKEN", "app"); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("a second removal: %v", err)
	}
}

// TestRefused checks that a mistake stores nothing, and that no error has a value.
func TestRefused(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "secrets.json"), nil)
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
	} {
		err := s.Put([]secret.Secret{good, x.Secret}, []string{"a good value", x.value})
		if !errors.Is(err, record.ErrInvalid) || !strings.Contains(err.Error(), x.want) || x.value != "" && strings.Contains(err.Error(), x.value) {
			t.Errorf("%+v: %v", x, err)
		}
	}
	if list := s.List(""); len(list) > 0 {
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
	if err := os.WriteFile(op, []byte("#!/bin/sh\n[ \"$1 $2 $3 $4\" = 'read --no-newline -- op://vault/item/field' ] || { echo \"no $4\" >&2; exit 1; }\nprintf 'from op'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1e9, 0)
	token := "vault-token"
	r := &secret.Resolver{
		Environ: []string{"PATH=" + os.Getenv("PATH"), "TOKEN=from the environment"}, VaultURL: vault.URL, VaultToken: func() (string, error) { return token, nil },
		Op: op, Now: func() time.Time { return now },
	}
	for ref, want := range map[string]string{
		"env://TOKEN": "from the environment", "file://" + dir + "/file": "from a file", "vault://secret/team/app#token": "from the vault", "op://vault/item/field": "from op",
	} {
		if got, err := r.Read(ctx, ref); err != nil || got != want {
			t.Errorf("%s: %q, %v", ref, got, err)
		}
	}
	for ref, want := range map[string]string{
		"env://NONE": "no such variable", "file://" + dir + "/none": "no such file", "vault://secret/team/none#token": "status 404", "vault://secret/team/app#none": "no field none",
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
		if got, err := r.Read(ctx, "vault://secret/team/app#token"); err != nil && !strings.Contains(err.Error(), want) || err == nil && got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	read("from the vault")
	if vault.Reads() != before {
		t.Error("a fresh value is read again")
	}
	now = now.Add(2 * time.Minute)
	read("another one")
	for what, change := range map[string]func(){"is sealed": func() { vault.Seal(true) }, "permission denied": func() { vault.Seal(false); token = "other" }} {
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
	s := &secret.Store{File: filepath.Join(dir, "secrets.json"), Key: key, Redact: set, References: secret.Resolver{Environ: []string{"TOKEN=from the environment", "SHORT=x"}}}
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	if err := s.Put([]secret.Secret{{Name: "A", Reference: "env://TOKEN"}, {Name: "B", Reference: "env://SHORT"}}, []string{"", ""}); err != nil {
		t.Fatal(err)
	}
	if v, err := s.Value(context.Background(), "A", "app", ""); err != nil || v != "from the environment" || set.String(v) != "[secret A]" {
		t.Errorf("%q, %v", v, err)
	}
	if v, err := s.Value(ctx, "B", "app", ""); err == nil {
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
	want := []secret.Pair{{Name: "PLAIN", Value: "value one"}, {Name: "EXPORTED", Value: "a # b"}, {Name: "DOUBLE", Value: "a\tb\"c\\ $d"}, {Name: "EMPTY"},
		{Name: "LINES", Value: "-----BEGIN-----\nabc\n-----END-----"}, {Name: "LAST", Value: "x=y"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	for text, want := range map[string]string{
		"A=b\n\nhunter2": "line 3: want NAME=VALUE", "a=hunter2": "line 1: a name has", "A=1\nA=hunter2": "line 2: A is set twice",
		"A=\"hunter2": "line 1: the quotes of A", "A='x' hunter2": "text after the quotes", "A=\"1\n2\"\nb": "line 3: want",
	} {
		if _, err := secret.ParseDotenv(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
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
		append(growth.Tokens("\n", "#\n", "A", "=", "\"", "'", "\\", "A=b\n", "A=\""), growth.Case{Name: "names", Each: func(n int) string {
			return "A" + strings.Repeat("B", n%7) + strings.Repeat("C", n/7%90) + "=\"x\ny\"\n"
		}})...)
}

// TestPersonal keeps the secret of a person apart from those of repositories and of other people.
func TestPersonal(t *testing.T) {
	ctx := t.Context()
	file := filepath.Join(t.TempDir(), "secrets.json")
	s := open(t, file, new(redact.Secrets))
	list := []secret.Secret{{Name: "TOKEN"}, {Name: "TOKEN", Repo: "app"}, {Name: "TOKEN", Person: "slack:T:ada"}, {Name: "TOKEN", Person: "slack:T:bob"}}
	if err := s.Put(list, []string{"value of all", "value of app", "value of ada", "value of bob"}); err != nil {
		t.Fatal(err)
	}
	set := new(redact.Secrets)
	s = open(t, file, set)
	for person, want := range map[string]string{"slack:T:ada": "value of ada", "slack:T:bob": "value of bob", "app": "", "": "", "slack:T:eve": ""} {
		if got, err := s.Personal(ctx, "TOKEN", person); got != want || (err == nil) == (want == "") {
			t.Errorf("%q: %q %v", person, got, err)
		}
	}
	for repo, want := range map[string]string{"app": "value of app", "web": "value of all", "slack:T:ada": "value of all"} {
		if got, err := s.Value(ctx, "TOKEN", repo, ""); got != want {
			t.Errorf("%q: %q %v", repo, got, err)
		}
	}
	if got := set.String("the value of ada"); strings.Contains(got, "ada") {
		t.Errorf("it is shown: %q", got)
	}
	if of, all := s.List("app"), s.List(""); len(of) != 2 || len(all) != 4 {
		t.Errorf("%+v %+v", of, all)
	}
	for _, x := range []secret.Secret{{Name: "TOKEN", Person: "ada", Repo: "app"}, {Name: "TOKEN", Person: "ada", Hosts: []string{"a.org"}}, {Name: "TOKEN", Person: "a\nb"}} {
		if err := s.Put([]secret.Secret{x}, []string{"some value"}); !errors.Is(err, record.ErrInvalid) {
			t.Errorf("%+v: %v", x, err)
		}
	}
	if err := s.RemovePersonal("TOKEN", "slack:T:ada"); err != nil {
		t.Error(err)
	}
	if err := s.RemovePersonal("TOKEN", "slack:T:ada"); !errors.Is(err, record.ErrNotFound) {
		t.Error(err)
	}
	if err := s.RemovePersonal("TOKEN", ""); !errors.Is(err, record.ErrInvalid) && !errors.Is(err, record.ErrNotFound) {
		t.Error(err)
	}
	// A person who writes to the file cannot make another person's secret their own.
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(text), "slack:T:bob", "slack:T:eve")), 0o600); err != nil {
		t.Fatal(err)
	}
	moved := &secret.Store{File: file, Key: key}
	if err := moved.Open(); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a secret was moved to another person: %v", err)
	}
}
