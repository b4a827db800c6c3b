package githubtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// access is the kind of requester that may use a route, in addition to the permission.
type access string

const (
	anybody  access = "anybody"
	signed   access = "the App" // by its assertion
	known    access = "a token"
	human    access = "a user's token"
	onRepo   access = "a token for the repository"
	onlyApps access = "an installation's token for the repository"
)

// route is a route of the API. Its name is the method and the path, as in GitHub's documents.
type route struct {
	name   string
	access access
	// one of these permissions is sufficient, "pull_requests=write"; empty means that any token is
	permissions []string
	serve       func(*call) answer
}

// The permissions of several routes.
var (
	readPulls     = []string{"pull_requests=read"}
	writePulls    = []string{"pull_requests=write"}
	readIssues    = []string{"issues=read", "pull_requests=read"}
	writeIssues   = []string{"issues=write", "pull_requests=write"}
	readContents  = []string{"contents=read"}
	writeContents = []string{"contents=write"}
	readMetadata  = []string{"metadata=read"}
	readChecks    = []string{"checks=read"}
	writeChecks   = []string{"checks=write"}
	readStatuses  = []string{"statuses=read"}
	writeStatuses = []string{"statuses=write"}
	readActions   = []string{"actions=read"}
)

// routes is the API. The first match is used.
var routes = []route{
	{"GET /app", signed, nil, (*call).app},
	{"GET /app/installations", signed, nil, (*call).installations},
	{"GET /app/installations/{installation_id}", signed, nil, (*call).installation},
	{"POST /app/installations/{installation_id}/access_tokens", signed, nil, (*call).mint},
	{"GET /app/hook/deliveries", signed, nil, (*call).hookDeliveries},
	{"POST /app/hook/deliveries/{delivery_id}/attempts", signed, nil, (*call).hookAttempt},
	{"GET /repos/{owner}/{repo}/installation", signed, nil, (*call).installation},
	{"GET /installation/repositories", known, readMetadata, (*call).installationRepos},

	{"POST /graphql", known, nil, (*call).graphQL},
	{"GET /rate_limit", known, nil, (*call).rateLimit},
	{"GET /user", human, nil, (*call).me},
	{"GET /user/emails", human, nil, (*call).emails},
	{"GET /user/orgs", human, nil, (*call).orgs},
	{"GET /user/repos", human, readMetadata, (*call).userRepos},
	{"GET /user/installations", human, nil, (*call).userInstallations},
	{"GET /user/installations/{installation_id}/repositories", human, nil, (*call).installationRepos},
	{"GET /users/{username}", known, nil, (*call).anyUser},
	{"GET /orgs/{org}/repos", known, readMetadata, (*call).userRepos},

	{"GET /repos/{owner}/{repo}", onRepo, readMetadata, (*call).getRepo},
	{"GET /repos/{owner}/{repo}/collaborators/{username}/permission", onRepo, readMetadata, (*call).permission},
	{"GET /repos/{owner}/{repo}/branches", onRepo, readContents, (*call).branches},
	{"GET /repos/{owner}/{repo}/branches/{branch}", onRepo, readContents, (*call).branch},
	{"GET /repos/{owner}/{repo}/git/ref/{ref...}", onRepo, readContents, (*call).getRef},
	{"DELETE /repos/{owner}/{repo}/git/refs/{ref...}", onRepo, writeContents, (*call).deleteRef},
	{"GET /repos/{owner}/{repo}/commits/{ref}", onRepo, readContents, (*call).commit},
	{"GET /repos/{owner}/{repo}/commits/{ref}/pulls", onRepo, readPulls, (*call).commitPulls},
	{"GET /repos/{owner}/{repo}/commits/{ref}/check-runs", onRepo, readChecks, (*call).checksOf},
	{"GET /repos/{owner}/{repo}/commits/{ref}/status", onRepo, readStatuses, (*call).status},
	{"POST /repos/{owner}/{repo}/statuses/{ref}", onRepo, writeStatuses, (*call).createStatus},
	{"POST /repos/{owner}/{repo}/check-runs", onlyApps, writeChecks, (*call).createCheck},
	{"GET /repos/{owner}/{repo}/check-runs/{check_run_id}", onRepo, readChecks, (*call).getCheck},
	{"PATCH /repos/{owner}/{repo}/check-runs/{check_run_id}", onlyApps, writeChecks, (*call).editCheck},
	{"GET /repos/{owner}/{repo}/actions/runs", onRepo, readActions, (*call).workflowRuns},
	{"GET /repos/{owner}/{repo}/actions/runs/{run_id}", onRepo, readActions, (*call).workflowRun},

	{"GET /repos/{owner}/{repo}/pulls", onRepo, readPulls, (*call).pulls},
	{"POST /repos/{owner}/{repo}/pulls", onRepo, writePulls, (*call).createPull},
	{"GET /repos/{owner}/{repo}/pulls/comments", onRepo, readPulls, (*call).allLineComments},
	{"GET /repos/{owner}/{repo}/pulls/comments/{comment_id}", onRepo, readPulls, (*call).getLineComment},
	{"PATCH /repos/{owner}/{repo}/pulls/comments/{comment_id}", onRepo, writePulls, (*call).editLineComment},
	{"DELETE /repos/{owner}/{repo}/pulls/comments/{comment_id}", onRepo, writePulls, (*call).deleteLineComment},
	{"GET /repos/{owner}/{repo}/pulls/{pull_number}", onRepo, readPulls, (*call).getPull},
	{"PATCH /repos/{owner}/{repo}/pulls/{pull_number}", onRepo, writePulls, (*call).editPull},
	{"GET /repos/{owner}/{repo}/pulls/{pull_number}/commits", onRepo, readPulls, (*call).pullCommits},
	{"GET /repos/{owner}/{repo}/pulls/{pull_number}/files", onRepo, readPulls, (*call).pullFiles},
	{"GET /repos/{owner}/{repo}/pulls/{pull_number}/merge", onRepo, readContents, (*call).isMerged},
	{"PUT /repos/{owner}/{repo}/pulls/{pull_number}/merge", onRepo, writeContents, (*call).mergePull},
	{"GET /repos/{owner}/{repo}/pulls/{pull_number}/comments", onRepo, readPulls, (*call).lineComments},
	{"POST /repos/{owner}/{repo}/pulls/{pull_number}/comments", onRepo, writePulls, (*call).createLineComment},
	{"POST /repos/{owner}/{repo}/pulls/{pull_number}/comments/{comment_id}/replies", onRepo, writePulls,
		(*call).createReply},
	{"GET /repos/{owner}/{repo}/pulls/{pull_number}/requested_reviewers", onRepo, readPulls, (*call).requested},
	{"POST /repos/{owner}/{repo}/pulls/{pull_number}/requested_reviewers", onRepo, writePulls, (*call).request},
	{"DELETE /repos/{owner}/{repo}/pulls/{pull_number}/requested_reviewers", onRepo, writePulls, (*call).unrequest},
	{"GET /repos/{owner}/{repo}/pulls/{pull_number}/reviews", onRepo, readPulls, (*call).reviews},
	{"POST /repos/{owner}/{repo}/pulls/{pull_number}/reviews", onRepo, writePulls, (*call).createReview},
	{"GET /repos/{owner}/{repo}/pulls/{pull_number}/reviews/{review_id}", onRepo, readPulls, (*call).getReview},
	{"GET /repos/{owner}/{repo}/pulls/{pull_number}/reviews/{review_id}/comments", onRepo, readPulls,
		(*call).reviewComments},
	{"PUT /repos/{owner}/{repo}/pulls/{pull_number}/reviews/{review_id}/dismissals", onRepo, writePulls, (*call).dismiss},

	{"GET /repos/{owner}/{repo}/issues/comments/{comment_id}", onRepo, readIssues, (*call).getComment},
	{"PATCH /repos/{owner}/{repo}/issues/comments/{comment_id}", onRepo, writeIssues, (*call).editComment},
	{"DELETE /repos/{owner}/{repo}/issues/comments/{comment_id}", onRepo, writeIssues, (*call).deleteComment},
	{"GET /repos/{owner}/{repo}/issues/{issue_number}", onRepo, readIssues, (*call).getIssue},
	{"GET /repos/{owner}/{repo}/issues/{issue_number}/comments", onRepo, readIssues, (*call).comments},
	{"POST /repos/{owner}/{repo}/issues/{issue_number}/comments", onRepo, writeIssues, (*call).createComment},
	{"GET /repos/{owner}/{repo}/issues/{issue_number}/labels", onRepo, readIssues, (*call).labels},
	{"POST /repos/{owner}/{repo}/issues/{issue_number}/labels", onRepo, writeIssues, (*call).addLabels},
	{"DELETE /repos/{owner}/{repo}/issues/{issue_number}/labels/{name}", onRepo, writeIssues, (*call).removeLabel},
}

