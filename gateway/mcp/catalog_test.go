package mcp

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/catalog"
	"github.com/ramus-dev/ramus/gateway/gate"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/internal/golden"
)

func TestToolCatalogForEachPolicy(t *testing.T) {
	fallback := []string{"fallback_session"}
	session := []string{"start_code_session", "resume_code_session"}
	ofTask := []string{"resume_code_session", "reply_to_thread", "spawn_task", "get_task_status", "list_active_tasks",
		"message_task", "cancel_task"}
	var library, blind []string // blind has the tools without a browser
	for _, task := range executor.Library() {
		library = append(library, task.Name)
		if !slices.Contains(catalog.BrowserTools, task.Name) {
			blind = append(blind, task.Name)
		}
	}
	if len(library) != len(blind)+2 {
		t.Fatalf("the library has %q, of which %q need a browser", library, catalog.BrowserTools)
	}
	most := catalog.Offer{Browser: true, Fallback: true}
	inThread := catalog.Offer{Thread: true, Channels: []string{"C01"}}
	for _, x := range []struct {
		policy gate.Policy
		offer  catalog.Offer
		want   []string
	}{
		{gate.Policy{}, most, fallback},
		{gate.Policy{}, catalog.Offer{Browser: true, Task: true}, nil},
		{gate.Policy{Runner: "superset", Reason: gate.ReasonThreadStarter}, most, fallback},
		{gate.Policy{Runner: gate.RunnerFallback, Reason: gate.ReasonGlobalDisabled}, most, fallback},
		{gate.Policy{Runner: gate.RunnerFallback, Reason: gate.ReasonNotAllowlisted, Prompt: "use start_code_session"},
			most, fallback},
		{gate.Policy{Runner: gate.RunnerFallback, Reason: gate.ReasonAgent}, most, fallback},
		{gate.Policy{Runner: gate.RunnerFallback, Reason: gate.ReasonNotAllowlisted}, catalog.Offer{Browser: true}, nil},
		{gate.Policy{Runner: gate.RunnerContainer, Reason: gate.ReasonThreadStarter}, most,
			slices.Concat(session, library, fallback)},
		{gate.Policy{Runner: gate.RunnerContainer, Reason: gate.ReasonExplicitPrefix}, most,
			slices.Concat(session, library, fallback)},
		{gate.Policy{Runner: gate.RunnerContainer, Reason: gate.ReasonChannelAllowlist}, catalog.Offer{Fallback: true},
			slices.Concat(session, blind, fallback)},
		{gate.Policy{Runner: gate.RunnerContainer, Reason: gate.ReasonRepoAllowlist}, catalog.Offer{Browser: true},
			slices.Concat(session, library)},
		{gate.Policy{Runner: gate.RunnerContainer, Reason: gate.ReasonPercentage}, catalog.Offer{},
			slices.Concat(session, blind)},
		{gate.Policy{Runner: gate.RunnerContainer, Reason: gate.ReasonThreadStarter}, inThread,
			slices.Concat(session, []string{"reply_to_thread", "post_message"}, blind)},
		{gate.Policy{Runner: gate.RunnerFallback, Reason: gate.ReasonNotAllowlisted}, inThread, nil},
		{gate.Policy{Runner: gate.RunnerContainer, Reason: gate.ReasonGrant}, catalog.Offer{Task: true,
			Channels: []string{"C01"}}, slices.Concat(ofTask, []string{"post_message"}, blind)},
		{gate.Policy{Runner: gate.RunnerContainer, Reason: gate.ReasonGrant}, catalog.Offer{Browser: true, Task: true},
			slices.Concat(ofTask, library)},
		{gate.Policy{Runner: gate.RunnerContainer, Reason: gate.ReasonGrant}, catalog.Offer{Fallback: true, Task: true},
			slices.Concat(ofTask, blind)},
		{gate.Policy{Runner: gate.RunnerContainer, Reason: gate.ReasonGrant}, catalog.Offer{Comments: true},
			slices.Concat(session, blind, []string{"list_comments", "answer_comment", "resolve_comment"})},
		{gate.Policy{Runner: gate.RunnerContainer, Reason: gate.ReasonGrant}, catalog.Offer{Comments: true, Review: true},
			slices.Concat(session, blind, []string{"report_finding"})},
	} {
		list := catalog.List(x.policy, x.offer)
		if got := catalog.Names(list); !slices.Equal(got, x.want) {
			t.Errorf("%+v, %+v: %q, want %q", x.policy, x.offer, got, x.want)
		}
		// The door must answer tools/list with the tools of the list.
		want := slices.Sorted(slices.Values(x.want))
		if got := doorLists(t, list); !slices.Equal(got, want) {
			t.Errorf("%+v, %+v: the door has %q, want %q", x.policy, x.offer, got, want)
		}
	}
	for _, runner := range []gate.Runner{gate.RunnerFallback, gate.RunnerContainer} {
		own := slices.DeleteFunc(catalog.List(gate.Policy{Runner: runner}, most),
			func(t catalog.Tool) bool { return strings.HasPrefix(t.Name, "lib_") })
		text, err := json.MarshalIndent(own, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		golden.Compare(t, "catalog-"+string(runner)+".json", string(text)+"\n")
	}
}

// doorLists returns the names of the tools with which a door with a list answers tools/list.
func doorLists(t *testing.T, list []catalog.Tool) (names []string) {
	t.Helper()
	here, there := sdk.NewInMemoryTransports()
	server := toolset{tools: new(door).register(list, record.Run{}, record.Task{}),
		who: route.Who{Scopes: []string{"write"}}}.server(t.Context(), "")
	session, err := server.Connect(t.Context(), there, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	client, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), here, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for tool, err := range client.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
	}
	return slices.Sorted(slices.Values(names))
}

