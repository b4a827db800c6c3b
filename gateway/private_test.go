package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/people"
	"github.com/ramus-dev/ramus/gateway/privacy"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
)

// withPrivacy lets work on a server be private.
func withPrivacy(t *testing.T) func(*gateway.Server) {
	return func(s *gateway.Server) {
		s.Privacy = &privacy.Store{Options: people.Options{Git: s.Git,
			Committer: gitd.Person{Name: "ramus", Email: "ramus@example.org"}}}
		if err := s.Privacy.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Git.Veil = s.Privacy.Veil
	}
}

// onlooker is somebody who looks for a private workspace.
type onlooker struct {
	name    string
	token   string
	browser *signed
	key     string // file of a key for SSH
	socket  bool   // uses the unix socket
	sees    bool
}

// hidden is a private workspace, and the people who look for it.
type hidden struct {
	*rooms
	workspace.Workspace
	objects map[string]string // by kind, the names of objects that only the workspace has
	ssh     string            // address of the Git server
}

// sign is in the names and files of the private workspace, and nowhere else.
const sign = "umbra"

// openHidden makes a private workspace of the person oidc:...:ada, with a commit on its branch.
func openHidden(t *testing.T) (*hidden, []onlooker) {
	t.Helper()
	h := &hidden{rooms: openWith(t, false, coder, func(s *gateway.Server) {
		withPeople(t)(s)
		withPrivacy(t)(s)
		withEngineer(t)(s)
	})}
	h.repo(t, "team/app")
	ada, bob, boss := h.person(t, "ada", route.RoleMember, nil), h.person(t, "bob", route.RoleMember, nil),
		h.person(t, "boss", route.RoleAdmin, nil)
	eve := h.person(t, "eve", route.RoleViewer, map[string]route.Role{"team/app": route.RoleAdmin})
	of := func(subject string, scopes ...string) string {
		return h.token(t, gitd.Grant{Subject: subject, Repo: "*", Scopes: scopes})
	}
	inside := func(subject string, scopes ...string) string {
		return h.token(t, gitd.Grant{Subject: subject, Repo: "team/app", Scopes: scopes})
	}
	browser := func(name, id string) *signed { return &signed{name: name, id: id} }
	onlookers := []onlooker{
		{name: "its owner", token: of(ada, "write"), browser: browser("ada", ada), sees: true},
		{name: "an administrator", token: of(boss, "admin"), browser: browser("boss", boss), sees: true},
		{name: "the unix socket", socket: true, sees: true},
		{name: "another member", token: of(bob, "write"), browser: browser("bob", bob), key: "bob"},
		{name: "an administrator of the repository", token: inside(eve, "admin"), browser: browser("eve", eve)},
		{name: "a reader", token: of("reader", "read"), key: "ramus-read-only reader"},
		{name: "a writer of one repository", token: inside("writer", "write")},
		{name: "a bearer with refs", token: h.token(t, gitd.Grant{Subject: "refs", Repo: "*", Scopes: []string{"write"},
			Read: []string{"refs/*"}, Write: []string{"refs/heads/ramus/*", "refs/ramus/*"}}), key: `ramus-refs="refs/heads/ramus/*" refs`},
	}
	status, body := h.ask(t, false, onlookers[0].token, "POST", "/api/workspaces",
		`{"repository":"team/app","name":"umbra","private":true,"key":"k"}`)
	if err := json.Unmarshal([]byte(body), &h.Workspace); err != nil || status != 201 || !h.Private || h.Owner.ID != ada {
		t.Fatal(status, body, err)
	}
	h.commit(t)
	h.listen(t, onlookers)
	return h, onlookers
}

