package slacktest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/internal/standin/slacktest"
)

// call asks a method as an app does, and gives status, code of the error, and answer.
func call(t *testing.T, s *slacktest.Server, method string, form url.Values) (int, string, []byte) {
	t.Helper()
	if !form.Has("token") {
		form.Set("token", s.Token)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).PostForm(s.API()+method, form)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		OK    bool   `json:"ok"`
		Error string `json:"error"`
	}
	_ = json.Unmarshal(body, &answer)
	if answer.OK {
		answer.Error = "ok"
	}
	return resp.StatusCode, answer.Error, body
}

func form(pairs ...string) url.Values {
	f := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		f.Set(pairs[i], pairs[i+1])
	}
	return f
}

// TestUploads refuses what Slack refuses of files that an app shares.
func TestUploads(t *testing.T) {
	s := slacktest.New(t)
	parent := s.Write("U01", "C01", "", "hello")
	reply := s.Write("U02", "C01", parent, "a reply")
	announce := func(length int) (at, id string) {
		t.Helper()
		_, got, body := call(t, s, "files.getUploadURLExternal", form("filename", "a.png", "length", fmt.Sprint(length)))
		var answer struct {
			URL string `json:"upload_url"`
			ID  string `json:"file_id"`
		}
		if err := json.Unmarshal(body, &answer); err != nil || got != "ok" {
			t.Fatalf("%s %v", body, err)
		}
		return answer.URL, answer.ID
	}
	send := func(at, data string, want int) {
		t.Helper()
		resp, err := http.Post(at, "application/octet-stream", strings.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%q: %s, want %d", data, resp.Status, want)
		}
	}
	complete := func(id, want string, pairs ...string) {
		t.Helper()
		f := form(append([]string{"files", `[{"id":"` + id + `"}]`}, pairs...)...)
		if _, got, body := call(t, s, "files.completeUploadExternal", f); got != want {
			t.Errorf("%v: %s, want %s", f, body, want)
		}
	}
	at, short := announce(3)
	send(at, "ab", 400)
	send(at, "abc", 410)
	complete(short, "file_not_found", "channel_id", "C01")
	send(s.URL()+"/upload/v1/F99", "abc", 404)
	at, id := announce(3)
	complete(id, "file_not_found", "channel_id", "C01")
	send(at, "abc", 200)
	send(at, "abc", 410)
	complete(id, "channel_not_found", "channel_id", "C99")
	complete(id, "not_in_channel", "channel_id", "C03")
	complete(id, "thread_not_found", "channel_id", "C01", "thread_ts", reply)
	s.Lack("files:write")
	complete(id, "missing_scope", "channel_id", "C01", "thread_ts", parent)
	s.Lack()
	complete(id, "ok", "channel_id", "C01", "thread_ts", parent, "initial_comment", "look")
	complete(id, "file_not_found", "channel_id", "C01")
	if m := s.Own("C01", parent); len(m) != 1 || m[0].Text != "look" || len(m[0].Files) != 1 || string(m[0].Files[0].Data) != "abc" {
		t.Errorf("%+v", m)
	}
	if n := len(s.Forgive()); n != 5 {
		t.Errorf("%d complaints", n)
	}
}

