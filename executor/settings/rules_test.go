package settings

import (
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
	"github.com/ramus-dev/ramus/tasks/rules"
)

// TestRules reads the rules of a base, and asks about everything while they have a mistake.
func TestRules(t *testing.T) {
	ctx := t.Context()
	repo, err := repotest.NewServer(t).Create(ctx, "app")
	if err != nil {
		t.Fatal(err)
	}
	r := &Reader{}
	var tip gitd.Hash
	for _, x := range []struct {
		text, branch string
		want         rules.Answer
	}{
		{"rules: [{run: git push, then: deny}]", "main", rules.Deny},
		{"rules: [{run: git push, then: allow}]", "ramus/run-x", rules.Deny}, // a branch under work
		{"rules: [{run: git push, then: deni}]", "main", rules.Ask},
		{strings.Repeat("#", rules.MaxBytes+1), "main", rules.Ask},
		{"# nothing", "main", ""},
	} {
		c := gitd.NewCommit{Put: []gitd.File{{Path: rules.Path, Content: []byte(x.text)}}, When: time.Unix(1e9, 0), Message: "m",
			Author: gitd.Person{Name: "Ada", Email: "ada@example.org"}, Committer: gitd.Person{Name: "Ada", Email: "ada@example.org"}}
		if tip != "" {
			c.Parents = []gitd.Hash{tip}
		}
		h, err := repo.WriteCommit(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		if err := repo.Update(ctx, gitd.RefUpdate{Name: "refs/heads/" + x.branch, New: h}); err != nil {
			t.Fatal(err)
		}
		if x.branch == "main" {
			tip = h
		}
		s, err := r.Read(ctx, repo, x.branch)
		if err != nil {
			t.Fatal(err)
		}
		got := rules.Answer("")
		if rule := s.Rules.Judge(rules.Vector("git", "push")); rule != nil {
			got = rule.Then
		}
		if got != x.want || x.want == rules.Ask && s.Rules.Mistake == "" {
			t.Errorf("%.40q in %s: %q, want %q; mistake %q", x.text, x.branch, got, x.want, s.Rules.Mistake)
		}
	}
}
