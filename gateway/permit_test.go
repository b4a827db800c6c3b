package gateway_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gitd"
)

// TestCallerNameWithinLongerNames submits a run for a caller whose name is a part of other callers' names. A partial
// name finds a caller, but Submit must use the exact name.
func TestCallerNameWithinLongerNames(t *testing.T) {
	t.Parallel()
	r := open(t, false, nil)
	r.repo(t, "team/app")
	for _, id := range []string{"fox-1", "fox-2", "fox"} {
		c, err := record.RunCaller(id)
		if err != nil {
			t.Fatal(err)
		}
		run, err := r.local.Submit(t.Context(),
			record.Request{Caller: c, Repo: "team/app", Command: &record.Command{Shell: "true"}})
		if err != nil {
			t.Fatalf("%s: %v", c, err)
		}
		for _, err := range r.local.Events(t.Context(), run.Name(), 0) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if st, err := r.local.Caller(t.Context(), "run:fox"); err != nil || st.Caller.ID() != "fox" {
		t.Errorf("run:fox is %v, %v", st.Caller, err)
	}
}

// TestRightsInSeveralRepositories has a caller work in two repositories. A bearer for one of them cannot add the other,
// and does not find a caller that works there.
func TestRightsInSeveralRepositories(t *testing.T) {
	t.Parallel()
	r := openExecutor(t, false, func(x *executor.Executor) {
		x.With = map[string][]string{"team/app": {"lib", "absent"}}
	}, nil)
	r.repo(t, "team/app")
	r.repo(t, "lib")
	one := r.token(t, gitd.Grant{Subject: "one", Repo: "team/app", Scopes: []string{"write"}})
	all := r.token(t, gitd.Grant{Subject: "all", Repo: "*", Scopes: []string{"write"}})
	own := r.token(t, gitd.Grant{Subject: "own", Repo: "*", Scopes: []string{"write"},
		Write: []string{"refs/heads/ramus/*"}}) // it may not change a base
	run := func(caller string, with ...string) string {
		text, err := json.Marshal(gateway.ExecRequest{Repo: "team/app", With: with, Command: record.Command{Shell: "true"}})
		if err != nil {
			t.Fatal(err)
		}
		return "POST /api/callers/" + caller + "/exec " + string(text)
	}
	for _, c := range []struct {
		name, token, request string
		status               int
	}{
		{"adds what it does not see", one, run("a", "lib"), 404},
		{"adds what is not there", one, run("a", "absent"), 404},
		{"adds what is not listed", all, run("a", "other"), 400},
		{"adds its own", all, run("a", "team/app"), 400},
		{"adds with rights", all, run("pair", "lib"), 503}, // nothing runs here,
		{"goes on", all, run("pair"), 503},
		{"goes on with rights in one", one, run("pair"), 404},
		{"looks with rights in one", one, "GET /api/callers/pair", 404},
		{"looks at the changes", one, "GET /api/callers/pair/changes", 404},
		{"looks at the list", one, "GET /api/callers", 200},
		{"looks at runs", one, "GET /api/runs", 200},
		{"stops with rights in one", one, "POST /api/callers/pair/stop", 404},
		{"merges with rights in one", one, "POST /api/callers/pair/merge", 404},
		{"merges without rights in the bases", own, "POST /api/callers/pair/merge", 403},
		{"removes with rights in one", one, "DELETE /api/callers/pair", 404},
		{"looks", all, "GET /api/callers/pair", 200},
		{"merges", all, "POST /api/callers/pair/merge", 200},
		{"removes", all, "DELETE /api/callers/pair", 200},
	} {
		method, rest, _ := strings.Cut(c.request, " ")
		path, body, _ := strings.Cut(rest, " ")
		status, answer := r.ask(t, false, c.token, method, path, body)
		if status != c.status {
			t.Errorf("%s: status %d, want %d: %s", c.name, status, c.status, answer)
		}
		if c.token == one && (strings.Contains(answer, "pair") && !strings.Contains(path, "pair") || strings.Contains(answer, "ramus/run-pair")) {
			t.Errorf("%s: %s", c.name, answer)
		}
	}
	for _, in := range []string{"team/app", "lib"} {
		repo, err := r.Git.Repo(in)
		if err != nil {
			t.Fatal(err)
		}
		if refs, err := repo.Refs(t.Context(), "refs/heads/ramus"); err != nil || len(refs) > 0 {
			t.Errorf("%s has %v, %v", in, refs, err)
		}
	}
}
