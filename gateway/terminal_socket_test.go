package gateway_test

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/audit"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/session"
	"github.com/ramus-dev/ramus/gateway/terminal"
)

// page is a browser that is signed in, with the page of a workspace.
type page struct {
	t       *testing.T
	r       *rooms
	session string
	cookie  string
}

// signIn begins a session of an account.
func (r *rooms) signIn(t *testing.T, id string) *page {
	t.Helper()
	s, cookie, err := r.People.Sessions.Begin(id, session.From{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &page{t, r, s.ID, cookie}
}

func (p *page) header(origin string) http.Header {
	h := http.Header{}
	if p != nil {
		h.Set("Cookie", route.SessionCookieLoopback+"="+p.cookie)
	}
	if origin != "" {
		h.Set("Origin", origin)
	}
	return h
}

// ticket asks for a ticket for a workspace.
func (p *page) ticket(workspace string) string {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), "POST", p.r.web.URL+"/terminal/token",
		strings.NewReader(`{"workspaceId":"`+workspace+`"}`))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header = p.header(p.r.web.URL)
	resp, err := p.r.web.Client().Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	var k terminal.Token
	if err := json.NewDecoder(resp.Body).Decode(&k); err != nil || resp.StatusCode != 200 || k.Token == "" {
		p.t.Fatalf("status %d: %+v, %v", resp.StatusCode, k, err)
	}
	if strings.Contains(k.URL, k.Token) {
		p.t.Errorf("the address has the ticket: %s", k.URL)
	}
	return k.Token
}

// dial opens the socket of a workspace. Returns nil and the status if it is refused.
func (p *page) dial(t *testing.T, r *rooms, workspace, origin string) (*websocket.Conn, int) {
	t.Helper()
	d := websocket.Dialer{Subprotocols: []string{terminal.Subprotocol}, HandshakeTimeout: 10 * time.Second}
	conn, resp, err := d.DialContext(t.Context(),
		"ws"+strings.TrimPrefix(r.web.URL, "http")+"/workspaces/"+workspace+"/shell", p.header(origin))
	if resp == nil {
		t.Fatal(err)
	}
	if err != nil {
		return nil, resp.StatusCode
	}
	t.Cleanup(func() { conn.Close() })
	return conn, resp.StatusCode
}

// hello sends the first frame, and returns the kind of the problem that the server answers with.
func (p *page) hello(workspace string, f terminal.Frame) string {
	p.t.Helper()
	conn, status := p.dial(p.t, p.r, workspace, p.r.web.URL)
	if conn == nil {
		p.t.Fatalf("the socket is refused with status %d", status)
	}
	defer conn.Close()
	message, err := f.Encode()
	if err == nil {
		err = conn.WriteMessage(websocket.BinaryMessage, message)
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	}
	if err == nil {
		_, message, err = conn.ReadMessage()
	}
	if err == nil {
		f, err = terminal.Decode(message)
	}
	if err != nil || f.Type != terminal.FrameProblem {
		p.t.Fatalf("%+v, %v", f, err)
	}
	return f.Fault.Kind
}