// call is one request to the API.
type call struct {
	s      *Server
	r      *http.Request
	body   []byte
	values map[string]string // of the path
	who    *actor            // nil for the App itself
	repo   *repository       // for routes that have one
	lost   bool              // the response is not sent
	header http.Header       // of the response, in addition to its own
}

type object = map[string]any

// answer is a response.
type answer struct {
	status int
	kind   string // default JSON
	header http.Header
	body   []byte
	sent   bool // already
}

// refusal is a response that refuses a request.
type refusal struct {
	status  int
	message string
	errors  []any
	docs    string
}

func (f *refusal) Error() string {
	if len(f.errors) == 0 {
		return fmt.Sprintf("%d %s", f.status, f.message)
	}
	b, _ := json.Marshal(f.errors) // of strings and maps
	return fmt.Sprintf("%d %s: %s", f.status, f.message, b)
}

const docs = "https://docs.github.com/rest"

func (f *refusal) answer() answer {
	o := object{"message": f.message, "documentation_url": docs, "status": strconv.Itoa(f.status)}
	if f.docs != "" {
		o["documentation_url"] = f.docs
	}
	if f.errors != nil {
		o["errors"] = f.errors
	}
	return jsonAnswer(f.status, o)
}

func refused(status int, message string) answer {
	return (&refusal{status: status, message: message}).answer()
}

