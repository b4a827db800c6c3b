package slack_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/internal/clocktest"
	"github.com/ramus-dev/ramus/internal/standin/slacktest"
)

// clock is a time that passes only when somebody sleeps.
type clock struct {
	*clocktest.Clock
	// slept is called with the time after each sleep.
	slept func(time.Time)
}

func newClock() *clock {
	return &clock{Clock: clocktest.At(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))}
}

func (c *clock) Sleep(ctx context.Context, d time.Duration) error {
	now := c.Add(d)
	if c.slept != nil {
		c.slept(now)
	}
	return ctx.Err()
}

// start gives a workspace and a client of it, on one clock.
func start(t *testing.T, options ...func(*slacktest.Server)) (*slacktest.Server, *slack.Client, *clock) {
	t.Helper()
	noneLeft(t)
	c := newClock()
	s := slacktest.New(t, append(options, func(s *slacktest.Server) { s.Now, s.Sleep = c.Now, c.Sleep })...)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return s, &slack.Client{
		URL: s.API(), Token: s.Token, AppToken: s.AppToken, HTTP: &http.Client{Transport: transport},
		Log: slog.New(slog.DiscardHandler), Now: c.Now, Sleep: c.Sleep,
	}, c
}

// noneLeft fails the test when goroutines are left at its end.
func noneLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for range 6000 {
			if runtime.NumGoroutine() <= before {
				return
			}
			time.Sleep(10 * time.Millisecond) // connections that were closed take a moment to notice
		}
		stacks := make([]byte, 1<<20)
		t.Errorf("%d goroutines are left of %d:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
	})
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

var mark = slack.Mark{Run: "run-1", Key: "C01:1.000001", Part: "progress"}

func TestMe(t *testing.T) {
	s, c, _ := start(t)
	want := slack.Identity{Team: s.Team, User: s.BotUser, Bot: s.Bot}
	for range 2 {
		if me, err := c.Me(deadline(t)); err != nil || me != want {
			t.Fatalf("Me: %+v, %v; want %+v", me, err, want)
		}
	}
	if n := s.Count("auth.test"); n != 1 {
		t.Errorf("auth.test was asked %d times", n)
	}
}

func TestMeWithWrongToken(t *testing.T) {
	_, c, _ := start(t)
	c.Token = "xoxb-other"
	_, err := c.Me(deadline(t))
	var refused *slack.RefusedError
	if !errors.Is(err, slack.ErrRefused) || !errors.As(err, &refused) || refused.Code != "invalid_auth" {
		t.Errorf("Me: %v", err)
	}
}

func TestPost(t *testing.T) {
	s, c, _ := start(t)
	ctx := deadline(t)
	parent := s.Write("U01", "C01", "", "hello")
	m := slack.Message{
		Channel: "C01", ThreadTS: parent, Text: "works & <b>", Mark: mark,
		Blocks: []slack.Block{json.RawMessage(`{"type":"section","text":{"type":"mrkdwn","text":"*works*"}}`)},
	}
	ts, err := c.Post(ctx, m, true)
	if err != nil {
		t.Fatal(err)
	}
	again, err := c.Post(ctx, m, true)
	if err != nil || again != ts {
		t.Fatalf("a second Post with look gave %q, %v; want %q", again, err, ts)
	}
	own := s.Own("C01", parent)
	if len(own) != 1 || own[0].Text != m.Text || own[0].TS != ts || own[0].ThreadTS != parent ||
		string(own[0].Metadata.Payload) != `{"key":"C01:1.000001","part":"progress","run":"run-1"}` {
		t.Fatalf("posted: %+v", own)
	}
	if found, ok, err := c.Find(ctx, "C01", parent, mark); err != nil || !ok || found != ts {
		t.Errorf("Find: %q, %v, %v", found, ok, err)
	}
	other := mark
	other.Part = "result"
	if _, ok, err := c.Find(ctx, "C01", parent, other); err != nil || ok {
		t.Errorf("Find of what was never posted: %v, %v", ok, err)
	}
	m.Text, m.Blocks = "done", nil
	if err := c.Update(ctx, m, ts); err != nil {
		t.Fatal(err)
	}
	own = s.Own("C01", parent)
	if len(own) != 1 || own[0].Text != "done" || own[0].Blocks != nil || len(own[0].Edits) != 1 || own[0].Metadata == nil {
		t.Errorf("after Update: %+v", own)
	}
}

