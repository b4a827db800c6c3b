package githubtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"
)

// resolver returns the value of a field with arguments.
type resolver func(args map[string]any) any

// graphQL serves queries about repositories and their pull requests. It knows the fields that the GitHub CLI reads to show
// pull requests, and the mutations that resolve threads. It refuses others, as GitHub refuses those of a token without the permission.
func (c *call) graphQL() answer {
	var q struct {
		Query     string         `json:"query"`
		Variables map[string]any `json:"variables"`
	}
	if err := json.Unmarshal(c.body, &q); err != nil {
		return refused(http.StatusBadRequest, "Problems parsing JSON")
	}
	doc, err := parser.ParseQuery(&ast.Source{Input: q.Query})
	if err != nil || len(doc.Operations) != 1 {
		return ok(object{"errors": []any{object{"message": fmt.Sprint("Parse error: ", err)}}})
	}
	op := doc.Operations[0]
	g := &graph{c: c, doc: doc, op: op, variables: q.Variables}
	if op.Operation != ast.Query {
		root := object{"resolveReviewThread": g.resolveThread(true), "unresolveReviewThread": g.resolveThread(false)}
		o := object{"data": g.resolve(op.SelectionSet, root, "Mutation")}
		if len(g.errors) > 0 {
			o["errors"] = g.errors
		}
		return ok(o)
	}
	root := object{"repository": resolver(g.repository), "viewer": c.s.ownerNode(c.who.user), "__type": resolver(graphType)}
	data := g.resolve(op.SelectionSet, root, "Query")
	o := object{"data": data}
	if len(g.errors) > 0 {
		o["errors"] = g.errors
	}
	return ok(o)
}

// graph resolves one query.
type graph struct {
	c         *call
	doc       *ast.QueryDocument
	op        *ast.OperationDefinition
	variables map[string]any
	errors    []any
}

func (g *graph) fail(kind, message string) {
	g.errors = append(g.errors, object{"type": kind, "message": message})
}

// resolve returns the selected fields of an object.
func (g *graph) resolve(set ast.SelectionSet, of object, kind string) object {
	out := object{}
	for _, s := range set {
		switch s := s.(type) {
		case *ast.Field:
			out[s.Alias] = g.field(s, of, kind)
		case *ast.InlineFragment:
			if is, _ := of["__typename"].(string); s.TypeCondition == "" || is == "" || is == s.TypeCondition {
				for k, v := range g.resolve(s.SelectionSet, of, kind) {
					out[k] = v
				}
			}
		case *ast.FragmentSpread:
			if f := g.doc.Fragments.ForName(s.Name); f != nil {
				for k, v := range g.resolve(f.SelectionSet, of, kind) {
					out[k] = v
				}
			}
		}
	}
	return out
}

// field returns the value of one field.
func (g *graph) field(f *ast.Field, of object, kind string) any {
	v, known := of[f.Name]
	if !known {
		g.fail("undefinedField", fmt.Sprintf("Field '%s' doesn't exist on type '%s'", f.Name, kind))
		return nil
	}
	if do, is := v.(resolver); is {
		args := map[string]any{}
		for _, a := range f.Arguments {
			args[a.Name], _ = a.Value.Value(g.withDefaults())
		}
		v = do(args)
	}
	switch v := v.(type) {
	case object:
		if v == nil {
			return nil
		}
		return g.resolve(f.SelectionSet, v, f.Name)
	case []object:
		list := []any{}
		for _, o := range v {
			list = append(list, g.resolve(f.SelectionSet, o, f.Name))
		}
		return list
	}
	return v
}

// withDefaults returns the variables of the request, and the defaults of those that are missing.
func (g *graph) withDefaults() map[string]any {
	all := map[string]any{}
	for _, d := range g.op.VariableDefinitions {
		if d.DefaultValue != nil {
			all[d.Variable], _ = d.DefaultValue.Value(nil)
		}
	}
	for k, v := range g.variables {
		all[k] = v
	}
	return all
}

