package gateway_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/comment"
	"github.com/ramus-dev/ramus/gateway/people"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/share"
	"github.com/ramus-dev/ramus/gitd"
)

// TestMCPComments calls the tools for comments on lines, and those for links to work, as a person and as one who may only read.
func TestMCPComments(t *testing.T) {
	r := openWith(t, false, nil, func(s *gateway.Server) {
		s.Links.URL = "https://ramus.example.org"
		s.Shares = &share.Store{Options: people.Options{Git: s.Git, Committer: gitd.Person{Name: "ramus", Email: "ramus@example.org"}}}
		if err := s.Shares.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	var mu sync.Mutex // guards logged
	var logged []string
	gateway.MCP(r.Server).Audit = func(_ context.Context, who route.Who, action, object string) error {
		mu.Lock()
		defer mu.Unlock()
		logged = append(logged, who.Subject+" "+action+" "+object)
		return nil
	}
	r.repo(t, "app")
	caller, err := record.RunCaller("otter")
	if err != nil {
		t.Fatal(err)
	}
	run, err := r.Executor.Submit(t.Context(), record.Request{Caller: caller, Repo: "app", Command: &record.Command{Shell: "true"}})
	if err == nil {
		_, err = r.Executor.Settled(t.Context(), caller, run.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	ada := r.assistant(t, r.token(t, gitd.Grant{Subject: "ada", Repo: "app", Scopes: []string{gitd.ScopeWrite}}), false, nil)
	bo := r.assistant(t, r.token(t, gitd.Grant{Subject: "bo", Repo: "app", Scopes: []string{gitd.ScopeRead}}), false, nil)
	refused := func(s *mcp.ClientSession, name, want string, args map[string]any) {
		t.Helper()
		got, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
		if err == nil && (!got.IsError || !strings.Contains(InlineText(got), want)) {
			t.Errorf("%s %v: %s", name, args, InlineText(got))
		}
	}

	// Comments.
	lines := map[string]any{"caller": "otter", "key": "k", "comments": []map[string]any{{"path": "README", "line": 1, "text": "Why?"}}}
	sent := structured[comment.Sent](t, use(t, ada, "comment_on_lines", lines))
	again := structured[comment.Sent](t, use(t, ada, "comment_on_lines", lines))
	if len(sent.Threads) != 1 || again.Batch.ID != sent.Batch.ID || sent.Batch.By.Name != "ada" {
		t.Fatalf("%+v, then %+v", sent, again)
	}
	thread := map[string]any{"caller": "otter", "thread": sent.Threads[0]}
	answer := map[string]any{"caller": "otter", "thread": sent.Threads[0], "text": "Because."}
	refused(bo, "comment_on_lines", "", lines)
	refused(bo, "answer_comment", "", answer)
	refused(bo, "resolve_comment", "", thread)
	refused(ada, "comment_on_lines", "does not have these lines", map[string]any{"caller": "otter", "comments": []map[string]any{{"path": "README", "line": 9, "text": "x"}}})
	refused(ada, "comment_on_lines", "otters", map[string]any{"caller": "otters", "comments": []map[string]any{{"path": "README", "line": 1, "text": "x"}}})
	refused(ada, "resolve_comment", "none", map[string]any{"caller": "otter", "thread": "none"})
	list := func(all bool) (threads struct {
		Open    int
		Threads []comment.Thread
	}) {
		t.Helper()
		return structured[struct {
			Open    int
			Threads []comment.Thread
		}](t, use(t, bo, "list_comments", map[string]any{"caller": "otter", "all": all}))
	}
	use(t, ada, "answer_comment", answer)
	if got := list(false); got.Open != 1 || len(got.Threads) != 1 || len(got.Threads[0].Remarks) != 2 || got.Threads[0].Remarks[1].By.Name != "ada" {
		t.Errorf("%+v", got)
	}
	use(t, ada, "resolve_comment", thread)
	if got := list(false); got.Open != 0 || len(got.Threads) != 0 {
		t.Errorf("%+v", got)
	}
	if got := list(true); len(got.Threads) != 1 {
		t.Errorf("%+v", got)
	}

	// Links.
	refused(bo, "share", "", map[string]any{"of": "otter"})
	refused(ada, "share", "maximum", map[string]any{"of": "otter", "days": 91})
	refused(ada, "share", "nobody", map[string]any{"of": "nobody"})
	link := structured[share.Link](t, use(t, ada, "share", map[string]any{"of": "otter", "days": 1}))
	if !strings.HasPrefix(link.URL, "https://ramus.example.org/shared/"+link.ID+"/") || link.State != share.StateOpen {
		t.Errorf("%+v", link)
	}
	shares := func(s *mcp.ClientSession) []share.Link {
		t.Helper()
		return structured[struct{ Shares []share.Link }](t, use(t, s, "list_shares", map[string]any{})).Shares
	}
	if got := shares(ada); len(got) != 1 || got[0].ID != link.ID || got[0].URL != "" {
		t.Errorf("%+v", got)
	}
	if got := shares(bo); len(got) != 0 {
		t.Errorf("somebody else sees %+v", got)
	}
	refused(ada, "revoke_share", "none", map[string]any{"id": "none"})
	if got := structured[share.Link](t, use(t, ada, "revoke_share", map[string]any{"id": link.ID})); got.State != share.StateRevoked {
		t.Errorf("%+v", got)
	}
	refused(bo, "export", "", map[string]any{"run": run.Name()})
	use(t, ada, "export", map[string]any{"run": run.Name()})
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"ada share.make run:otter", "ada share.revoke run:otter", "ada export.link " + run.Name()}; !slices.Equal(logged, want) {
		t.Errorf("the log of actions has %q, want %q", logged, want)
	}
}
