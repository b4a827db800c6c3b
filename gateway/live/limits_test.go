package live

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
)

// TestEnter counts the sockets of each person and of all together.
func TestEnter(t *testing.T) {
	api := &API{Hub: &Hub{}, Watch: still{}}
	var leave []func()
	enter := func(subject string) error {
		end, err := api.enter(route.Who{Subject: subject})
		if err == nil {
			leave = append(leave, end)
		}
		return err
	}
	full := func(about string, err error) {
		t.Helper()
		var p *route.Problem
		if !errors.As(err, &p) || p.Kind != route.KindStreams {
			t.Errorf("%s: %v", about, err)
		}
	}
	for n := range maxSockets {
		if err := enter("ada"); err != nil {
			t.Fatalf("socket %d: %v", n+1, err)
		}
	}
	full("one more of a person", enter("ada"))
	for n := maxSockets; n < maxAll; n++ {
		if err := enter(fmt.Sprint("p", n)); err != nil {
			t.Fatalf("socket %d of all: %v", n+1, err)
		}
	}
	full("one more of all", enter("bo"))
	leave[0]()
	leave[0] = func() {}
	if err := enter("ada"); err != nil {
		t.Errorf("after another one has left: %v", err)
	}
	for _, end := range leave {
		end()
	}
	if len(api.sockets) != 0 || api.all != 0 {
		t.Errorf("%d sockets of %d persons are left", api.all, len(api.sockets))
	}
}

// TestLimits sends messages and gets views that are as large as can be, and larger ones.
func TestLimits(t *testing.T) {
	var number atomic.Int64
	_, server := serve(t, &number)
	have := map[string]string{}
	for n := range maxFragment {
		have[fmt.Sprint("old", n)] = "x"
	}
	conn := dial(t, server)
	_ = conn.WriteJSON(map[string]any{"sub": "/n", "have": have})
	if m := next(t, conn); !m.Gap {
		t.Errorf("%d operations are sent", len(m.Ops))
	}
	_ = conn.WriteJSON(map[string]any{"sub": "/many"})
	if m := next(t, conn); m.Gap || len(m.Ops) != maxOps {
		t.Errorf("%d operations, gap %t", len(m.Ops), m.Gap)
	}
	for _, sub := range []string{"n", "//other.example/n", "/%zz"} {
		_ = conn.WriteJSON(map[string]any{"sub": sub})
		if m := next(t, conn); m.At != sub || m.Problem == nil {
			t.Errorf("%q is followed", sub)
		}
	}

	have["more"] = "x"
	large, many := dial(t, server), dial(t, server)
	d := websocket.Dialer{Subprotocols: []string{Protocol}, EnableCompression: true}
	deflated, _, err := d.Dial("ws"+strings.TrimPrefix(server, "http")+"/live", http.Header{"Origin": {server}})
	if err != nil {
		t.Fatal(err)
	}
	defer deflated.Close()
	_ = deflated.WriteMessage(websocket.TextMessage, []byte(`{"sub":"/n"`+strings.Repeat(" ", maxMessage)+`}`))
	_ = many.WriteJSON(map[string]any{"sub": "/n", "have": have})
	_ = large.WriteMessage(websocket.TextMessage, []byte(`{"sub":"/n"`+strings.Repeat(" ", 256<<10)+`}`))
	for about, conn := range map[string]*websocket.Conn{"too many fragments": many, "too many bytes": large,
		"too many bytes after decompression": deflated} {
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		var closed *websocket.CloseError
		if _, text, err := conn.ReadMessage(); !errors.As(err, &closed) {
			t.Errorf("%s: %.50q, %v", about, text, err)
		}
	}
}

// TestRest wakes a view by a change or by its beat, and ends it with its context.
func TestRest(t *testing.T) {
	s := (&Hub{}).join("ada")
	if !s.rest(t.Context(), time.Nanosecond, time.Nanosecond) {
		t.Error("the beat does not wake")
	}
	s.wake <- struct{}{}
	if !s.rest(t.Context(), time.Nanosecond, 0) {
		t.Error("a change does not wake")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, least := range []time.Duration{time.Nanosecond, time.Hour} {
		if s.rest(ctx, least, 0) {
			t.Error("it rests for nobody")
		}
	}
}

// finder has one run.
type finder struct {
	still
	run record.Run
}

func (f finder) Find(c record.Caller, id string) (record.Run, bool) {
	return f.run, c == f.run.Caller && id == f.run.ID
}

// TestTopicsOf wakes lists by all events but output.
func TestTopicsOf(t *testing.T) {
	c, err := record.RunCaller("a")
	if err != nil {
		t.Fatal(err)
	}
	f := finder{run: record.Run{ID: "one", Caller: c, Repo: "app"}}
	own := []string{CallerTopic(c), "run/run:a/one"}
	for _, x := range []struct {
		e    record.Event
		want []string
	}{
		{record.Event{Run: "run:a/one", Type: record.EventOutput}, own},
		{record.Event{Run: "run:a/one", Type: record.EventAgent}, own},
		{record.Event{Run: "run:a/one", Type: record.EventStepFinished}, append(slices.Clone(own), TopicMe, TopicNode, RepoTopic("app"))},
		{record.Event{Run: "run:a/two", Type: record.EventStepFinished}, []string{own[0], "run/run:a/two", TopicMe, TopicNode}},
		{record.Event{Run: "?"}, []string{TopicMe}},
	} {
		if got := topicsOf(f, x.e); !slices.Equal(got, x.want) {
			t.Errorf("%s %s: %q", x.e.Run, x.e.Type, got)
		}
	}
}