// commit adds a commit to the branch of the workspace, and finds the objects that only it has.
func (h *hidden) commit(t *testing.T) {
	t.Helper()
	repo, err := h.Git.Repo("team/app")
	if err != nil {
		t.Fatal(err)
	}
	main, err := repo.Resolve(t.Context(), "main")
	if err != nil {
		t.Fatal(err)
	}
	a := gitd.Person{Name: "A", Email: "a@example.org"}
	head, err := repo.WriteCommit(t.Context(), gitd.NewCommit{Parents: []gitd.Hash{main}, Author: a, Committer: a, When: h.Now(),
		Message: sign, Put: []gitd.File{{Path: sign + "/file", Content: []byte(sign + " text\n")}}})
	if err == nil {
		err = repo.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/ramus/run-umbra", New: head})
	}
	if err != nil {
		t.Fatal(err)
	}
	h.objects = map[string]string{"commit": string(head)}
	for kind, rev := range map[string]string{"tree": string(head) + ":" + sign, "blob": string(head) + ":" + sign + "/file",
		"record": "refs/ramus/runs/run-umbra"} {
		args := []string{"-C", repo.Dir(), "rev-parse", rev}
		if kind == "record" {
			args = []string{"-C", repo.Dir(), "for-each-ref", "--count=1", "--format=%(objectname)", rev}
		}
		out, err := exec.Command("git", args...).Output()
		if err != nil || len(out) < 40 {
			t.Fatal(kind, string(out), err)
		}
		h.objects[kind] = strings.TrimSpace(string(out))
	}
}