func TestRefusals(t *testing.T) {
	s := slacktest.New(t)
	ts := s.Write("U01", "C01", "", "hello")
	long := func(n int) string { return strings.Repeat("x", n) }
	section := func(text string) string {
		return `{"type":"section","text":{"type":"mrkdwn","text":"` + text + `"}}`
	}
	post := "chat.postMessage"
	for _, c := range []struct {
		method string
		form   url.Values
		want   string
	}{
		{"auth.test", form("token", ""), "not_authed"},
		{"auth.test", form("token", "xoxb-other"), "invalid_auth"},
		{"auth.test", form(), "ok"},
		{"chat.post", form(), "unknown_method"},
		{"apps.connections.open", form(), "invalid_auth"}, // the bot's token
		{"users.info", form("user", "U99"), "user_not_found"},
		{"conversations.replies", form("channel", "C99", "ts", ts), "channel_not_found"},
		{"conversations.replies", form("channel", "C03", "ts", ts), "not_in_channel"},
		{"conversations.replies", form("channel", "C01", "ts", "1.000001"), "thread_not_found"},
		{"conversations.replies", form("channel", "C01", "ts", ts, "cursor", "x"), "invalid_cursor"},
		{"conversations.replies", form("channel", "C01", "ts", ts, "limit", "5000"), "invalid_limit"},
		{post, form("channel", "C01"), "no_text"},
		{post, form("channel", "C01", "text", "  "), "no_text"},
		{post, form("channel", "C01", "text", long(40000)), "ok"},
		{post, form("channel", "C01", "text", long(40001)), "msg_too_long"},
		{post, form("channel", "C01", "text", "x", "thread_ts", "1.000001"), "thread_not_found"},
		{post, form("channel", "C01", "text", "x", "blocks", "{}"), "invalid_blocks_format"},
		{post, form("channel", "C01", "text", "x", "blocks", "["+section(long(3000))+"]"), "ok"},
		{post, form("channel", "C01", "text", "x", "blocks", "["+section(long(3001))+"]"), "invalid_blocks"},
		{post, form("channel", "C01", "text", "x", "blocks",
			"["+strings.Repeat(section("x")+",", 49)+section("x")+"]"), "ok"},
		{post, form("channel", "C01", "text", "x", "blocks", "["+strings.Repeat(section("x")+",", 50)+section("x")+"]"),
			"invalid_blocks"},
		{post, form("channel", "C01", "text", "x", "blocks",
			"["+strings.Repeat(section(long(3000))+",", 4)+section(long(3000))+"]"), "msg_blocks_too_long"},
		{post, form("channel", "C01", "text", "x", "metadata", "[]"), "invalid_metadata_format"},
		{post, form("channel", "C01", "text", "x", "metadata", `{"event_type":"a","event_payload":{},"x":1}`),
			"invalid_metadata_format"},
		{post, form("channel", "C01", "text", "x", "metadata", `{"event_type":"a b","event_payload":{}}`),
			"invalid_metadata_schema"},
		{post, form("channel", "C01", "text", "x", "metadata", `{"event_type":"a","event_payload":[]}`),
			"invalid_metadata_schema"},
		{post, form("channel", "C01", "text", "x", "metadata",
			`{"event_type":"a","event_payload":{"a":"`+long(9000)+`"}}`), "metadata_too_large"},
		{"chat.update", form("channel", "C01", "ts", "1.000001", "text", "x"), "message_not_found"},
		{"chat.update", form("channel", "C01", "ts", ts, "text", "x"), "cant_update_message"},
		{"chat.postEphemeral", form("channel", "C01", "user", "U99", "text", "x"), "user_not_in_channel"},
		{"reactions.add", form("channel", "C01", "timestamp", ts, "name", ":eyes:"), "invalid_name"},
		{"reactions.add", form("channel", "C01", "timestamp", "1.000001", "name", "eyes"), "message_not_found"},
		{"reactions.remove", form("channel", "C01", "timestamp", ts, "name", "eyes"), "no_reaction"},
		{"reactions.add", form("channel", "C01", "timestamp", ts, "name", "eyes"), "ok"},
		{"reactions.add", form("channel", "C01", "timestamp", ts, "name", "eyes"), "already_reacted"},
		{"reactions.remove", form("channel", "C01", "timestamp", ts, "name", "eyes"), "ok"},
	} {
		if status, got, body := call(t, s, c.method, c.form); got != c.want || status != 200 {
			t.Errorf("%s %.200v: %d %s, want %s", c.method, c.form, status, body, c.want)
		}
	}
	// An edit may be shorter than a message.
	_, _, body := call(t, s, post, form("channel", "C01", "text", "mine"))
	var posted struct {
		TS string `json:"ts"`
	}
	if err := json.Unmarshal(body, &posted); err != nil {
		t.Fatal(err)
	}
	if _, got, _ := call(t, s, "chat.update", form("channel", "C01", "ts", posted.TS, "text", long(4001))); got != "msg_too_long" {
		t.Errorf("an edit of 4,001 characters: %s", got)
	}
	if n := len(s.Forgive()); n != 20 {
		t.Errorf("%d complaints", n)
	}
}

