package naming

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/people"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
	"github.com/ramus-dev/ramus/internal/redact"
)

var ada = gitd.Person{Name: "Ada", Email: "ada@example.org", ID: "github:1"}

// began are the sessions of a caller of the tests.
var began = map[string]time.Time{"coder": time.Unix(1_600_000_000, 0), "coder.01": time.Unix(1_600_000_000, 0),
	"other": time.Unix(1_600_000_000, 0)}

// newStore returns a store without records.
func newStore(t *testing.T) *Store {
	t.Helper()
	git := repotest.NewServer(t)
	s := &Store{Options: people.Options{Git: git, Committer: gitd.Person{Name: "ramus", Email: "ramus@example.org"},
		Now: func() time.Time { return time.Unix(1_700_000_000, 0) }}}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestNames sets names, takes one back, and finds them again after a restart.
func TestNames(t *testing.T) {
	s := newStore(t)
	a, err := record.RunCaller("a")
	if err != nil {
		t.Fatal(err)
	}
	b, err := record.RunCaller("b")
	if err != nil {
		t.Fatal(err)
	}
	set := func(c record.Caller, session, name string) {
		t.Helper()
		if err := s.SetName(t.Context(), c, session, name, began, ada); err != nil {
			t.Fatal(err)
		}
	}
	set(a, "coder", "  The\ninvoice\x1b ")
	set(a, "coder.01", "Docs")
	set(b, "coder", strings.Repeat("é", MaxRunes))
	set(a, "coder.01", "")
	set(b, "other", "") // it has none
	check := func(s *Store) {
		t.Helper()
		for _, x := range []struct {
			caller        record.Caller
			session, want string
		}{{a, "coder", "The invoice"}, {a, "coder.01", ""}, {b, "other", ""}, {b, "none", ""}} {
			if got := s.Name(x.caller, x.session, began[x.session]); got != x.want {
				t.Errorf("%s %s: %q", x.caller, x.session, got)
			}
		}
		if got := s.Name(b, "coder", began["coder"]); got != strings.Repeat("é", MaxRunes) {
			t.Errorf("a name of as many characters as can be: %q", got)
		}
	}
	check(s)
	repo, err := s.Git.Repo(gitd.PeopleRepo)
	if err != nil {
		t.Fatal(err)
	}
	c, err := repo.Commit(t.Context(), refs+"/run-a")
	if err != nil || c.Author.Name != "Ada" || c.Subject != "Name the session coder.01 of run:a" ||
		len(c.Parents) != 0 {
		t.Errorf("%+v %v", c, err)
	}
	before := c.Hash
	set(a, "coder", "The invoice") // nothing changes
	if c, err = repo.Commit(t.Context(), refs+"/run-a"); err != nil || c.Hash != before {
		t.Errorf("%s %v", c.Hash, err)
	}
	again := &Store{Options: people.Options{Git: s.Git}}
	if err := again.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(again)
}

// TestNamesAtOnce names many sessions of one caller at once. None is lost.
func TestNamesAtOnce(t *testing.T) {
	s := newStore(t)
	c, err := record.RunCaller("a")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	sessions, all := []string{"a", "b", "c", "d", "e", "f", "g", "h"}, map[string]time.Time{}
	for _, session := range sessions {
		all[session] = time.Unix(1_600_000_000, 0)
	}
	for _, session := range sessions {
		work.Go(func() {
			if err := s.SetName(t.Context(), c, session, "of "+session, all, ada); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	for _, session := range sessions {
		if got := s.Name(c, session, all[session]); got != "of "+session {
			t.Errorf("%s: %q", session, got)
		}
	}
}

// TestBound names as many sessions as can be, with names that are as large as can be. They fit into a record.
func TestBound(t *testing.T) {
	s := newStore(t)
	c, err := record.RunCaller("a")
	if err != nil {
		t.Fatal(err)
	}
	name := func(n int) string { return strings.Repeat("<", MaxRunes-4) + fmt.Sprintf("%04d", n) }
	by := gitd.Person{Name: strings.Repeat("<", 1000), Email: strings.Repeat("<", 1000), ID: strings.Repeat("<", 1000)}
	for _, field := range []string{short(by).Name, short(by).Email, short(by).ID} {
		if len(field) > maxBy {
			t.Errorf("a field has %d bytes", len(field))
		}
	}
	full, all := Record{Caller: c, Sessions: map[string]Name{}}, map[string]time.Time{}
	for n := range maxNames + 1 {
		session := strings.Repeat("x", 100) + fmt.Sprint(n)
		if all[session] = time.Unix(1_600_000_000, 0); n < maxNames-1 {
			full.Sessions[session] = Name{Text: name(n), By: short(by), Since: s.Now()}
		}
	}
	s.byCaller[c] = full
	set := func(n int) error {
		return s.SetName(t.Context(), c, strings.Repeat("x", 100)+fmt.Sprint(n), name(n), all, ada)
	}
	if err := set(maxNames - 1); err != nil {
		t.Errorf("the last one: %v", err)
	}
	var p *route.Problem
	if err := set(maxNames); !errors.As(err, &p) || p.Kind != route.KindTooLarge {
		t.Errorf("there is no bound: %v", err)
	}
	again := &Store{Options: people.Options{Git: s.Git}}
	if err := again.Open(t.Context()); err != nil || len(again.byCaller[c].Sessions) != maxNames {
		t.Errorf("%d names %v", len(again.byCaller[c].Sessions), err)
	}
}

// TestHostileNames sets names that are not UTF-8, that nobody sees, that are too long or those of other sessions. None
// of them harms the others at the next start.
func TestHostileNames(t *testing.T) {
	s := newStore(t)
	s.Git.Secrets, _ = redact.New(map[string]string{"PASSWORD": "correct horse"})
	c, err := record.RunCaller("a")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		session, name, want string
		kind                route.Kind
	}{
		{"coder.01", "Docs", "Docs", ""},
		{"coder", strings.Repeat("a\xff", 50), strings.Repeat("a\uFFFD", 50), ""},
		{"coder", "\u200b\u202e\u3164", "", ""}, // it has no name then
		{"coder", "a\u202eb", "ab", ""},
		{"coder", strings.Repeat("x", MaxRunes+1), "ab", route.KindInvalid},
		{"coder", "dOCS", "ab", route.KindExists},
		{"coder", "the correct \u200b horse", "the [secret PASSWORD]", ""},
	} {
		err := s.SetName(t.Context(), c, x.session, x.name, began, ada)
		var p *route.Problem
		if x.kind == "" && err != nil || x.kind != "" && (!errors.As(err, &p) || p.Kind != x.kind) {
			t.Errorf("%q: %v", x.name, err)
		}
		again := &Store{Options: people.Options{Git: s.Git}}
		if err := again.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, s := range []*Store{s, again} {
			if got := s.Name(c, x.session, began[x.session]); got != x.want {
				t.Errorf("%q: %q", x.name, got)
			}
			if got := s.Name(c, "coder.01", began["coder.01"]); got != "Docs" {
				t.Errorf("%q: the other session is %q", x.name, got)
			}
		}
	}
}

// TestDamaged names a session whose record cannot be read, and one whose record has a name that this version would not
// keep.
func TestDamaged(t *testing.T) {
	s := newStore(t)
	repo, err := people.OpenRepo(t.Context(), s.Git)
	if err != nil {
		t.Fatal(err)
	}
	put := func(ref, content string) {
		t.Helper()
		hash, err := repo.WriteCommit(t.Context(),
			gitd.NewCommit{Put: []gitd.File{{Path: file, Content: []byte(content)}}, Author: ada, Message: "Damage it"})
		if err == nil {
			err = repo.Update(t.Context(), gitd.RefUpdate{Name: ref, New: hash})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put(refs+"/run-a", "{")
	put(refs+"/run-b", `{"caller":"run:b","sessions":{"coder":{"text":"a\u200b","since":"2026-05-04T12:00:00Z"},`+
		`"other":{"text":"`+strings.Repeat("x", MaxRunes+1)+`"},"":{"text":"none"}}}`)
	put(refs+"/nobody", "{}")
	var log strings.Builder
	if err := (&Store{Options: people.Options{Git: s.Git, Log: slog.New(slog.NewTextHandler(&log, nil))}}).Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]bool{"run-a": true, "run-b": false, "nobody": true} {
		if got := strings.Contains(log.String(), "ref="+refs+"/"+ref); got != want {
			t.Errorf("the log names %s: %v", ref, got)
		}
	}
	for _, id := range []string{"a", "b"} {
		again := &Store{Options: people.Options{Git: s.Git, Committer: ada}}
		if err := again.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		c, err := record.RunCaller(id)
		if err != nil {
			t.Fatal(err)
		}
		if want := map[string]string{"b": "a"}[id]; again.Name(c, "coder", began["coder"]) != want {
			t.Errorf("%s: %q", id, again.Name(c, "coder", began["coder"]))
		}
		if err := again.SetName(t.Context(), c, "coder.01", "Repaired", began, ada); err != nil {
			t.Error(err)
		}
		last := &Store{Options: people.Options{Git: s.Git}}
		if err := last.Open(t.Context()); err != nil || last.Name(c, "coder.01", began["coder.01"]) != "Repaired" {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// TestLaterSession begins a session again after the runs of an earlier one are gone. It has no name, and takes its
// record over.
func TestLaterSession(t *testing.T) {
	s := newStore(t)
	c, err := record.RunCaller("a")
	if err != nil {
		t.Fatal(err)
	}
	for session, name := range map[string]string{"coder": "Lay-offs", "coder.01": "Docs"} {
		if err := s.SetName(t.Context(), c, session, name, began, ada); err != nil {
			t.Fatal(err)
		}
	}
	later := map[string]time.Time{"coder": s.Now().Add(time.Hour)} // also than the clock of this store
	if got := s.Name(c, "coder", later["coder"]); got != "" {
		t.Errorf("a new session has the name %q of an earlier one", got)
	}
	if err := s.SetName(t.Context(), c, "coder", "Docs", later, ada); err != nil {
		t.Fatal(err)
	}
	if got := s.Name(c, "coder", later["coder"]); got != "Docs" || len(s.byCaller[c].Sessions) != 1 {
		t.Errorf("%q of %v", got, s.byCaller[c])
	}
}

// TestGone removes the records that nobody needs: those without a name, and those of callers without runs.
func TestGone(t *testing.T) {
	s := newStore(t)
	var callers []record.Caller
	for _, id := range []string{"a", "b", "c"} {
		c, err := record.RunCaller(id)
		if err != nil {
			t.Fatal(err)
		}
		callers = append(callers, c)
		if err := s.SetName(t.Context(), c, "coder", "x", began, ada); err != nil {
			t.Fatal(err)
		}
	}
	repo, err := s.Git.Repo(gitd.PeopleRepo)
	if err != nil {
		t.Fatal(err)
	}
	left := func() (list []string) {
		t.Helper()
		all, err := repo.Refs(t.Context(), refs)
		if err != nil {
			t.Fatal(err)
		}
		for _, ref := range all {
			list = append(list, strings.TrimPrefix(ref.Name, refs+"/"))
		}
		return list
	}
	if err := s.SetName(t.Context(), callers[0], "coder", "", began, ada); err != nil {
		t.Fatal(err)
	}
	if got := left(); !slices.Equal(got, []string{"run-b", "run-c"}) || len(s.byCaller) != 2 || len(s.tips) != 2 {
		t.Errorf("an empty record stays: %v", got)
	}
	if err := s.Sweep(t.Context(), func(c record.Caller) bool { return c == callers[2] }); err != nil {
		t.Fatal(err)
	}
	if got := left(); !slices.Equal(got, []string{"run-c"}) || s.Name(callers[1], "coder", began["coder"]) != "" {
		t.Errorf("the record of a caller without runs stays: %v", got)
	}
	if err := s.SetName(t.Context(), callers[0], "coder", "again", began, ada); err != nil {
		t.Errorf("a session cannot be named again: %v", err)
	}
}

// TestMaxRecords names sessions of as many callers as can be. Those that have a record can be named again.
func TestMaxRecords(t *testing.T) {
	s := newStore(t)
	callers := []record.Caller{}
	for n := range maxRecords + 1 {
		c, err := record.RunCaller(fmt.Sprintf("a%d", n))
		if err != nil {
			t.Fatal(err)
		}
		if callers = append(callers, c); n < maxRecords-1 {
			s.tips[c] = "0"
		}
	}
	set := func(n int, name string) error {
		return s.SetName(t.Context(), callers[n], "coder", name, began, ada)
	}
	if err := set(maxRecords-1, "last"); err != nil {
		t.Errorf("the last one: %v", err)
	}
	var p *route.Problem
	if err := set(maxRecords, "more"); !errors.As(err, &p) || p.Kind != route.KindTooLarge {
		t.Errorf("there is no bound: %v", err)
	}
	if err := set(maxRecords-1, "again"); err != nil {
		t.Errorf("one that has a record: %v", err)
	}
}

// TestCheck refuses the record of another caller, of none, and of too many sessions.
func TestCheck(t *testing.T) {
	c, err := record.RunCaller("a")
	if err != nil {
		t.Fatal(err)
	}
	most := map[string]Name{}
	for n := range maxNames {
		most[fmt.Sprint(n)] = Name{}
	}
	more := map[string]Name{"more": {}}
	maps.Copy(more, most)
	for _, x := range []struct {
		about string
		r     Record
		ref   string
		ok    bool
	}{
		{"its own", Record{c, most}, refs + "/run-a", true},
		{"another caller's", Record{c, nil}, refs + "/run-b", false},
		{"nobody's", Record{}, refOf(record.Caller{}), false},
		{"of too many sessions", Record{c, more}, refs + "/run-a", false},
	} {
		if err := x.r.check(x.ref); (err == nil) != x.ok {
			t.Errorf("%s: %v", x.about, err)
		}
	}
}

// TestUsable leaves out names that a store would not keep.
func TestUsable(t *testing.T) {
	r := Record{Sessions: map[string]Name{"coder": {Text: "a\u200b"}, "": {Text: "none"}, "unseen": {Text: "\u200b"},
		"long": {Text: strings.Repeat("x", MaxRunes+1)}}}
	if got := r.usable(); len(got) != 1 || got["coder"].Text != "a" {
		t.Errorf("%v", got)
	}
}

// FuzzRecord checks that a record that is read has only names that would be kept as they are.
func FuzzRecord(f *testing.F) {
	f.Add(`{"caller":"run:a","sessions":{"coder":{"text":"x"}}}`)
	f.Add(`{"caller":"run:a","sessions":{"":{"text":"x"}}}`)
	f.Add(`{"caller":"run:a","sessions":{"coder":{"text":" a\nb"}}}`)
	f.Add(`{"caller":"run:a","sessions":{"coder":{"text":"\u200b\ud800"}}}`)
	f.Add(`{}`)
	f.Fuzz(func(t *testing.T, content string) {
		var r Record
		if json.Unmarshal([]byte(content), &r) != nil || r.check(refs+"/run-a") != nil {
			return
		}
		if r.Caller.Slug() != "run-a" {
			t.Errorf("the record is that of %s", r.Caller)
		}
		for _, n := range r.usable() {
			if words, err := clean(n.Text); words != n.Text || err != nil || words == "" ||
				strings.ContainsAny(words, "\n\x1b") {
				t.Errorf("%q, and of that %q: %v", n.Text, words, err)
			}
		}
	})
}

// TestPacked takes names over to another server, twice, and replaces those that are there.
func TestPacked(t *testing.T) {
	s, other := newStore(t), newStore(t)
	a, err := record.RunCaller("a")
	if err != nil {
		t.Fatal(err)
	}
	b, err := record.RunCaller("b")
	if err != nil {
		t.Fatal(err)
	}
	if packed, err := s.Pack("app", []record.Caller{a, b}); err != nil || packed != nil {
		t.Fatalf("no names are %s, %v", packed, err)
	}
	for c, name := range map[record.Caller]string{a: "Invoices", b: "Docs"} {
		if err := s.SetName(t.Context(), c, "coder", name, began, ada); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.SetName(t.Context(), a, "coder", "An older name", began, ada); err != nil {
		t.Fatal(err)
	}
	packed, err := s.Pack("app", []record.Caller{a})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := other.Unpack(t.Context(), packed); err != nil {
			t.Fatal(err)
		}
	}
	if got := other.Name(a, "coder", began["coder"]); got != "Invoices" {
		t.Errorf("the name is %q", got)
	}
	if got := other.Name(b, "coder", began["coder"]); got != "" {
		t.Errorf("a caller of another repository has the name %q", got)
	}
	if err := other.Unpack(t.Context(), json.RawMessage(`[{"caller":"nonsense"}]`)); err == nil {
		t.Error("a record of no caller was kept")
	}
}