// repository returns a repository that the token may read.
func (g *graph) repository(args map[string]any) any {
	owner, _ := args["owner"].(string)
	name, _ := args["name"].(string)
	g.c.values = map[string]string{"owner": owner, "repo": name}
	if a := g.c.enter(&route{name: "POST /graphql", access: onRepo, permissions: readPulls}); a != nil {
		g.fail("NOT_FOUND", fmt.Sprintf("Could not resolve to a Repository with the name '%s/%s'.", owner, name))
		return object(nil)
	}
	s, r := g.c.s, g.c.repo
	full := s.Account + "/" + r.name
	return object{
		"id": node("R", r.id), "name": r.name, "nameWithOwner": full, "url": s.URL() + "/" + full, "description": "",
		"isPrivate": !r.public, "isFork": false,
		"owner": s.ownerNode(s.user(s.Account, "Organization")), "hasIssuesEnabled": true,
		"defaultBranchRef": object{"name": r.main}, "parent": object(nil),
		"pullRequest": resolver(func(args map[string]any) any {
			n, _ := strconv.Atoi(fmt.Sprint(args["number"]))
			if p := r.pull(n); p != nil {
				return s.pullNode(p)
			}
			g.fail("NOT_FOUND", fmt.Sprintf("Could not resolve to a PullRequest with the number of %d.", n))
			return object(nil)
		}),
		"pullRequests": resolver(func(args map[string]any) any {
			var list []object
			head, _ := args["headRefName"].(string)
			states := fmt.Sprint(args["states"])
			for _, p := range slices.Backward(r.pulls) {
				if (head == "" || p.head == head) && (args["states"] == nil || strings.Contains(states, p.graphState())) {
					list = append(list, s.pullNode(p))
				}
			}
			return connection(list)
		}),
	}
}

// resolveThread returns the mutation that resolves threads, or opens them again. An App needs to write pull requests and contents.
func (g *graph) resolveThread(resolved bool) resolver {
	return func(args map[string]any) any {
		input, _ := args["input"].(map[string]any)
		id := fmt.Sprint(input["threadId"])
		for _, r := range g.c.s.state.repos {
			for _, p := range r.pulls {
				for _, top := range p.lines {
					if top.reply != 0 || node("PRRT", top.id) != id {
						continue
					}
					g.c.values = map[string]string{"owner": g.c.s.Account, "repo": r.name}
					if g.c.enter(&route{name: "POST /graphql", access: onRepo, permissions: writeContents}) != nil ||
						!g.c.who.may("pull_requests=write") || !g.c.who.may("contents=write") {
						g.fail("FORBIDDEN", "Resource not accessible by integration")
						return object(nil)
					}
					g.c.s.resolveThread(top, g.c.who.user, resolved)
					return object{"thread": g.c.s.threadNode(top)}
				}
			}
		}
		g.fail("NOT_FOUND", fmt.Sprintf("Could not resolve to a node with the global id of '%s'", id))
		return object(nil)
	}
}

// connection returns a page with all of a list.
func connection(list []object) object {
	return object{"nodes": list, "totalCount": len(list), "pageInfo": object{"hasNextPage": false, "endCursor": nil}}
}

// graphState returns the state of a pull request by GraphQL.
func (p *pullRequest) graphState() string {
	if p.merged {
		return "MERGED"
	}
	return strings.ToUpper(p.state)
}

// ownerNode returns an account by GraphQL. s.mu is held.
func (s *Server) ownerNode(u *user) object {
	if u == nil {
		return nil
	}
	return object{"__typename": u.kind, "id": node("U", u.id), "login": u.login, "name": u.login,
		"url": s.URL() + "/" + u.login}
}