// invalid is "Validation Failed". An error is an object or a string.
func invalid(errs ...any) *refusal {
	return &refusal{status: http.StatusUnprocessableEntity, message: "Validation Failed", errors: errs}
}

var (
	notFound     = &refusal{status: http.StatusNotFound, message: "Not Found"}
	unauthorized = &refusal{status: http.StatusUnauthorized, message: "Bad credentials"}
)

// failed returns the response for an error, which is a refusal's own or 500.
func failed(err error) answer {
	var f *refusal
	if errors.As(err, &f) {
		return f.answer()
	}
	return refused(http.StatusInternalServerError, err.Error())
}

func jsonAnswer(status int, v any) answer {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the types are ours
	}
	return answer{status: status, body: b}
}

func ok(v any) answer      { return jsonAnswer(http.StatusOK, v) }
func created(v any) answer { return jsonAnswer(http.StatusCreated, v) }
func nothing() answer      { return answer{status: http.StatusNoContent} }

// findRoute returns the route of a path and extracts its values.
func findRoute(method, path string, c *call) *route {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for i := range routes {
		m, pattern, _ := strings.Cut(routes[i].name, " ")
		if m != method {
			continue
		}
		if values := match(strings.Split(strings.Trim(pattern, "/"), "/"), parts); values != nil {
			c.values = values
			return &routes[i]
		}
	}
	return nil
}

// match compares a path's parts with a pattern's. The values of a number and an id are digits.
func match(pattern, parts []string) map[string]string {
	values := map[string]string{}
	for i, p := range pattern {
		name, isValue := strings.CutPrefix(p, "{")
		name = strings.TrimSuffix(name, "}")
		if rest, all := strings.CutSuffix(name, "..."); all && i < len(parts) {
			values[rest] = unescape(strings.Join(parts[i:], "/"))
			return values
		}
		switch {
		case i >= len(parts), parts[i] == "", !isValue && p != parts[i]:
			return nil
		case isValue:
			v := unescape(parts[i])
			if strings.HasSuffix(name, "_number") || strings.HasSuffix(name, "_id") {
				if _, err := strconv.ParseInt(v, 10, 64); err != nil {
					return nil
				}
			}
			values[name] = v
		}
	}
	if len(parts) != len(pattern) {
		return nil
	}
	return values
}