// listen serves git by SSH for those who have a key.
func (h *hidden) listen(t *testing.T, onlookers []onlooker) {
	t.Helper()
	dir := t.TempDir()
	var lines strings.Builder
	for i := range onlookers {
		if options := onlookers[i].key; options != "" {
			onlookers[i].key = filepath.Join(dir, fmt.Sprint(i))
			name := options[strings.LastIndexByte(options, ' ')+1:]
			lines.WriteString(strings.TrimSuffix(options, name) + sshKey(t, onlookers[i].key) + " " + name + "\n")
		}
	}
	h.Git.AuthorizedKeys = filepath.Join(dir, "authorized_keys")
	if err := os.WriteFile(h.Git.AuthorizedKeys, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.ssh = l.Addr().String()
	serveSSH(t, h.rooms, l)
}

// get returns the answer to a request of an onlooker.
func (h *hidden) get(t *testing.T, who onlooker, method, path, body string) (int, string) {
	t.Helper()
	return h.ask(t, who.socket, who.token, method, path, body)
}

// page returns a page as its browser gets it.
func (h *hidden) page(t *testing.T, who onlooker, path string) (int, string) {
	t.Helper()
	if status, _ := h.browse(t, who.browser, "GET", "/settings", "", ""); status != 200 { // begins the session
		t.Fatal(who.name, status)
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", h.web.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.AddCookie(&http.Cookie{Name: route.SessionCookieLoopback, Value: who.browser.cookie})
	resp, err := h.web.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// way is a way to see a private workspace. look reports whether it was seen, and returns what was seen.
type way struct {
	name string
	fits func(onlooker) bool
	look func(t *testing.T, h *hidden, who onlooker) (bool, string)
}

func byToken(who onlooker) bool { return who.token != "" || who.socket }
func byPage(who onlooker) bool  { return who.browser != nil }
func bySSH(who onlooker) bool   { return who.key != "" }

// ways lists all ways: every route that names the workspace or its run, lists, git by both protocols, by names and by
// hashes, tools, pages and sockets.
func (h *hidden) ways() (list []way) {
	names := strings.NewReplacer("run:subject", "run:umbra", "run-subject", "run-umbra", "/RUN", "/"+url.PathEscape(h.Last),
		"NAME", h.Last)
	for key, row := range expected {
		path := names.Replace(row.path)
		if path == row.path {
			continue
		}
		method, _, _ := strings.Cut(key, " ")
		if row.access == route.AccessPage || row.access == route.AccessSocket {
			list = append(list, way{key, func(who onlooker) bool { return byPage(who) && !who.sees },
				func(t *testing.T, h *hidden, who onlooker) (bool, string) {
					status, to := h.browse(t, who.browser, method, path, row.body, h.web.URL)
					return status != 404, fmt.Sprint(status, to)
				}})
			continue
		}
		list = append(list, way{key, func(who onlooker) bool { return byToken(who) && !who.sees },
			func(t *testing.T, h *hidden, who onlooker) (bool, string) {
				status, body := h.get(t, who, method, path, row.body)
				refused := status == 404 || status == 403 && (who.name == "a reader" || strings.Contains(key, "{pass}"))
				return !refused || strings.Contains(body, "private"), fmt.Sprint(status, body)
			}})
	}
	head := h.objects["commit"]
	for _, path := range []string{"/api/workspaces/run-umbra", "/api/callers/umbra", "/api/runs/" + url.PathEscape(h.Last),
		"/api/repos/team%2Fapp/log?rev=ramus/run-umbra", "/api/repos/team%2Fapp/diff?to=ramus/run-umbra",
		"/api/repos/team%2Fapp/log?rev=" + head, "/api/repos/team%2Fapp/tree?rev=" + head[:12],
		"/api/repos/team%2Fapp/file?path=umbra/file&rev=" + head,
		"/api/why?path=umbra/file&of=run:umbra", "/api/why?repo=team%2Fapp&path=umbra/file&of=umbra",
		"/api/why?repo=team%2Fapp&path=umbra/file&of=" + head, "/api/radar?repo=team%2Fapp&of=umbra"} {
		list = append(list, way{"GET " + path, byToken, func(t *testing.T, h *hidden, who onlooker) (bool, string) {
			status, body := h.get(t, who, "GET", path, "")
			return status != 404, fmt.Sprint(status, body)
		}})
	}
	for path, full := range map[string]bool{"/api/workspaces": true, "/api/callers": true, "/api/runs": true,
		"/api/repos/team%2Fapp": false, "/api/radar?repo=team%2Fapp": false, "/api/repos": false, "/api/nodes/local/events": false, "/api/tasks": false} {
		list = append(list, way{"list " + path, func(who onlooker) bool { return byToken(who) && (full || !who.sees) },
			func(t *testing.T, h *hidden, who onlooker) (bool, string) {
				status, body := h.get(t, who, "GET", path, "")
				return status != 200 || strings.Contains(body, sign), fmt.Sprint(status, body)
			}})
	}
	for path, bodies := range map[string][]string{
		"/api/callers/new/exec": {`{"fork":{"of":"run:umbra"},"command":{"shell":"true"}}`},
		"/api/bisect": {`{"of":"run:umbra","command":{"shell":"true"},"dry":true}`,
			`{"of":"main","repo":"team/app","good":"main","bad":"` + head + `","command":{"shell":"true"},"dry":true}`},
		"/api/forks":      {`{"of":"run:umbra"}`, `{"of":"` + h.Last + `@exec","dry":true}`},
		"/api/workspaces": {`{"from":"run-umbra"}`, `{"repository":"team/app","base":"ramus/run-umbra"}`},
		"/api/runs":       {`{"repo":"team/app","base":"ramus/run-umbra","command":{"shell":"true"}}`}} {
		for _, body := range bodies {
			list = append(list, way{"POST " + path + body, func(who onlooker) bool { return byToken(who) && !who.sees && who.name != "a reader" },
				func(t *testing.T, h *hidden, who onlooker) (bool, string) {
					status, answer := h.get(t, who, "POST", path, body)
					return status != 404 && status != 422, fmt.Sprint(status, answer)
				}})
		}
	}
	return append(append(list, h.gitWays()...), h.openWays()...)
}

// gitWays lists the ways by stock git.
func (h *hidden) gitWays() (list []way) {
	for _, door := range []string{"HTTP", "SSH"} {
		client := func(who onlooker) *gitClient {
			if door == "SSH" {
				return &gitClient{url: "ssh://git@" + h.ssh + "/team/app.git", env: []string{
					"GIT_SSH_COMMAND=ssh -F /dev/null -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -i " + who.key}}
			}
			return &gitClient{url: h.web.URL + "/team/app.git", config: []string{"-c", "http.extraHeader=Authorization: Bearer " + who.token}}
		}
		fits := map[string]func(onlooker) bool{"HTTP": func(who onlooker) bool { return who.token != "" }, "SSH": bySSH}[door]
		for _, version := range []string{"0", "2"} {
			list = append(list, way{"ls-remote, " + door + " " + version, fits, func(t *testing.T, h *hidden, who onlooker) (bool, string) {
				out, err := client(who).run(t.TempDir(), "-c", "protocol.version="+version, "ls-remote", client(who).url)
				if err != nil || !strings.Contains(out, "refs/heads/") && who.name != "a bearer with refs" {
					t.Errorf("%s: %v %s", who.name, err, out)
				}
				return strings.Contains(out, sign), out
			}})
			for _, what := range []string{"refs/heads/ramus/run-umbra", "commit", "tree", "blob", "record"} {
				if what != "commit" && version == "0" || what == "record" && door == "SSH" {
					continue // protocol 0 fetches commits and names, which are tried
				}
				list = append(list, way{"fetch " + what + ", " + door + " " + version, fits,
					func(t *testing.T, h *hidden, who onlooker) (bool, string) {
						dir, rev := t.TempDir(), what
						if h.objects[what] != "" {
							rev = h.objects[what]
						}
						if out, err := client(who).run(dir, "init", "-q"); err != nil {
							t.Fatal(err, out)
						}
						out, err := client(who).run(dir, "-c", "protocol.version="+version, "fetch", "-q", client(who).url, rev)
						return err == nil, out
					}})
			}
		}
		list = append(list, way{"push, " + door, func(who onlooker) bool { return fits(who) && !who.sees && who.name != "a reader" },
			func(t *testing.T, h *hidden, who onlooker) (bool, string) {
				dir, g := t.TempDir(), client(who)
				for _, args := range [][]string{{"init", "-q"}, {"commit", "-q", "--allow-empty", "-m", "x"}} {
					if out, err := g.run(dir, args...); err != nil {
						t.Fatal(err, out)
					}
				}
				out, err := g.run(dir, "push", "-q", g.url, "HEAD:refs/heads/ramus/run-umbra")
				return err == nil || strings.Contains(out, "fetch first") || strings.Contains(out, "non-fast-forward"), out
			}})
	}
	return list
}

// openWays lists the ways by tools, pages and sockets.
func (h *hidden) openWays() (list []way) {
	for tool, args := range map[string]any{"get_run": map[string]any{"run": h.Last}, "list_active_tasks": map[string]any{},
		"why":                 map[string]any{"of": "run:umbra", "path": sign + "/file", "line": 1},
		"resume_code_session": map[string]any{"caller": "run:umbra", "prompt": "go on"}} {
		list = append(list, way{"MCP " + tool,
			func(who onlooker) bool {
				return byToken(who) && !who.sees && (tool != "resume_code_session" || who.name != "a reader")
			},
			func(t *testing.T, h *hidden, who onlooker) (bool, string) {
				result, err := h.assistant(t, who.token, who.socket, nil).CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
				if err != nil {
					return true, err.Error()
				}
				text := InlineText(result)
				return !result.IsError && strings.Contains(text, sign), text
			}})
	}
	for path, full := range map[string]bool{"/dashboard": false, "/workspaces": true, "/workspaces?q=workspace": true,
		"/workspaces/run-umbra": true, "/repos/team%2Fapp": true, "/nodes/local": false, "/tasks": false} {
		list = append(list, way{"page " + path, func(who onlooker) bool { return byPage(who) && (full || !who.sees) },
			func(t *testing.T, h *hidden, who onlooker) (bool, string) {
				status, body := h.page(t, who, path)
				if strings.Contains(path, "run-umbra") {
					return status != 404, fmt.Sprint(status)
				}
				return status != 200 || strings.Contains(body, sign), fmt.Sprint(status, body)
			}})
	}
	return append(list, way{"live page", byPage, func(t *testing.T, h *hidden, who onlooker) (bool, string) {
		h.page(t, who, "/settings")
		d := websocket.Dialer{Subprotocols: []string{live.Protocol}}
		conn, _, err := d.Dial("ws"+strings.TrimPrefix(h.web.URL, "http")+"/live", http.Header{"Origin": {h.web.URL},
			"Cookie": {route.SessionCookieLoopback + "=" + who.browser.cookie}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		if err := conn.WriteJSON(map[string]string{"sub": "/workspaces/run-umbra"}); err != nil {
			t.Fatal(err)
		}
		_, text, err := conn.ReadMessage()
		return err != nil || !strings.Contains(string(text), `"status":404`), string(text)
	}}, way{"terminal of a page", byPage, func(t *testing.T, h *hidden, who onlooker) (bool, string) {
		h.page(t, who, "/settings")
		_, resp, _ := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(h.web.URL, "http")+"/workspaces/run-umbra/shell",
			http.Header{"Origin": {h.web.URL}, "Cookie": {route.SessionCookieLoopback + "=" + who.browser.cookie}})
		if resp == nil {
			return true, "no answer"
		}
		return resp.StatusCode != 404, resp.Status
	}})
}

// TestPrivateWorkspace has everybody look for a private workspace in every way. It exists for its owner and for
// administrators alone, also after a restart and after the index is rebuilt, until its owner shows it.
func TestPrivateWorkspace(t *testing.T) {
	t.Parallel()
	h, onlookers := openHidden(t)
	look := func(state string, ways []way) {
		t.Helper()
		for _, w := range ways {
			for _, who := range onlookers {
				if !w.fits(who) {
					continue
				}
				if seen, what := w.look(t, h, who); seen != who.sees {
					t.Errorf("%s, %s, by %s: seen: %t: %.600s", state, who.name, w.name, seen, what)
				}
			}
		}
	}
	look("private", h.ways())

	if _, err := h.Executor.Reindex(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := &privacy.Store{Options: people.Options{Git: h.Git,
		Committer: gitd.Person{Name: "ramus", Email: "ramus@example.org"}}}
	if err := again.Open(t.Context()); err != nil || !again.IsPrivate(h.Caller) {
		t.Errorf("it is not private after a restart: %v", err)
	}
	look("indexed again", h.openWays())
	if status, body := h.ask(t, false, onlookers[0].token, "PATCH", "/api/workspaces/run-umbra",
		`{"private":false}`); status != 200 {
		t.Errorf("the owner cannot show it: %d %s", status, body)
	}
	for i := range onlookers {
		onlookers[i].sees = true
	}
	look("shown", h.openWays())
}

// TestPrivateInSlack has somebody in Slack name a private workspace. Threads have no veil, so they name no other work.
func TestPrivateInSlack(t *testing.T) {
	t.Parallel()
	k := openTalk(t, false, nil)
	caller, err := record.RunCaller("umbra")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.local.Submit(t.Context(), record.Request{Caller: caller, Repo: "app", Command: &record.Command{Shell: "true"}}); err != nil {
		t.Fatal(err)
	}
	if _, m := k.ask(owner, "", "base:ramus/run-umbra exec cat README", 1); !strings.Contains(says(m), "and no base") {
		t.Error(says(m))
	}
}

// TestPrivateForks begins callers from a private one in each way. They are private too.
func TestPrivateForks(t *testing.T) {
	t.Parallel()
	h, onlookers := openHidden(t)
	owner, bob := onlookers[0], onlookers[3]
	for path, body := range map[string]string{
		"/api/callers/run:f1/exec":      `{"fork":{"of":"umbra"},"command":{"shell":"true"}}`,
		"/api/callers/run:f2/terminals": `{"fork":{"of":"umbra"}}`,
		"/api/runs":                     `{"caller":"run:f3","fork":{"of":"umbra"},"command":{"shell":"true"}}`,
		"/api/forks":                    `{"of":"umbra","name":"f4"}`,
		"/api/workspaces":               `{"from":"run-umbra","name":"f5"}`,
		"/api/callers/new/exec":         `{"fork":{"of":"umbra"},"command":{"shell":"true"}}`,
	} {
		h.get(t, owner, "POST", path, body) // without containers it may fail later
	}
	runs, err := h.Executor.Runs(t.Context(), record.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, r := range runs {
		if r.Fork == nil {
			continue
		}
		seen++
		path := "/api/callers/" + r.Caller.String()
		if status, body := h.get(t, owner, "GET", path, ""); status != 200 {
			t.Errorf("the owner gets %d of %s: %s", status, r.Caller, body)
		}
		if status, body := h.get(t, bob, "GET", path, ""); status != 404 {
			t.Errorf("another member gets %d of %s: %s", status, r.Caller, body)
		}
	}
	if seen < 5 {
		t.Errorf("only %d forks began", seen)
	}
}