func TestCheckBlocks(t *testing.T) {
	long := func(n int) string { return strings.Repeat("é", n) }
	button := func(fields string) string {
		return `{"type":"actions","elements":[{"type":"button","text":{"type":"plain_text","text":"Stop"}` + fields + `}]}`
	}
	for _, c := range []struct {
		block string
		wrong string // "" when it is good
	}{
		{`{"type":"divider"}`, ""},
		{`{"type":"header","text":{"type":"plain_text","text":"` + long(150) + `"}}`, ""},
		{`{"type":"header","text":{"type":"plain_text","text":"` + long(151) + `"}}`,
			"must be less than 151 characters [json-pointer:/blocks/0/text/text]"},
		{`{"type":"header","text":{"type":"mrkdwn","text":"x"}}`,
			"must be one of plain_text [json-pointer:/blocks/0/text/type]"},
		{`{"type":"section"}`, "missing required field: text [json-pointer:/blocks/0]"},
		{`{"type":"section","text":{"type":"mrkdwn","text":""}}`,
			"must be more than 0 characters [json-pointer:/blocks/0/text/text]"},
		{`{"type":"section","text":{"type":"mrkdwn","text":"x"},"blocks":[]}`,
			"invalid additional property: blocks [json-pointer:/blocks/0]"},
		{`{"type":"section","fields":[{"type":"mrkdwn","text":"` + long(2001) + `"}]}`,
			"must be less than 2001 characters [json-pointer:/blocks/0/fields/0/text]"},
		{`{"type":"section","text":{"type":"mrkdwn","text":"x"},"block_id":"` + long(256) + `"}`,
			"must be less than 256 characters [json-pointer:/blocks/0/block_id]"},
		{`{"type":"context","elements":[]}`, "no less than 1 items allowed [json-pointer:/blocks/0/elements]"},
		{`{"type":"context","elements":[{"type":"mrkdwn","text":"x"},{"type":"image","image_url":"https://example.com/x.png","alt_text":"x"}]}`, ""},
		{button(``), ""},
		{button(`,"value":"` + long(2000) + `","action_id":"` + long(255) +
			`","style":"danger","url":"https://example.com"`), ""},
		{button(`,"value":"` + long(2001) + `"`),
			"must be less than 2001 characters [json-pointer:/blocks/0/elements/0/value]"},
		{button(`,"action_id":"` + long(256) + `"`),
			"must be less than 256 characters [json-pointer:/blocks/0/elements/0/action_id]"},
		{button(`,"style":"red"`), "must be one of primary, danger [json-pointer:/blocks/0/elements/0/style]"},
		{button(`,"confirm":{"title":{"type":"plain_text","text":"Sure?"},"text":{"type":"mrkdwn","text":"x"},"confirm":{"type":"plain_text","text":"` + long(31) + `"},"deny":{"type":"plain_text","text":"No"}}`), "must be less than 31 characters [json-pointer:/blocks/0/elements/0/confirm/confirm/text]"},
		{`{"type":"actions","elements":[{"type":"button","text":{"type":"plain_text","text":"` + long(76) + `"}}]}`,
			"must be less than 76 characters [json-pointer:/blocks/0/elements/0/text/text]"},
		{`{"type":"actions","elements":[{"type":"static_select","action_id":"repo","placeholder":{"type":"plain_text","text":"x"},"options":[{"text":{"type":"plain_text","text":"x"},"value":"x"}]}]}`, ""},
		{`{"type":"actions","elements":[{"type":"static_select","options":[{"text":{"type":"plain_text","text":"x"},"value":"` + long(151) + `"}]}]}`, "must be less than 151 characters [json-pointer:/blocks/0/elements/0/options/0/value]"},
		{`{"type":"image","image_url":"https://example.com/x.png"}`,
			"missing required field: alt_text [json-pointer:/blocks/0]"},
		{`{"type":"markdown","text":"*x*"}`, ""},
		{`{"type":"marquee"}`, "unsupported type: marquee [json-pointer:/blocks/0/type]"},
		{`7`, "must be an object [json-pointer:/blocks/0]"},
	} {
		got := strings.Join(slacktest.CheckBlocks([]byte("["+c.block+"]")), "\n")
		if got != c.wrong {
			t.Errorf("%.300s:\n%s\nwant\n%s", c.block, got, c.wrong)
		}
	}
	twice := `{"type":"divider","block_id":"a"}`
	if got := slacktest.CheckBlocks([]byte("[" + twice + "," + twice + "]")); len(got) != 1 {
		t.Errorf("two blocks of one id: %q", got)
	}
}