func unescape(part string) string {
	if text, err := url.PathUnescape(part); err == nil {
		return text
	}
	return part
}

func (c *call) value(name string) string { return c.values[name] }

// number returns a value that match has checked to be a number.
func (c *call) number(name string) int64 {
	n, _ := strconv.ParseInt(c.values[name], 10, 64) // see match
	return n
}

// nowhere responds to paths outside of the API, which are pages for people, OAuth, and 404.
func (c *call) nowhere(q *Request) answer {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	path := c.r.URL.Path
	if a, isPage := c.site(path); isPage {
		return a
	}
	if strings.HasPrefix(path, "/api/v3/") || strings.HasPrefix(path, "/repos/") || c.r.Method != http.MethodGet {
		c.s.complain("%s %s, which is no route of the API that is known here", q.Method, path)
	}
	return notFound.answer()
}

// serve serves a route. It authenticates the requester, checks the permission and the limits, and then does the work.
func (c *call) serve(rt *route, q *Request) answer {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.r.UserAgent() == "" || strings.HasPrefix(c.r.UserAgent(), "Go-http-client/") {
		// GitHub refuses a request without a User-Agent, and asks for one that names the program. Go's default does
		// not.
		s.complain("%s without a User-Agent of its own", rt.name)
		if c.r.UserAgent() == "" {
			return answer{status: http.StatusForbidden, kind: "text/html",
				body: []byte("Request forbidden by administrative rules. Please make sure your request has a User-Agent header")}
		}
	}
	if v := c.r.Header.Get("X-GitHub-Api-Version"); v != "" && v != "2022-11-28" {
		return refused(http.StatusBadRequest, "Not a supported version: "+v)
	}
	if a := c.admit(rt, q); a != nil {
		return *a
	}
	if a := c.spend(rt); a != nil {
		return *a
	}
	if c.value("owner") != "" && rt.access != signed {
		if a := c.enter(rt); a != nil {
			return c.finish(rt, *a)
		}
	}
	return c.finish(rt, rt.serve(c))
}

// admit authenticates the requester.
func (c *call) admit(rt *route, q *Request) *answer {
	s, text := c.s, credential(c.r)
	refuse := func(f *refusal) *answer { a := f.answer(); return &a }
	if rt.access == signed {
		if complaint := s.asserted(text); complaint != "" {
			s.complain("assertion: %s", complaint)
			return refuse(&refusal{status: http.StatusUnauthorized, message: complaint})
		}
		q.Who = s.Slug
		return nil
	}
	if text == "" {
		return refuse(&refusal{status: http.StatusUnauthorized, message: "Requires authentication"})
	}
	if c.who = s.actor(text); c.who == nil {
		return refuse(unauthorized)
	}
	q.Who = c.who.user.login
	forbidden := &refusal{status: http.StatusForbidden, message: "Resource not accessible by personal access token"}
	if c.who.app {
		forbidden.message = "Resource not accessible by integration"
	}
	switch {
	case rt.access == human && c.who.app, rt.access == onlyApps && !c.who.app:
		return refuse(forbidden)
	}
	if len(rt.permissions) > 0 && !slices.ContainsFunc(rt.permissions, c.who.may) {
		a := forbidden.answer()
		a.header = http.Header{"X-Accepted-Github-Permissions": {strings.Join(rt.permissions, "; ")}}
		return &a
	}
	return nil
}

// enter finds the repository, which must be one of the token's.
func (c *call) enter(rt *route) *answer {
	s := c.s
	c.repo = s.repo(c.value("repo"))
	if !strings.EqualFold(c.value("owner"), s.Account) || c.repo == nil || !s.sees(c.who, c.repo) {
		a := notFound.answer()
		return &a
	}
	if !c.who.app {
		// A reader may comment and review. A write needs its own permission.
		need := "read"
		if slices.Contains(rt.permissions, "contents=write") {
			need = "write"
		}
		if rank(c.repo.role(c.who.user)) < rank(need) {
			a := refused(http.StatusForbidden, "Must have push access to repository")
			return &a
		}
	}
	return nil
}