func TestPostBeginsThread(t *testing.T) {
	s, c, _ := start(t)
	m := slack.Message{Channel: "C01", Text: "from a command", Mark: mark}
	s.Fail(slacktest.Fault{Method: "chat.postMessage", Lose: true})
	ts, err := c.Post(deadline(t), m, false)
	if err != nil {
		t.Fatal(err)
	}
	if all := s.Messages("C01"); len(all) != 1 || all[0].TS != ts {
		t.Errorf("posted: %+v", all)
	}
}

// TestPostOnce checks that one message is in the thread, even if an attempt fails.
func TestPostOnce(t *testing.T) {
	for name, fault := range map[string]slacktest.Fault{
		"answer lost":         {Lose: true},
		"cut before":          {Cut: true},
		"502":                 {Status: 502},
		"HTML with 200":       {Status: 200},
		"fatal_error":         {Error: "fatal_error"},
		"internal_error":      {Error: "internal_error"},
		"service_unavailable": {Error: "service_unavailable"},
		"rate-limited":        {RetryAfter: 7 * time.Second},
		"lost three times":    {Lose: true, Times: 3},
	} {
		t.Run(name, func(t *testing.T) {
			s, c, clock := start(t)
			parent := s.Write("U01", "C01", "", "hello")
			fault.Method = "chat.postMessage"
			s.Fail(fault)
			before := clock.Now()
			ts, err := c.Post(deadline(t), slack.Message{Channel: "C01", ThreadTS: parent, Text: "one", Mark: mark}, false)
			if err != nil {
				t.Fatal(err)
			}
			if own := s.Own("C01", parent); len(own) != 1 || own[0].TS != ts {
				t.Errorf("%d messages of ramus's in the thread: %+v", len(own), own)
			}
			if waited := clock.Now().Sub(before); waited < fault.RetryAfter {
				t.Errorf("waited %v of %v", waited, fault.RetryAfter)
			}
		})
	}
}