// TestDelivery: signed, three seconds, three repetitions with their reasons.
func TestDelivery(t *testing.T) {
	giveUp := make(chan struct{})
	s := slacktest.New(t, func(s *slacktest.Server) { s.GiveUp = giveUp })
	var mu sync.Mutex // guards the two below
	var seen []http.Header
	status := func(int) int { return 500 }
	hang := make(chan struct{})
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = slack.Verify(s.SigningSecret, r.Header, body, time.Now())
		}
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		seen = append(seen, r.Header)
		n := status(len(seen))
		mu.Unlock()
		switch n {
		case 0:
			giveUp <- struct{}{}
			<-hang
		case 1:
			w.Header().Set("X-Slack-No-Retry", "1")
			w.WriteHeader(500)
		default:
			w.WriteHeader(n)
		}
	}))
	defer app.Close()
	defer close(hang)
	s.SetRequestURLs(app.URL, app.URL, app.URL)
	ts := s.Write("U01", "C01", "", "<@U0RAMUS> test")
	deliver := func(answers func(int) int) []slacktest.Attempt {
		mu.Lock()
		seen, status = nil, answers
		mu.Unlock()
		return s.Deliver(t.Context(), s.Envelopes("C01", ts)[0])
	}
	for _, c := range []struct {
		name    string
		answers func(int) int
		reasons []string // of the attempts
		last    int      // status
	}{
		{"at once", func(int) int { return 200 }, []string{""}, 200},
		{"the third time", func(n int) int { return map[int]int{1: 500, 2: 404, 3: 204}[n] },
			[]string{"", "http_error", "http_error"}, 204},
		{"never", func(int) int { return 503 }, []string{"", "http_error", "http_error", "http_error"}, 503},
		{"after a hang", func(n int) int { return map[int]int{1: 0, 2: 200}[n] }, []string{"", "http_timeout"}, 200},
		{"not again", func(int) int { return 1 }, []string{""}, 500},
	} {
		attempts := deliver(c.answers)
		if len(attempts) != len(c.reasons) || attempts[len(attempts)-1].Status != c.last {
			t.Errorf("%s: %+v", c.name, attempts)
			continue
		}
		for i, reason := range c.reasons {
			num := ""
			if i > 0 {
				num = fmt.Sprint(i)
			}
			if h := seen[i]; h.Get("X-Slack-Retry-Reason") != reason || h.Get("X-Slack-Retry-Num") != num {
				t.Errorf("%s: attempt %d says %q %q", c.name, i, h.Get("X-Slack-Retry-Num"), h.Get("X-Slack-Retry-Reason"))
			}
		}
	}
	s.SetRequestURLs("http://127.0.0.1:1", "", "")
	attempts := s.Deliver(t.Context(), s.Envelopes("C01", ts)[0])
	if len(attempts) != 4 || attempts[3].Reason != "connection_failed" {
		t.Errorf("nobody listens: %+v", attempts)
	}
}