// TestToolSchemas checks calls of a model with the schemas. An argument that the schema does not name is refused.
func TestToolSchemas(t *testing.T) {
	for _, x := range []struct {
		tool, input string
		ok          bool
	}{
		{catalog.ToolStart, `{"prompt":"fix it"}`, true},
		{catalog.ToolStart, `{"prompt":"fix it","agent":"coder"}`, true},
		{catalog.ToolStart, `{"prompt":"fix it","repo":"team/app"}`, false}, // a thread has one repository
		{catalog.ToolStart, `{}`, false},
		{catalog.ToolStart, `{"prompt":""}`, false},
		{catalog.ToolStart, `{"prompt":"fix it","thread":"slack:T:C:1"}`, false},
		{catalog.ToolResume, `{"prompt":"go on"}`, true},
		{catalog.ToolResume, `{"prompt":"go on","run":"conv:x/y"}`, false},
		{catalog.ToolBrowser, `{"spec":".ramus/browser/login.yaml","compare":true}`, true},
		{catalog.ToolBrowser, `{"check":{"start":"npm start","url":"http://127.0.0.1:3000/login","steps":[{"expect_visible":"h1"}]}}`, true},
		{catalog.ToolBrowser, `{"test":"e2e/login.spec.ts"}`, false},
		{catalog.ToolScreenshot,
			`{"url":"http://localhost:3000","viewports":["mobile","1024x768"],"full_page":true,"mask":[".clock"]}`, true},
		{catalog.ToolScreenshot, `{"thread":"slack:T:C:1"}`, false},
		{catalog.ToolScreenshot, `{"full_page":"yes"}`, false},
		{catalog.ToolFallback, `{"prompt":"needs a Mac"}`, true},
		{catalog.ToolFallback, `{"prompt":1}`, false},
	} {
		tools := catalog.List(gate.Policy{Runner: gate.RunnerContainer}, catalog.Offer{Browser: true, Fallback: true})
		tool := tools[slices.IndexFunc(tools, func(tool catalog.Tool) bool { return tool.Name == x.tool })]
		var s jsonschema.Schema
		if err := json.Unmarshal(tool.Schema, &s); err != nil {
			t.Fatalf("%s: %v", tool.Name, err)
		}
		r, err := s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
		if err != nil {
			t.Fatalf("%s: %v", tool.Name, err)
		}
		var input any
		if err := json.Unmarshal([]byte(x.input), &input); err != nil {
			t.Fatal(err)
		}
		if err := r.Validate(input); (err == nil) != x.ok {
			t.Errorf("%s %s: %v", x.tool, x.input, err)
		}
	}
}