// TestTerminalSocket tries to open a terminal as a page without each of what that needs: a session, the server's own
// Origin, and a ticket that is fresh, was not used, and is of the same session and the same workspace.
func TestTerminalSocket(t *testing.T) {
	t.Parallel()
	var late atomic.Int64 // how far the clock of tickets is ahead
	r := open(t, false, func(s *gateway.Server) {
		withPeople(t)(s)
		s.Now = func() time.Time { return time.Now().Add(time.Duration(late.Load())) }
	})
	r.repo(t, "team/app")
	r.repo(t, "other")
	for _, name := range []string{"subject", "subject-two"} { // their runs fail, because there are no containers
		c, err := record.RunCaller(name)
		if err != nil {
			t.Fatal(err)
		}
		run, err := r.local.Submit(t.Context(),
			record.Request{Caller: c, Repo: "team/app", Command: &record.Command{Shell: "true"}})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range r.local.Events(t.Context(), run.Name(), 0) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	const at = "run-subject"
	id := r.person(t, "admin", route.RoleAdmin, nil)
	admin, second := r.signIn(t, id), r.signIn(t, id)
	outsider := r.signIn(t, r.person(t, "out", route.RoleNone, map[string]route.Role{"other": route.RoleAdmin}))
	ended := r.signIn(t, id)
	if err := r.People.Sessions.End(ended.session, ""); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		page   *page
		origin string
		status int
	}{
		"nobody": {nil, r.web.URL, 401}, "without an origin": {admin, "", 403}, "another origin": {admin, "http://evil.example", 403},
		"the origin null": {admin, "null", 403}, "an ended session": {ended, r.web.URL, 401},
		"another repository": {outsider, r.web.URL, 404}, "a page": {admin, r.web.URL, 101},
	} {
		if _, status := x.page.dial(t, r, at, x.origin); status != x.status {
			t.Errorf("%s: status %d, want %d", name, status, x.status)
		}
	}

	// The terminal 9 does not exist, which only those hear who are let in.
	hello := func(ticket string) terminal.Frame {
		return terminal.Frame{Type: terminal.FrameHello, Hello: terminal.Hello{Ticket: ticket, Terminal: "9", Have: -1}}
	}
	used := admin.ticket(at)
	if kind := admin.hello(at, hello(used)); kind != string(route.KindNotFound) {
		t.Errorf("a page with a ticket: %s", kind)
	}
	old := admin.ticket(at)
	denied := map[string]terminal.Frame{"without a ticket": hello(""),
		"a ticket of nobody": hello(strings.Repeat("A", 52)),
		"a used ticket":      hello(used), "a ticket of another session": hello(second.ticket(at)),
		"a ticket of another workspace": hello(admin.ticket("run-subject-two"))}
	for name, f := range denied {
		if kind := admin.hello(at, f); kind != string(route.KindDenied) {
			t.Errorf("%s: %s", name, kind)
		}
	}
	late.Store(int64(31 * time.Second))
	if kind := admin.hello(at, hello(old)); kind != string(route.KindDenied) {
		t.Errorf("an old ticket: %s", kind)
	}
	input := terminal.Frame{Type: terminal.FrameInput, Data: []byte("id\r")}
	if kind := admin.hello(at, input); kind != string(route.KindInvalid) {
		t.Errorf("input before the hello: %s", kind)
	}

	// The end of a session ends its sockets.
	conn, _ := second.dial(t, r, at, r.web.URL)
	if err := r.People.Sessions.End(second.session, ""); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for {
		if _, _, err := conn.ReadMessage(); err != nil {
			if slow := net.Error(nil); errors.As(err, &slow) && slow.Timeout() {
				t.Error("the socket of an ended session is still open")
			}
			break
		}
	}
}

// TestTerminalAudit tests that opening and closing a terminal is in the log of actions.
func TestTerminalAudit(t *testing.T) {
	t.Parallel()
	r := open(t, true, withPeople(t))
	r.repo(t, "team/app")
	admin := r.signIn(t, r.person(t, "admin", route.RoleAdmin, nil))
	post := func(path, body string, into any) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "POST", r.web.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = admin.header(r.web.URL)
		resp, err := r.web.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s: status %d, %v: %v", path, resp.StatusCode, err, into)
		}
	}
	r.failedRun(t)
	var first, again struct{ ID string }
	post("/workspaces/run-subject/terminals", `{"key":"0123456789abcdef"}`, &first)
	post("/workspaces/run-subject/terminals", `{"key":"0123456789abcdef"}`, &again) // its answer was lost
	if first.ID != "1" || again != first {
		t.Errorf("the terminals %+v and %+v", first, again)
	}
	var nothing struct{}
	post("/workspaces/run-subject/terminals/1/close", "", &nothing)
	list, err := r.People.Actions.Read(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	has := func(action string) bool {
		for _, e := range list {
			if e.Action == action && e.Object == "run:subject 1" && e.Login == "admin" && e.Result == audit.OK {
				return true
			}
		}
		return false
	}
	if !has("terminal.open") || !has("terminal.close") {
		t.Errorf("the log of actions has %+v", list)
	}
}