// TestDownForTenMinutes: nobody listens, and everything is done once when somebody does again.
func TestDownForTenMinutes(t *testing.T) {
	s, c, clock := start(t)
	ctx := deadline(t)
	parent := s.Write("U01", "C01", "", "hello")
	s.Fail(slacktest.Fault{Method: "chat.postMessage", Lose: true})
	s.Down()
	began := clock.Now()
	var up sync.Once
	clock.slept = func(now time.Time) {
		if now.Sub(began) >= 10*time.Minute {
			up.Do(func() {
				if err := s.Up(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	if err := c.React(ctx, "C01", parent, "eyes"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Post(ctx, slack.Message{Channel: "C01", ThreadTS: parent, Text: "one", Mark: mark}, true); err != nil {
		t.Fatal(err)
	}
	if own := s.Own("C01", parent); len(own) != 1 {
		t.Errorf("%d messages of ramus's in the thread", len(own))
	}
	if users := s.Thread("C01", parent)[0].Reactions["eyes"]; len(users) != 1 {
		t.Errorf("reactions: %v", users)
	}
	if waited := clock.Now().Sub(began); waited < 10*time.Minute || waited > 12*time.Minute {
		t.Errorf("it took %v", waited)
	}
}

func TestGivesUpWithContext(t *testing.T) {
	s, c, clock := start(t)
	s.Down()
	ctx, cancel := context.WithCancel(deadline(t))
	tries := 0
	clock.slept = func(time.Time) {
		if tries++; tries == 3 {
			cancel()
		}
	}
	err := c.React(ctx, "C01", "1.000001", "eyes")
	if !errors.Is(err, context.Canceled) || errors.Is(err, slack.ErrRefused) {
		t.Errorf("React: %v", err)
	}
}

func TestRefused(t *testing.T) {
	s, c, _ := start(t)
	ctx := deadline(t)
	parent := s.Write("U01", "C01", "", "hello")
	long := json.RawMessage(fmt.Sprintf(`{"type":"section","text":{"type":"mrkdwn","text":%q}}`, strings.Repeat("x", 3001)))
	for code, m := range map[string]slack.Message{
		"channel_not_found": {Channel: "C99", Text: "x", Mark: mark},
		"not_in_channel":    {Channel: "C03", Text: "x", Mark: mark},
		"no_text":           {Channel: "C01", Mark: mark},
		"msg_too_long":      {Channel: "C01", Text: strings.Repeat("é", 40001), Mark: mark},
		"invalid_blocks":    {Channel: "C01", ThreadTS: parent, Text: "x", Mark: mark, Blocks: []slack.Block{long}},
	} {
		_, err := c.Post(ctx, m, false)
		var refused *slack.RefusedError
		if !errors.As(err, &refused) || refused.Code != code || !errors.Is(err, slack.ErrRefused) {
			t.Errorf("%s: Post: %v", code, err)
		}
	}
	if err := c.Update(ctx, slack.Message{Channel: "C01", Text: "x", Mark: mark}, parent); !errors.Is(err, slack.ErrRefused) {
		t.Errorf("Update of another's message: %v", err)
	}
	if got := s.Forgive(); len(got) != 4 {
		t.Errorf("complaints: %q", got)
	}
	if n := s.Count("chat.postMessage"); n != 5 {
		t.Errorf("%d posts were asked for", n)
	}
	for _, m := range []slack.Message{
		{Channel: "C01", Text: "no mark"},
		{Channel: "C01", Text: "x", Mark: mark, Blocks: []slack.Block{json.RawMessage(`{`)}},
	} {
		if _, err := c.Post(ctx, m, false); err == nil {
			t.Errorf("Post of %+v: no error", m)
		}
	}
}

func TestReactions(t *testing.T) {
	s, c, _ := start(t)
	ctx := deadline(t)
	ts := s.Write("U01", "C01", "", "hello")
	for range 2 {
		if err := c.React(ctx, "C01", ts, "eyes"); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := c.Unreact(ctx, "C01", ts, "eyes"); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Messages("C01")[0].Reactions; len(got) != 0 {
		t.Errorf("reactions: %v", got)
	}
	if err := c.React(ctx, "C01", "1.000001", "eyes"); !errors.Is(err, slack.ErrRefused) {
		t.Errorf("React to no message: %v", err)
	}
}

// TestCrowd: many posts to few channels, one a second each, all arrive once and few are sent too early.
func TestCrowd(t *testing.T) {
	s, c, _ := start(t)
	ctx := deadline(t)
	s.LimitPosts(true)
	const posts = 40
	parents := []string{s.Write("U01", "C01", "", "a"), s.Write("U01", "C02", "", "b")}
	var wg sync.WaitGroup
	for i := range posts {
		wg.Go(func() {
			channel := []string{"C01", "C02"}[i%2]
			m := slack.Message{Channel: channel, ThreadTS: parents[i%2], Text: "x", Mark: slack.Mark{Run: fmt.Sprint(i)}}
			if _, err := c.Post(ctx, m, false); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(s.Own("C01", parents[0])) + len(s.Own("C02", parents[1])); n != posts {
		t.Errorf("%d of %d messages were posted", n, posts)
	}
	if n := s.Count("chat.postMessage"); n > 3*posts {
		t.Errorf("%d requests for %d posts", n, posts)
	}
}

func TestBudget(t *testing.T) {
	s, c, clock := start(t)
	ctx := deadline(t)
	s.Limit("reactions.add", 5)
	ts := s.Write("U01", "C01", "", "hello")
	began := clock.Now()
	for i := range 12 {
		if err := c.React(ctx, "C01", ts, fmt.Sprintf("name-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if waited := clock.Now().Sub(began); waited < 2*time.Minute {
		t.Errorf("12 reactions at 5 a minute took %v", waited)
	}
	if n := s.Count("reactions.add"); n != 14 {
		t.Errorf("%d requests; want 12 and one 429 each minute", n)
	}
}
