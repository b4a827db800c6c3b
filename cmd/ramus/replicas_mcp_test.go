package main

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// spread is an HTTP transport that sends each request to the next of several servers, as a balancer does.
type spread struct {
	hosts []string
	token string
	next  int
}

func (s *spread) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = strings.TrimPrefix(s.hosts[s.next%len(s.hosts)], "http://")
	r.Host = r.URL.Host
	s.next++
	r.Header.Set("Authorization", "Bearer "+s.token)
	return http.DefaultTransport.RoundTrip(r)
}

// mcpTogether uses the tools of MCP at two replicas by turns. The caller otter is of ramus-0, and badger of ramus-1.
func (w *replicaWorld) mcpTogether(home, other *replicaServer) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	hosts := []string{home.url, other.url}
	for _, order := range [][]string{hosts, {other.url, home.url}, {home.url, home.url, other.url}} {
		client := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil)
		session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: home.url + "/mcp", MaxRetries: -1,
			DisableStandaloneSSE: true, HTTPClient: &http.Client{Transport: &spread{hosts: order, token: w.token}}}, nil)
		if err != nil {
			w.t.Fatalf("cannot begin a session: %v", err)
		}
		for _, caller := range []string{"run:otter", "run:badger", "run:otter"} {
			for _, arguments := range []map[string]any{{"run": caller}, {"run": strings.TrimPrefix(caller, "run:")}} {
				got, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "get_run", Arguments: arguments})
				if err != nil || got.IsError {
					w.t.Errorf("get_run of %v: %v %s", arguments, err, toolText(got))
					continue
				}
				var run struct {
					Caller string `json:"caller"`
				}
				w.decode(got.StructuredContent, &run)
				if run.Caller != caller {
					w.t.Errorf("get_run of %v is of %q", arguments, run.Caller)
				}
			}
		}
		if tools, err := session.ListTools(ctx, nil); err != nil || len(tools.Tools) == 0 {
			w.t.Errorf("the tools of a session: %v %+v", err, tools)
		}
		if got, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "get_run", Arguments: map[string]any{"run": "absent"}}); err != nil || !got.IsError {
			w.t.Errorf("a run that nobody has: %v %s", err, toolText(got))
		}
		if err := session.Close(); err != nil {
			w.t.Errorf("cannot end a session: %v", err)
		}
	}
}

func toolText(r *mcp.CallToolResult) string {
	if r == nil || len(r.Content) == 0 {
		return ""
	}
	text, _ := r.Content[0].(*mcp.TextContent)
	return text.Text
}

func (w *replicaWorld) decode(from, into any) {
	w.t.Helper()
	b, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// callTool calls a tool of one replica.
func (w *replicaWorld) callTool(of *replicaServer, name string, arguments map[string]any, result any) {
	w.t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil)
	session, err := client.Connect(w.t.Context(), &mcp.StreamableClientTransport{Endpoint: of.url + "/mcp", MaxRetries: -1,
		DisableStandaloneSSE: true, HTTPClient: &http.Client{Transport: &spread{hosts: []string{of.url}, token: w.token}}}, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer session.Close()
	got, err := session.CallTool(w.t.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments})
	if err != nil || got.IsError {
		w.t.Fatalf("%s of %v: %v %s", name, arguments, err, toolText(got))
	}
	w.decode(got.StructuredContent, result)
}

// sharedLinks are the answer of list_shares.
type sharedLinks struct {
	Shares []struct {
		ID     string `json:"id"`
		Caller string `json:"caller"`
		State  string `json:"state"`
	} `json:"shares"`
	Missing []string `json:"missing_replicas"`
}

// linksTogether makes links to callers of both replicas at one of them, opens them at both, moves a repository, and revokes a link where it was
// not made.
func (w *replicaWorld) linksTogether(home, other *replicaServer) {
	w.t.Helper()
	paths := map[string]string{}
	for _, caller := range []string{"run:otter", "run:badger"} {
		var link struct {
			URL string `json:"url"`
		}
		w.callTool(home, "share", map[string]any{"of": caller}, &link)
		at := strings.Index(link.URL, "/shared/")
		if at < 0 {
			w.t.Fatalf("the link to %s is %q", caller, link.URL)
		}
		paths[caller] = link.URL[at:]
	}
	open := func(when string) {
		w.t.Helper()
		for caller, path := range paths {
			for _, s := range []*replicaServer{home, other} {
				if code, body := w.get(s.url + path); code != http.StatusOK || !strings.Contains(body, strings.TrimPrefix(caller, "run:")) {
					w.t.Errorf("%s, the link to %s at %s answers %d: %.2000s", when, caller, s.url, code, body)
				}
			}
		}
		for _, s := range []*replicaServer{home, other} {
			var links sharedLinks
			w.callTool(s, "list_shares", nil, &links)
			var of []string
			for _, l := range links.Shares {
				of = append(of, l.Caller)
			}
			if slices.Sort(of); !slices.Equal(of, []string{"run:badger", "run:otter"}) || links.Missing != nil {
				w.t.Errorf("%s, the links at %s are %+v", when, s.url, links)
			}
		}
	}
	open("at first")
	w.ramus("ramus-0", "repo", "move", "tool", "--to", "ramus-0")
	open("after a move")
	var links sharedLinks
	w.callTool(other, "list_shares", map[string]any{"of": "run:badger"}, &links)
	if len(links.Shares) != 1 {
		w.t.Fatalf("the links to badger are %+v", links)
	}
	w.callTool(other, "revoke_share", map[string]any{"id": links.Shares[0].ID}, &struct{}{})
	w.ramus("ramus-0", "repo", "move", "tool", "--to", "ramus-1")
	for _, s := range []*replicaServer{home, other} {
		if code, body := w.get(s.url + paths["run:badger"]); code != http.StatusNotFound {
			w.t.Errorf("a link that was revoked at another replica before a move answers %d at %s: %.2000s", code, s.url, body)
		}
	}
}
