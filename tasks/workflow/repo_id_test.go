package workflow

import (
	"fmt"
	"strings"
	"testing"
)

// A node may name the repository that its command works on anyway, in any order of the nodes.
func TestRepoIDOfANode(t *testing.T) {
	file := func(repo string, ids ...string) []byte {
		text := "id: w\n" + repo + "nodes:\n"
		for i, id := range ids {
			text += fmt.Sprintf("- {id: n%d, kind: shell, implementation: {command_template: 'true', repo_id: %s, branch: '{{context.branch}}'}}\n", i, id)
		}
		return []byte(text)
	}
	for _, x := range []struct {
		what   string
		file   []byte
		runsOn string
		id     string // of the workflow's repository
		wrong  string
	}{
		{"nobody else names it", file("", "app", "app"), "", "app", ""},
		{"two nodes differ", file("", "app", "other"), "", "", "own repository, app;"},
		{"the run names it", file("", "app"), "app", "", ""},
		{"the run is on another", file("", "app"), "other", "", "own repository, other;"},
		{"the file names it", file("repo: {id: app}\n", "app"), "", "app", ""},
		{"the file and the run name two", file("repo: {id: app}\n", "app", "fork"), "fork", "app", ""},
		{"neither of them", file("repo: {id: app}\n", "third"), "fork", "", "own repository, fork;"},
		{"the context", file("", "'{{context.repo_id}}'"), "app", "", ""},
		{"no name", file("", "'-x'"), "", "", "own repository;"},
		{"another slot", file("", "'{{input.repo}}'"), "", "", "own repository;"},
	} {
		w, err := Parse(t.Context(), "w.yaml", x.file, Options{RepoID: x.runsOn})
		switch {
		case x.wrong == "" && err != nil:
			t.Errorf("%s: %v", x.what, err)
		case x.wrong != "" && (err == nil || !strings.Contains(err.Error(), x.wrong)):
			t.Errorf("%s: %v, want %q", x.what, err, x.wrong)
		case err == nil && w.Repo.ID != x.id:
			t.Errorf("%s: the workflow is one of %q, want %q", x.what, w.Repo.ID, x.id)
		}
	}
}