// pullNode returns a pull request by GraphQL. s.mu is held.
func (s *Server) pullNode(p *pullRequest) object {
	added, removed, files := s.diffSize(p)
	var labels, comments, reviews, requests []object
	for _, name := range p.labels {
		labels = append(labels, object{"id": node("LA", 1), "name": name, "description": "", "color": "ededed"})
	}
	for _, k := range p.comments {
		comments = append(comments,
			object{"id": node("IC", k.id), "author": s.ownerNode(k.user), "authorAssociation": "MEMBER", "body": k.body,
				"createdAt": stamp(k.created), "includesCreatedEdit": false, "isMinimized": false, "minimizedReason": nil,
				"reactionGroups": []object{},
				"url":            s.pullPage(p) + "#issuecomment-" + strconv.FormatInt(k.id, 10), "viewerDidAuthor": false})
	}
	for _, v := range p.reviews {
		reviews = append(reviews, object{"id": node("PRR", v.id), "author": s.ownerNode(v.user),
			"authorAssociation": "MEMBER", "submittedAt": stamp(v.submitted),
			"body": v.body, "state": strings.ToUpper(v.state), "commit": object{"oid": v.commit},
			"reactionGroups": []object{}})
	}
	for _, u := range p.requested {
		requests = append(requests, object{"requestedReviewer": s.ownerNode(u)})
	}
	var threads []object
	for _, c := range p.lines {
		if c.reply == 0 {
			threads = append(threads, s.threadNode(c))
		}
	}
	head := object{"oid": p.headSHA, "statusCheckRollup": s.rollup(p)}
	mergeable := "UNKNOWN"
	if p.examined == p.headSHA+p.r.heads[p.base] {
		mergeable = map[bool]string{true: "MERGEABLE", false: "CONFLICTING"}[p.mergeable]
	}
	commits := connection([]object{{"commit": head}})
	commits["totalCount"] = len(s.commitsOf(p))
	return object{
		"id": node("PR", p.id), "number": p.number, "url": s.pullPage(p), "title": p.title, "state": p.graphState(),
		"body": p.body, "isDraft": p.draft,
		"author": s.ownerNode(p.author), "maintainerCanModify": false, "mergeable": mergeable,
		"mergeStateStatus": "CLEAN", "additions": added, "deletions": removed, "changedFiles": files,
		"baseRefName": p.base, "headRefName": p.head, "headRefOid": p.headSHA, "isCrossRepository": false,
		"headRepository": object{"id": node("R", p.r.id), "name": p.r.name,
			"nameWithOwner": s.Account + "/" + p.r.name},
		"headRepositoryOwner": s.ownerNode(s.user(s.Account, "Organization")),
		"createdAt":           stamp(p.created), "updatedAt": stamp(p.updated), "closedAt": stamp(p.closed),
		"mergedAt": stamp(p.mergedAt()), "closed": p.state == "closed",
		"reviewDecision": "", "reviewRequests": connection(requests), "reviews": connection(reviews),
		"latestReviews": connection(reviews), "reviewThreads": connection(threads),
		"assignees": connection(nil), "labels": connection(labels), "projectCards": connection(nil),
		"milestone": object(nil),
		"comments":  connection(comments), "reactionGroups": []object{}, "commits": commits,
	}
}

// rollup returns the checks of a pull request's commit by GraphQL. s.mu is held.
func (s *Server) rollup(p *pullRequest) object {
	var contexts []object
	for _, k := range p.r.checks {
		if k.sha == p.headSHA {
			contexts = append(contexts, object{"__typename": "CheckRun", "name": k.name,
				"status": strings.ToUpper(k.status), "conclusion": strings.ToUpper(k.conclusion),
				"startedAt": stamp(k.started), "completedAt": stamp(k.completed), "detailsUrl": s.pullPage(p) + "/checks",
				"checkSuite": object{"workflowRun": object(nil)}})
		}
	}
	if contexts == nil {
		return nil
	}
	return object{"contexts": connection(contexts)}
}

// graphType answers the introspection by which the GitHub CLI finds the abilities of an Enterprise Server.
func graphType(args map[string]any) any {
	var list []object
	if args["name"] == "PullRequest" {
		for _, name := range []string{"isDraft", "reviewDecision", "statusCheckRollup"} {
			list = append(list, object{"name": name})
		}
	}
	return object{"name": args["name"], "fields": resolver(func(map[string]any) any { return list })}
}
