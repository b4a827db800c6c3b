package live

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
)

// still is a watcher without events.
type still struct{}

func (still) Watch(ctx context.Context, _ string) iter.Seq2[record.Event, error] {
	return func(func(record.Event, error) bool) { <-ctx.Done() }
}

func (still) Find(record.Caller, string) (record.Run, bool) { return record.Run{}, false }

// serve serves sockets whose pages show a number.
func serve(t *testing.T, number *atomic.Int64) (*API, string) {
	t.Helper()
	before := runtime.NumGoroutine()
	api := &API{Hub: &Hub{}, Watch: still{}, Access: route.AccessRead}
	api.Render = func(c *route.Call, at *url.URL) (View, error) {
		switch at.Path {
		case "/hidden":
			return View{}, route.NotFound("page", at.Path)
		case "/many":
			v := View{Topics: []string{"me"}}
			for i := range maxOps + int(number.Load()) {
				v.Fragments = append(v.Fragments, Fragment{Key: fmt.Sprint(i), In: "l", Hash: fmt.Sprint(number.Load())})
			}
			return v, nil
		}
		text := fmt.Sprintf("<p>%d</p>", number.Load())
		return View{Title: "page", Topics: []string{"me"},
			Fragments: []Fragment{{Key: "n", In: "l", Hash: Hash(text), HTML: text}}}, nil
	}
	mux := &route.Mux{}
	server := httptest.NewServer(mux.Handler(api.Routes(), &route.Who{Subject: "ada", Repo: "*", Scopes: []string{"read"}}))
	t.Cleanup(func() {
		mux.Drain()
		server.Close()
		for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("%d goroutines are left of %d", runtime.NumGoroutine(), before)
				return
			}
		}
	})
	return api, server.URL
}

