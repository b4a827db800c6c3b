package githubread

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"
)

var app = forge.Name{Owner: "acme", Repo: "app"}

// body returns a request. Variables are pairs of a name and a value.
func body(text string, variables ...string) []byte {
	q := query{Query: text, Variables: map[string]any{}}
	for i := 0; i+1 < len(variables); i += 2 {
		q.Variables[variables[i]] = variables[i+1]
	}
	b, _ := json.Marshal(q)
	return b
}

func TestAllowQuery(t *testing.T) {
	const pull = `query P($owner: String!, $repo: String!) { repository(owner: $owner, name: $repo) { pullRequest(number: 7) { %s } } }`
	for _, c := range []struct {
		name string
		body []byte
		want string // in the error; empty means that the query is allowed
	}{
		{"pull request", body(strings.Replace(pull, "%s", "title, author{login,...on User{id,name}}", 1), "owner",
			"acme", "repo", "app"), ""},
		{"other case", body(`{repository(owner: "ACME", name: "App") {id}}`), ""},
		{"default of a variable", body(`query($r: String = "app") {repository(owner: "acme", name: $r) {id}}`), ""},
		{"a variable before its default", body(`query($r: String = "app") {repository(owner: "acme", name: $r) {id}}`,
			"r", "web"), "only the repository"},
		{"the default of another repository",
			body(`query($r: String = "web") {repository(owner: "acme", name: $r) {id}}`), "only the repository"},
		{"alias", body(`{a: repository(owner: "acme", name: "app") {b: pullRequest(number: 1) {c: title}}}`), ""},
		{"fragment", body(`fragment i on Issue {title} {repository(owner: "acme", name: "app") {issues(first: 3) {nodes {...i}}}}`), ""},
		{"introspection", body(`{P: __type(name: "PullRequest") {fields {name}} __schema {types {name}}}`), ""},
		{"viewer", body(`{viewer {login}}`), ""},
		{"another repository", body(`{repository(owner: "acme", name: "web") {id}}`), "only the repository acme/app"},
		{"two repositories", body(`{a: repository(owner: "acme", name: "app") {id} b: repository(owner: "acme", name: "web") {id}}`), "only the repository"},
		{"no name", body(`{repository(owner: "acme") {id}}`), "only the repository"},
		{"mutation", body(`mutation {mergePullRequest(input: {}) {clientMutationId}}`), "a mutation is not allowed"},
		{"subscription", body(`subscription {a}`), "a subscription is not allowed"},
		{"a mutation after a query", body(`query A {viewer {login}} mutation B {a}`), "a mutation is not allowed"},
		{"root", body(`{search(query: "x", type: ISSUE, first: 1) {nodes {id}}}`), `"search" is not allowed`},
		{"node", body(`{node(id: "x") {id}}`), `"node" is not allowed`},
		{"root in a fragment", body(`fragment q on Query {organization(login: "acme") {id}} {...q}`),
			`"organization" is not allowed`},
		{"files", body(`{repository(owner: "acme", name: "app") {object(expression: "main:x") {id}}}`),
			`"object" is not allowed`},
		{"people", body(strings.Replace(pull, "%s", "author {... on User {repositories(first: 9) {nodes {name}}}}", 1),
			"owner", "acme", "repo", "app"), `"repositories" of a person`},
		{"fork", body(strings.Replace(pull, "%s", "headRepository {issues(first: 9) {nodes {title}}}", 1), "owner",
			"acme", "repo", "app"), `"issues" of a person`},
		{"owner of a fork", body(strings.Replace(pull, "%s", "headRepository {owner {login}}", 1), "owner", "acme",
			"repo", "app"), ""},
		{"parent", body(`{repository(owner: "acme", name: "app") {parent {pullRequests(first: 1) {nodes {title}}}}}`),
			`"pullRequests" of a person`},
		{"a fragment of people",
			body(`fragment u on User {organizations(first: 1) {nodes {id}}} {repository(owner: "acme", name: "app") {owner {...u}}}`), `"organizations" of a person`},
		{"no fragment", body(`{...nothing}`), "no fragment"},
		{"a circle", body(`fragment a on Query {...b} fragment b on Query {...a} {...a}`), "nested deeper"},
		{"many", body(`{` + strings.Repeat(`viewer {login} `, 2500) + `}`), ""},
		{"no JSON", []byte(`{`), "no JSON"},
		{"no GraphQL", body(`{`), "no GraphQL"},
		{"empty", body(``), "no operation"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := allowQuery(c.body, app)
			switch {
			case c.name == "many" && err == nil:
				t.Error("a query of 2,500 fields with as many below them is allowed")
			case c.name == "many":
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// TestAllowQueryIsBounded checks that fragments that contain each other twice do not take exponential time.
func TestAllowQueryIsBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("{...f0}")
	for i := range 22 {
		next := string(rune('a' + i + 1))
		this := string(rune('a' + i))
		if i == 0 {
			this = "f0"
		}
		b.WriteString(" fragment " + this + " on Query {..." + next + " ..." + next + "}")
	}
	b.WriteString(" fragment w on Query {viewer {login}}")
	if err := allowQuery(body(b.String()), app); err == nil {
		t.Error("four million fields are allowed")
	}
}

func TestAllowedPath(t *testing.T) {
	for path, want := range map[string]bool{
		"/repos/acme/app": true, "/repos/ACME/app/pulls": true, "/repos/acme/app/pulls/7": true,
		"/repos/acme/app/pulls/7/files":     true,
		"/repos/acme/app/issues/7/comments": true, "/repos/acme/app/commits/main/check-runs": true,
		"/repos/acme/app/commits/ramus/run-a/status": true,
		"/repos/acme/app/actions/runs/1/jobs":        true,
		"/repos/acme/app/":                           true, "/repos/acme/app/pulls/": true, "/repos/acme/web/pulls": false,
		"/repos/acme/app2/pulls": false, "/repos/acme": false, "/user": false, "/": false, "": false,
		"/repos/acme/app/contents/a": false, "/repos/acme/app/commits/main": false,
		"/repos/acme/app/commits/check-runs": false, "/repos/acme/app/hooks": false,
		"/repos/acme/app/keys": false, "/repos/acme/app/collaborators": false, "/repos/acme/app/actions/secrets": false,
		"/repos/acme/app/git/refs":       false,
		"/repos/acme/app/pulls/../hooks": false, "/repos/acme/app/pulls/./7": false, "/repos/acme/app/pulls//7": false,
		"/repos/acme/app/pulls/%2e%2e/hooks": false,
		"/repos/acme/../acme/app":            false, "/repos/acme/app/pulls/..": false,
		`/repos/acme/app/pulls/..\hooks`: false,
		"/orgs/acme/repos":               false,
	} {
		if got := allowedPath(path, app); got != want {
			t.Errorf("allowedPath(%q) = %v, want %v", path, got, want)
		}
	}
}

// roots are the fields that an operation may have.
var roots = words("repository viewer rateLimit __type __schema __typename")

// FuzzAllowQuery checks that an allowed request has no mutation and only known fields at its root.
func FuzzAllowQuery(f *testing.F) {
	f.Add(`{repository(owner: "acme", name: "app") {pullRequest(number: 1) {title}}}`, "app")
	f.Add(`fragment a on Query {repository(owner: "acme", name: $r) {id}} query($r: String) {...a}`, "web")
	f.Add(`mutation {a}`, "")
	f.Fuzz(func(t *testing.T, text, name string) {
		if len(text) > maxQuery {
			return
		}
		if allowQuery(body(text, "r", name), app) != nil {
			return
		}
		doc, err := parser.ParseQuery(&ast.Source{Input: text})
		if err != nil {
			t.Fatalf("%q is allowed: %v", text, err)
		}
		for _, op := range doc.Operations {
			if op.Operation != ast.Query {
				t.Errorf("%q is allowed", text)
			}
			for _, root := range op.SelectionSet {
				if field, ok := root.(*ast.Field); ok && !roots[field.Name] {
					t.Errorf("%q is allowed, with the field %q", text, field.Name)
				}
			}
		}
	})
}
