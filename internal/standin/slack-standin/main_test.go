package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/internal/golden"
	"github.com/ramus-dev/ramus/internal/loopback"
)

// app answers every mention in its thread, with a button that says goodbye.
func app(t *testing.T, secret string, client func() *slack.Client) http.Handler {
	var mu sync.Mutex // guards done, and keeps the twin of a mention from being quicker
	done := map[string]bool{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = slack.Verify(secret, r.Header, body, time.Now())
		}
		if err != nil {
			t.Error(err)
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		var d slack.Delivery
		switch r.URL.Path {
		case "/slack/events":
			d, err = slack.ParseEvent(body, "")
		case "/slack/commands":
			d, err = slack.ParseCommand(body)
		case "/slack/interactions":
			d, err = slack.ParseInteraction(body)
		}
		if err != nil {
			t.Error(err)
		}
		post := func(channel, thread, text, part string) {
			block, _ := json.Marshal(map[string]any{"type": "section",
				"text": map[string]any{"type": "mrkdwn", "text": text},
				"accessory": map[string]any{"type": "button", "action_id": "stop", "value": "v",
					"text": map[string]any{"type": "plain_text", "text": "Stop"}}})
			_, err := client().Post(r.Context(), slack.Message{Channel: channel, ThreadTS: thread, Text: text,
				Blocks: []slack.Block{block}, Mark: slack.Mark{Key: part}}, false)
			if err != nil {
				t.Error(err)
			}
		}
		switch {
		case d.Challenge != "":
			_, _ = io.WriteString(w, d.Challenge)
		case d.Mention != nil:
			mu.Lock()
			defer mu.Unlock()
			if !done[d.Mention.Key()] {
				done[d.Mention.Key()] = true
				post(d.Mention.Channel, d.Mention.ThreadTS, "heard "+d.Mention.Said(), d.Mention.Key())
			}
		case d.Action != nil:
			post(d.Action.Channel, d.Action.ThreadTS, "goodbye <@"+d.Action.User+">", "bye")
		case d.Command != nil:
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"text":%q}`, "typed "+d.Command.Text)
		}
	})
}

func TestPlay(t *testing.T) {
	var client *slack.Client
	ramus := httptest.NewServer(app(t, "demo secret", func() *slack.Client { return client }))
	defer ramus.Close()
	listen := loopback.Address(t)
	client = &slack.Client{URL: "http://" + listen + "/api/", Token: "xoxb-demo", Log: slog.New(slog.DiscardHandler)}
	environ := map[string]string{"SLACK_BOT_TOKEN": "xoxb-demo", "SLACK_SIGNING_SECRET": "demo secret"}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out bytes.Buffer
	err := run(ctx, []string{"-listen", listen, "-ramus", ramus.URL}, func(name string) string { return environ[name] }, strings.NewReader(`
# a line that is skipped
verify 60
say developer #builds @ramus test a < b
wait 60 heard test a
reply reviewer @ramus again
wait 60 heard again
press developer stop
wait 60 goodbye
command developer #general status
`), &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	got := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d`).ReplaceAllString(out.String(), "09:00:00")
	got = strings.Replace(got, listen, "ADDRESS", 1)
	golden.CompareFile(t, "testdata/play.txt", got)
}

func TestPlayFails(t *testing.T) {
	for _, script := range []string{
		"verify 0.1", "say nobody #builds hi", "say developer #nowhere hi", "say developer builds hi", "reply developer hi",
		"say developer #builds hi\nwait 0.1 .", "say developer #builds hi\npress developer stop", "thread 1",
		"wink", "sleep x",
		"say developer #builds hi\nwait 1 (", "command developer #builds x",
	} {
		// Nobody listens on the port of ramus.
		err := run(t.Context(), []string{"-listen", "127.0.0.1:0", "-ramus", "http://127.0.0.1:1"},
			func(string) string { return "" }, strings.NewReader(script), io.Discard)
		if err == nil {
			t.Errorf("%q: no error", script)
		}
	}
}
