package slack_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/internal/standin/slacktest"
)

// listen runs Socket until the returned stop, which waits for its end.
func listen(t *testing.T, s *slacktest.Server, c *slack.Client, handle slack.Handle) (ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(deadline(t))
	end := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		end <- c.Socket(ctx, handle)
	}()
	t.Cleanup(func() { cancel(); <-done })
	if err := s.Until(deadline(t), func() bool { return s.Sockets() > 0 || len(end) > 0 }); err != nil {
		t.Fatal(err)
	}
	return end
}

// heard collects deliveries.
type heard struct {
	mu  sync.Mutex // guards all
	all []slack.Delivery
}

func (h *heard) handle(_ context.Context, d slack.Delivery) (any, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, d)
	if d.Command != nil {
		return map[string]any{"text": "heard " + d.Command.Text}, nil
	}
	return nil, nil
}

func socketMode(s *slacktest.Server) { s.SocketMode = true }

func TestSocket(t *testing.T) {
	s, c, _ := start(t, socketMode)
	ctx := deadline(t)
	var h heard
	listen(t, s, c, h.handle)
	parent := s.Say("U01", "C01", "", "<@U0RAMUS> test")
	acknowledged := func(n int) func() bool {
		return func() bool {
			good := 0
			for _, a := range s.Attempts() {
				if a.Status == 200 {
					good++
				}
			}
			return good == n
		}
	}
	if err := s.Until(ctx, acknowledged(2)); err != nil {
		t.Fatal(err)
	}
	if a := s.Command(ctx, "U01", "C01", "/ramus", "status"); a.Status != 200 || string(a.Answer) != `{"text":"heard status"}` {
		t.Errorf("a command: %+v", a)
	}
	ts, err := c.Post(ctx, slack.Message{Channel: "C01", ThreadTS: parent, Text: "x", Mark: mark, Blocks: []slack.Block{
		slack.Block(`{"type":"actions","elements":[{"type":"button","action_id":"stop","value":"run-1","text":{"type":"plain_text","text":"Stop"}}]}`)}}, false)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := s.Press(ctx, "U01", "C01", ts, "stop", ""); err != nil || a.Status != 200 {
		t.Errorf("a button: %+v, %v", a, err)
	}
	// The message that ramus posted comes back to it, means nothing, and is acknowledged.
	if err := s.Until(ctx, acknowledged(5)); err != nil {
		t.Fatalf("%v: %+v", err, s.Attempts())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.all) != 4 || h.all[0].Mention == nil || h.all[1].Mention.Key() != h.all[0].Mention.Key() ||
		h.all[2].Command == nil ||
		h.all[3].Action == nil || h.all[3].Action.Value != "run-1" || h.all[3].Action.ThreadTS != parent {
		t.Errorf("heard: %+v", h.all)
	}
}

// TestSocketSendsAgain: what failed is not acknowledged, comes again, and says so.
func TestSocketSendsAgain(t *testing.T) {
	giveUp := make(chan struct{})
	s, c, _ := start(t, socketMode, func(s *slacktest.Server) { s.GiveUp = giveUp })
	var h heard
	listen(t, s, c, func(ctx context.Context, d slack.Delivery) (any, error) {
		_, _ = h.handle(ctx, d)
		if d.Retry < 2 {
			select {
			case giveUp <- struct{}{}:
			case <-ctx.Done():
			}
			return nil, errors.New("not now")
		}
		return nil, nil
	})
	ts := s.Write("U01", "D01", "", "test")
	attempts := s.Deliver(deadline(t), s.Envelopes("D01", ts)[0])
	if len(attempts) != 3 || attempts[2].Status != 200 {
		t.Errorf("attempts: %+v", attempts)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, d := range h.all {
		if d.Retry != i || d.Mention == nil || d.Mention.Key() != "D01:"+ts {
			t.Errorf("delivery %d: %+v", i, d)
		}
	}
}

// TestSocketReconnects: nothing is lost when Slack refreshes connections, cuts them, or is away.
func TestSocketReconnects(t *testing.T) {
	for name, what := range map[string]func(*slacktest.Server){
		"refreshed": func(s *slacktest.Server) { s.Disconnect("refresh_requested") },
		"warned":    func(s *slacktest.Server) { s.Disconnect("warning") },
		"away": func(s *slacktest.Server) {
			s.Down()
			if err := s.Up(); err != nil {
				panic(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, c, _ := start(t, socketMode)
			ctx := deadline(t)
			var h heard
			listen(t, s, c, h.handle)
			for i := range 3 {
				opened := s.Count("apps.connections.open")
				what(s)
				err := s.Until(ctx, func() bool { return s.Count("apps.connections.open") > opened && s.Sockets() > 0 })
				if err != nil {
					t.Fatal(err)
				}
				ts := s.Write("U01", "D01", "", fmt.Sprint(i))
				attempts := s.Deliver(ctx, s.Envelopes("D01", ts)[0])
				if last := attempts[len(attempts)-1]; last.Status != 200 {
					t.Fatalf("round %d: %+v", i, attempts)
				}
			}
		})
	}
}

func TestSocketRefused(t *testing.T) {
	s, c, _ := start(t, socketMode)
	c.AppToken = "xapp-other"
	if err := c.Socket(deadline(t), nil); !errors.Is(err, slack.ErrRefused) || !strings.Contains(err.Error(), "invalid_auth") {
		t.Errorf("with a wrong token: %v", err)
	}
	s2, c2, _ := start(t, socketMode)
	ended := listen(t, s2, c2, nil)
	s2.Disconnect("link_disabled")
	select {
	case err := <-ended:
		if !errors.Is(err, slack.ErrRefused) {
			t.Errorf("switched off: %v", err)
		}
	case <-deadline(t).Done():
		t.Error("switched off, and it goes on")
	}
	_ = s
}

func TestSocketEndsWithContext(t *testing.T) {
	s, c, _ := start(t, socketMode)
	ctx, cancel := context.WithCancel(deadline(t))
	began := make(chan struct{})
	handle := func(ctx context.Context, _ slack.Delivery) (any, error) {
		close(began)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	end := make(chan error, 1)
	go func() { end <- c.Socket(ctx, handle) }()
	if err := s.Until(ctx, func() bool { return s.Sockets() > 0 }); err != nil {
		t.Fatal(err)
	}
	s.Say("U01", "D01", "", "test")
	<-began
	cancel()
	if err := <-end; !errors.Is(err, context.Canceled) {
		t.Errorf("Socket: %v", err)
	}
}