// sees reports whether a token covers a repository. s.mu is held.
func (s *Server) sees(who *actor, r *repository) bool {
	if who.repos != nil && !slices.ContainsFunc(who.repos, func(name string) bool { return strings.EqualFold(name, r.name) }) {
		return false
	}
	return who.app || rank(r.role(who.user)) > 0
}

// finish adds the headers of every response of the API.
func (c *call) finish(rt *route, a answer) answer {
	if a.header == nil {
		a.header = http.Header{}
	}
	for name, values := range c.header {
		a.header[name] = values
	}
	a.header.Set("X-Github-Media-Type", "github.v3; format=json")
	a.header.Set("X-Github-Api-Version-Selected", "2022-11-28")
	if len(rt.permissions) > 0 {
		a.header.Set("X-Accepted-Github-Permissions", strings.Join(rt.permissions, "; "))
	}
	if c.r.Method != http.MethodGet || a.status != http.StatusOK {
		return a
	}
	tag := fmt.Sprintf(`W/"%x"`, sha256.Sum256(a.body))
	a.header.Set("Etag", tag)
	a.header.Set("Cache-Control", "private, max-age=60, s-maxage=60")
	a.header.Set("Vary", "Accept, Authorization, Cookie, X-GitHub-OTP")
	if given := c.r.Header.Get("If-None-Match"); given == tag || strings.TrimPrefix(given, "W/") == strings.TrimPrefix(tag, "W/") {
		a.status, a.body = http.StatusNotModified, nil
		c.refund(a.header) // a response without changes is not counted
	}
	return a
}

// read decodes the body. An unknown field is a complaint, because GitHub ignores it.
func (c *call) read(into any) *answer {
	body := bytes.TrimSpace(c.body)
	if len(body) == 0 {
		return nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		a := refused(http.StatusBadRequest, "Problems parsing JSON")
		return &a
	}
	strict := json.NewDecoder(bytes.NewReader(body))
	strict.DisallowUnknownFields()
	if err := strict.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		c.s.complain("%s %s: %v", c.r.Method, c.r.URL.Path, err)
	}
	return nil
}

const (
	perPage    = 30
	mostOfPage = 100
)

// page responds with the requested page of a list.
func (c *call) page(list []any) answer { return c.pageOf("", list) }

// pageOf is page for a list in an object, under a name and next to its length.
func (c *call) pageOf(name string, list []any) answer {
	query := c.r.URL.Query()
	number := func(name string, otherwise int) int {
		if n, err := strconv.Atoi(query.Get(name)); err == nil && n > 0 {
			return n
		}
		return otherwise
	}
	if number("per_page", 0) > mostOfPage {
		c.s.complain("%s: per_page=%s, of which GitHub gives %d", c.r.URL.Path, query.Get("per_page"), mostOfPage)
	}
	size, at := min(number("per_page", perPage), mostOfPage), number("page", 1)
	last := max((len(list)+size-1)/size, 1)
	from := min((at-1)*size, len(list))
	part := list[from:min(from+size, len(list))]
	var links []string
	link := func(page int, rel string) {
		u := *c.r.URL
		query.Set("page", strconv.Itoa(page))
		u.RawQuery = query.Encode()
		links = append(links, fmt.Sprintf(`<%s%s>; rel="%s"`, c.s.URL(), u.RequestURI(), rel))
	}
	if at > 1 {
		link(min(at-1, last), "prev")
	}
	if at < last {
		link(at+1, "next")
		link(last, "last")
	}
	if at > 1 {
		link(1, "first")
	}
	if len(links) > 0 {
		c.set("Link", strings.Join(links, ", "))
	}
	if part == nil {
		part = []any{}
	}
	if name == "" {
		return ok(part)
	}
	return ok(object{"total_count": len(list), name: part})
}

// set sets a header of the response.
func (c *call) set(name, value string) {
	if c.header == nil {
		c.header = http.Header{}
	}
	c.header.Set(name, value)
}

// newer parses the query's since, the oldest time of an update. It refuses an invalid time.
func (c *call) newer() (time.Time, *answer) {
	text := c.r.URL.Query().Get("since")
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		a := refused(http.StatusUnprocessableEntity, "since is no time")
		return t, &a
	}
	return t, nil
}

// stamp formats a time as GitHub does, and the zero time as null.
func stamp(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format(time.RFC3339)
}
