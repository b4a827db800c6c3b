package conversation

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// listed is an executor that has sessions.
type listed struct {
	Executor // for the methods that no test calls
	list     []record.Session
}

func (l listed) Sessions(context.Context, string) ([]record.Session, error) { return l.list, nil }

// kept keeps names in memory.
type kept map[string]string

func (k kept) Name(_ record.Caller, session string, began time.Time) string {
	if began.Year() != 2026 {
		return ""
	}
	return k[session]
}

func (k kept) SetName(_ context.Context, _ record.Caller, session, name string, began map[string]time.Time,
	_ gitd.Person) error {
	if began[session].Year() != 2026 || len(began) != 2 {
		return errors.New("the sessions are not all of the caller")
	}
	k[session] = name
	return nil
}

// TestRename names a session. The label of another session is no name.
func TestRename(t *testing.T) {
	caller, err := record.RunCaller("a")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	x := &listed{list: []record.Session{{Caller: caller, Agent: "coder", Began: began},
		{Caller: caller, Agent: "coder", Label: "docs", Began: began.Add(time.Minute)}}}
	names, named := kept{}, 0
	k := &Talk{Executor: x, Names: names, Named: func(c record.Caller) {
		if named++; c != caller {
			t.Error(c)
		}
	}}
	ada := gitd.Person{Name: "Ada", Email: "ada@example.org"}
	docs := SessionID("coder", "docs")
	for session, name := range map[string]string{"coder": "\u200bDOCS ", docs: "Coder"} {
		var p *route.Problem
		if _, err := k.Rename(t.Context(), caller, session, name, ada); !errors.As(err, &p) ||
			p.Kind != route.KindExists {
			t.Errorf("%s has the label of another session: %v", session, err)
		}
	}
	if s, err := k.Rename(t.Context(), caller, docs, "docs", ada); err != nil || s.Name != "docs" {
		t.Errorf("a session has not its own label: %q %v", s.Name, err)
	}
	if s, err := k.Rename(t.Context(), caller, docs, "Manual", ada); err != nil || s.Name != "Manual" || named != 2 {
		t.Errorf("%q, %d changes: %v", s.Name, named, err)
	}
	// A session that begins later has the label.
	x.list = append(x.list, record.Session{Caller: caller, Agent: "reviewer", Label: "manual", Began: began})
	all, err := k.Sessions(t.Context(), caller)
	if err != nil || len(all) != 3 || all[1].Name != "" {
		t.Errorf("%+v %v", all, err)
	}
}
