package grant

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd/object"
)

// ledger opens a ledger with a clock.
func ledger(t *testing.T, file string, now *time.Time) *Ledger {
	t.Helper()
	l := &Ledger{File: file, Now: func() time.Time { return *now }}
	if err := l.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestLedger(t *testing.T) {
	now := time.Unix(1e9, 0).UTC()
	file := filepath.Join(t.TempDir(), "tokens.jsonl")
	l := ledger(t, file, &now)
	made := func(subject string, life time.Duration) Grant {
		t.Helper()
		g, err := l.Made(Grant{Subject: subject, Repo: "*", Scopes: []string{ScopeRead}, Expires: now.Add(life)}, "admin")
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	ada, bob := made("ada", time.Hour), made("bob", 24*time.Hour)
	now = now.Add(time.Minute)
	for _, g := range []Grant{ada, bob, {ID: "of-a-run"}, {}} {
		if err := l.Use(g.ID); err != nil {
			t.Errorf("%s: %v", g.Subject, err)
		}
	}
	for range 2 {
		if err := l.Revoke(ada.ID, "bob"); err != nil {
			t.Fatal(err)
		}
	}
	old := IDOf("e30.e30.of-an-earlier-version")
	if err := l.Revoke(old, "bob"); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]error{"none": object.ErrNotFound, "": object.ErrInvalid, strings.Repeat("x", 300): object.ErrInvalid} {
		if err := l.Revoke(id, "bob"); !errors.Is(err, want) {
			t.Errorf("Revoke(%.20q): %v, want %v", id, err, want)
		}
	}
	if text, err := os.ReadFile(file); err != nil || !bytes.Contains(text, []byte(ada.ID)) {
		t.Fatalf("%s, %v", text, err)
	}
	for i, reopen := range []func(){
		func() {},
		func() { // killed, with a line that is not whole
			f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString(`{"revoked":{"id":"` + bob.ID)
			}
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
			l = ledger(t, file, &now)
		},
		func() {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			l = ledger(t, file, &now)
		},
	} {
		reopen()
		if err := l.Use(ada.ID); !errors.Is(err, object.ErrDenied) || !strings.Contains(err.Error(), "revoked") {
			t.Errorf("%d: ada's token: %v", i, err)
		}
		if err := l.Use(old); !errors.Is(err, object.ErrDenied) {
			t.Errorf("%d: the old token: %v", i, err)
		}
		if err := l.Use(bob.ID); err != nil {
			t.Errorf("%d: bob's token: %v", i, err)
		}
		list := l.List()
		if len(list) != 3 || list[1].Created.IsZero() || list[1].RevokedBy+list[2].RevokedBy != "bob" {
			t.Errorf("%d: %+v", i, list)
		}
		for _, x := range list {
			if x.Subject == "bob" && !x.Used.Equal(now) {
				t.Errorf("%d: %+v was used at %v", i, x, now)
			}
		}
	}
	now = now.Add(2 * time.Hour)
	l = ledger(t, file, &now)
	if list := l.List(); len(list) != 2 {
		t.Errorf("a token that has ended is listed: %+v", list)
	}

	// Revocations are not forgotten because a line is damaged.
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append([]byte("{\n"), text...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&Ledger{File: file, Now: time.Now}).Open(); err == nil || !strings.Contains(err.Error(), "line 1 is damaged") {
		t.Errorf("a damaged line: %v", err)
	}
}

// TestLedgerUses writes one use of a token in ten minutes.
func TestLedgerUses(t *testing.T) {
	now := time.Unix(1e9, 0).UTC()
	file := filepath.Join(t.TempDir(), "tokens.jsonl")
	l := ledger(t, file, &now)
	g, err := l.Made(Grant{Subject: "ada", Person: object.Person{ID: "github:1"}, Repo: "*", Scopes: []string{ScopeRead},
		Expires: now.Add(time.Hour)}, "admin")
	if err != nil {
		t.Fatal(err)
	}
	if got := l.PersonOf(g.ID); got != "github:1" {
		t.Errorf("the person of the token is %q", got)
	}
	if got := l.PersonOf("none"); got != "" {
		t.Errorf("the person of no token is %q", got)
	}
	for _, x := range []struct {
		after time.Duration
		lines int
	}{{0, 2}, {usedEvery - time.Second, 2}, {time.Second, 3}, {time.Second, 3}, {usedEvery, 4}} {
		now = now.Add(x.after)
		if err := l.Use(g.ID); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if n := bytes.Count(text, []byte("\n")); err != nil || n != x.lines {
			t.Errorf("%d lines at %v, want %d, %v", n, now, x.lines, err)
		}
	}
	if usedEvery != 10*time.Minute {
		t.Errorf("a use is recorded every %v", usedEvery)
	}
}

// TestLedgerFull makes no token that cannot be written.
func TestLedgerFull(t *testing.T) {
	now := time.Unix(1e9, 0).UTC()
	l := ledger(t, filepath.Join(t.TempDir(), "tokens.jsonl"), &now)
	writable := l.f
	f, err := os.Open(writable.Name()) // refuses each write, as a full disk does
	if err != nil {
		t.Fatal(err)
	}
	l.f = f
	if _, err := l.Made(Grant{Subject: "ada", Repo: "*", Expires: now.Add(time.Hour)}, "admin"); err == nil || len(l.List()) > 0 {
		t.Errorf("a token that is not written is made: %v, %+v", err, l.List())
	}
	l.f = writable
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// TestID checks that a token keeps its id, and that one without an id gets one.
func TestID(t *testing.T) {
	key, err := LoadKey("")
	if err != nil {
		t.Fatal(err)
	}
	s := NewSigner(key, time.Now)
	for _, id := range []string{"", "abc"} {
		token, err := s.Sign(Grant{ID: id, Subject: "ada", Repo: "*", Scopes: []string{ScopeRead},
			Expires: time.Now().Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // also from the cache
			g, err := s.Verify(token)
			if err != nil || g.ID != IDOf(token) || id != "" && g.ID != id || id == "" && !strings.HasPrefix(g.ID, "sha256-") {
				t.Errorf("%q: %+v, %v", id, g, err)
			}
		}
	}
}

func FuzzIDOf(f *testing.F) {
	f.Add("e30.eyJqdGkiOiJhIn0.x")
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		if IDOf(token) == "" {
			t.Errorf("%q has no id", token)
		}
	})
}