func TestSayDelivers(t *testing.T) {
	s := slacktest.New(t)
	var mu sync.Mutex // guards got
	got := map[string]int{}
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		d, err := slack.ParseEvent(body, "")
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case d.Mention != nil:
			got["mention "+d.Mention.Key()]++
		case d.Reply != nil:
			got["reply "+d.Reply.Key()]++
		default:
			got["none"]++
		}
	}))
	defer app.Close()
	s.SetRequestURLs(app.URL, app.URL, app.URL)
	parent := s.Say("U01", "C01", "", "<@U0RAMUS> test")
	reply := s.Say("U02", "C01", parent, "thanks")
	direct := s.Say("U01", "D01", "", "test")
	s.Say("U01", "C03", "", "<@U0RAMUS> not a member")
	_, _, _ = call(t, s, "chat.postMessage", form("channel", "C01", "thread_ts", parent, "text", "mine"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Until(ctx, func() bool { return len(s.Attempts()) == 5 }); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if got["mention C01:"+parent] != 2 || got["reply C01:"+reply] != 1 || got["mention D01:"+direct] != 1 ||
		got["none"] != 1 || len(got) != 4 {
		t.Errorf("%v", got)
	}
}

func TestStampsDiffer(t *testing.T) {
	now := time.Unix(1700000000, 0)
	s := slacktest.New(t, func(s *slacktest.Server) { s.Now = func() time.Time { return now } })
	seen := map[string]bool{}
	for range 1000 {
		seen[s.Write("U01", "C01", "", "x")] = true
	}
	if len(seen) != 1000 || !seen["1700000000.000001"] {
		t.Errorf("%d stamps", len(seen))
	}
}

// TestFaults: what a method is told to do wrong, and what was done all the same.
func TestFaults(t *testing.T) {
	s := slacktest.New(t)
	post := func() (int, string) {
		status, code, _ := call(t, s, "chat.postMessage", form("channel", "C01", "text", "x"))
		return status, code
	}
	s.Fail(
		slacktest.Fault{Method: "chat.postMessage", RetryAfter: 2 * time.Second},
		slacktest.Fault{Method: "chat.postMessage", Status: 502},
		slacktest.Fault{Method: "chat.postMessage", Error: "fatal_error"},
		slacktest.Fault{Method: "chat.postMessage", Cut: true},
		slacktest.Fault{Method: "chat.postMessage", Lose: true},
	)
	if status, code := post(); status != 429 || code != "ratelimited" {
		t.Errorf("rate-limited: %d %s", status, code)
	}
	if status, _ := post(); status != 502 {
		t.Errorf("502: %d", status)
	}
	if _, code := post(); code != "fatal_error" {
		t.Errorf("fatal_error: %s", code)
	}
	for range 2 {
		if status, _ := post(); status != 0 {
			t.Errorf("cut: %d", status)
		}
	}
	if n := len(s.Messages("C01")); n != 1 {
		t.Errorf("%d messages, want that of the lost answer alone", n)
	}
	if _, code := post(); code != "ok" {
		t.Errorf("after the faults: %s", code)
	}
	s.Down()
	if status, _ := post(); status != 0 {
		t.Errorf("down: %d", status)
	}
	if err := s.Up(); err != nil {
		t.Fatal(err)
	}
	if _, code := post(); code != "ok" {
		t.Errorf("up again: %s", code)
	}
	if all := s.Requests(); len(all) != 7 || all[0].Form.Has("token") || all[0].Method != "chat.postMessage" ||
		len(all[0].Body) == 0 || all[4].Status != 0 {
		t.Errorf("%d requests: %+v", len(all), all)
	}
}