// dial opens a socket as a page of this server does.
func dial(t *testing.T, server string) *websocket.Conn {
	t.Helper()
	d := websocket.Dialer{Subprotocols: []string{Protocol}}
	conn, _, err := d.Dial("ws"+strings.TrimPrefix(server, "http")+"/live", http.Header{"Origin": {server}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// next returns the next message.
func next(t *testing.T, conn *websocket.Conn) message {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	var m message
	if err := conn.ReadJSON(&m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestSocket(t *testing.T) {
	var number atomic.Int64
	api, server := serve(t, &number)
	conn := dial(t, server)
	_ = conn.WriteJSON(map[string]any{"sub": "/n"})
	if m := next(t, conn); m.At != "/n" || len(m.Ops) != 1 || m.Ops[0].HTML != "<p>0</p>" || m.Ops[0].In != "l" {
		t.Fatalf("%+v", m)
	}
	number.Store(1)
	api.Hub.Wake("other")
	api.Hub.Wake("me")
	if m := next(t, conn); len(m.Ops) != 1 || m.Ops[0].HTML != "<p>1</p>" {
		t.Fatalf("%+v", m)
	}

	// A client that has the newest fragment gets the next one alone.
	again := dial(t, server)
	_ = again.WriteJSON(map[string]any{"sub": "/n", "have": map[string]string{"n": Hash("<p>1</p>"), "old": "x"}})
	if m := next(t, again); len(m.Ops) != 1 || m.Ops[0].Op != "drop" || m.Ops[0].Key != "old" {
		t.Fatalf("%+v", m)
	}
	if got := api.Hub.Present("me"); len(got) != 1 || got[0] != "ada" {
		t.Errorf("present: %v", got)
	}

	_ = conn.WriteJSON(map[string]any{"sub": "/hidden"})
	if m := next(t, conn); m.Problem == nil || m.Problem.Status != 404 {
		t.Fatalf("%+v", m)
	}
	number.Store(2)
	_ = conn.WriteJSON(map[string]any{"un": "/n", "sub": "/many"})
	if m := next(t, conn); !m.Gap || len(m.Ops) != 0 {
		t.Fatalf("%+v", m)
	}
}

// TestCatchUp subscribes to a page that has changed since it was loaded. The first message brings its title and the order of its elements, too.
func TestCatchUp(t *testing.T) {
	var number atomic.Int64
	api, server := serve(t, &number)
	api.Render = func(*route.Call, *url.URL) (View, error) {
		v := View{Title: "(1) page", Topics: []string{"me"}}
		for _, key := range []string{"c", "a", "b"} {
			v.Fragments = append(v.Fragments, Fragment{Key: key, In: "l", Hash: "h"})
		}
		return v, nil
	}
	for _, x := range []struct{ page, want string }{
		{`"title": "page", "have": {"a": "h", "b": "h", "c": "h"}`, "order c a b, title (1) page"},
		{`"title": "page", "have": {"c": "h", "a": "h", "b": "h"}`, "title (1) page"},
		{`"have": {"b": "h", "a": "h"}`, "put c, order c a b"},
		{`"title": "(1) page", "have": {"c": "h", "a": "h", "b": "h", "d": "h"}`, "drop d"},
	} {
		conn := dial(t, server)
		_ = conn.WriteMessage(websocket.TextMessage, []byte(`{"sub": "/n", `+x.page+`}`))
		var ops []string
		for _, op := range next(t, conn).Ops {
			words := append([]string{op.Op, op.Key}, op.Keys...)
			if op.Op == "title" {
				words = append(words, op.HTML)
			}
			ops = append(ops, strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " "))
		}
		if got := strings.Join(ops, ", "); got != x.want {
			t.Errorf("a page of %s gets %q, want %q", x.page, got, x.want)
		}
	}
}

func TestSocketRefuses(t *testing.T) {
	var number atomic.Int64
	_, server := serve(t, &number)
	for _, origin := range []string{"", "http://other.example", "null"} {
		h := http.Header{}
		if origin != "" {
			h.Set("Origin", origin)
		}
		_, resp, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(server, "http")+"/live", h)
		if err == nil || resp.StatusCode != http.StatusForbidden {
			t.Errorf("origin %q is let in", origin)
		}
	}
	for _, text := range []string{"{", `[]`, `{"sub":1}`, `{"sub":"/n","have":[]}`, `{"sub":"/n","have":{"a":{}}}`, strings.Repeat("x", maxMessage+1)} {
		conn := dial(t, server)
		_ = conn.WriteMessage(websocket.TextMessage, []byte(text))
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		var closed *websocket.CloseError
		if _, _, err := conn.ReadMessage(); !errors.As(err, &closed) && err == nil {
			t.Errorf("%.20q is answered", text)
		}
	}
	conn := dial(t, server)
	for i := range maxViews + 1 {
		_ = conn.WriteJSON(map[string]any{"sub": fmt.Sprintf("/%d", i)})
	}
	refused := false
	for range maxViews + 1 {
		refused = next(t, conn).Problem != nil || refused
	}
	if !refused {
		t.Error("too many views are let in")
	}
	var open []*websocket.Conn
	for {
		conn, resp, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(server, "http")+"/live",
			http.Header{"Origin": {server}})
		if err == nil && len(open) < maxSockets {
			open = append(open, conn)
			continue
		}
		if err == nil || resp.StatusCode != http.StatusTooManyRequests {
			t.Errorf("more than %d sockets are let in", maxSockets)
		}
		break
	}
	for _, conn := range open {
		conn.Close()
	}
}

// TestMadeOnce makes a view once if nothing changes.
func TestMadeOnce(t *testing.T) {
	var number atomic.Int64
	api, server := serve(t, &number)
	var made atomic.Int64
	render := api.Render
	api.Render = func(c *route.Call, at *url.URL) (View, error) {
		made.Add(1)
		return render(c, at)
	}
	conn := dial(t, server)
	_ = conn.WriteJSON(map[string]any{"sub": "/n"})
	next(t, conn)
	number.Store(1)
	api.Hub.Wake("me")
	next(t, conn) // a view that was made without a change would have come between
	if n := made.Load(); n != 2 {
		t.Errorf("the view was made %d times", n)
	}
}

// TestSignedOut sends nothing that was made before to a person who is signed out.
func TestSignedOut(t *testing.T) {
	var up websocket.Upgrader
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := up.Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		ctx, cancel := context.WithCancelCause(r.Context())
		s := &socket{conn: conn, out: make(chan message, maxAhead), end: cancel}
		for range maxAhead {
			s.out <- message{At: "/n"}
		}
		cancel(errSignedOut)
		s.write(ctx)
	}))
	defer server.Close()
	for range 20 { // a select chooses at random
		conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(server.URL, "http"), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, text, err := conn.ReadMessage()
		if !websocket.IsCloseError(err, closeSignedOut) {
			t.Fatalf("%s %v", text, err)
		}
		conn.Close()
	}
}
