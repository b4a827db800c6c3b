package slack_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/internal/standin/slacktest"
)

func TestThread(t *testing.T) {
	s, c, _ := start(t)
	ctx := deadline(t)
	parent := s.Write("U01", "C01", "", "the build is <https://example.com/1|red> &amp; <@U02> knows",
		slacktest.File{ID: "F1", Name: "log.txt", MIME: "text/plain", Data: []byte("log")})
	s.Write("U02", "C01", parent, "<@U0RAMUS> test")
	if _, err := c.Post(ctx, slack.Message{Channel: "C01", ThreadTS: parent, Text: "on it", Mark: mark}, false); err != nil {
		t.Fatal(err)
	}
	s.Write("U03", "C01", parent, "ask <@U99>")
	s.Write("U01", "C01", "", "not in the thread")

	th, err := c.Thread(ctx, "T01", "C01", parent)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(th, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	for i := range th.Replies {
		th.Replies[i].TS = ""
	}
	want := []slack.Post{
		{User: "U02", Name: "second", Text: "@ramus test"},
		{User: "U0RAMUS", Name: "ramus", Bot: true, Own: true, Mark: &mark, Text: "on it"},
		{User: "U03", Name: "third", Text: "ask @U99"},
	}
	if !reflect.DeepEqual(th.Replies, want) || th.Omitted != 0 {
		t.Errorf("replies: %s", got)
	}
	if p := th.Parent; p.User != "U01" || p.Name != "first" ||
		p.Text != "the build is red (https://example.com/1) & @second knows" || len(p.Files) != 1 ||
		p.Files[0].Name != "log.txt" || p.Files[0].Size != 3 {
		t.Errorf("parent: %s", got)
	}
	if strings.Contains(string(got), "/files/") {
		t.Errorf("the way to a file is told: %s", got)
	}
	asked := s.Count("users.info")
	if _, err := c.Thread(ctx, "T01", "C01", parent); err != nil || s.Count("users.info") != asked {
		t.Errorf("a second reading asks for names again: %v", err)
	}
	for _, q := range s.Requests() {
		if strings.Contains(q.Header.Get("Authorization")+string(q.Body), s.Token) == false {
			t.Errorf("%s without a token", q.Method)
		}
	}
}

// TestName returns the name of a user, of which Slack is asked once, and none for a stranger.
func TestName(t *testing.T) {
	s, c, _ := start(t)
	if name := c.KnownName("U01"); name != "" || s.Count("users.info") != 0 {
		t.Errorf("%q is known before Slack was asked", name)
	}
	for range 2 {
		if name, err := c.Name(t.Context(), "U01"); name != "first" || err != nil {
			t.Errorf("%q %v", name, err)
		}
		if name := c.KnownName("U01"); name != "first" {
			t.Errorf("%q is known", name)
		}
		if name, err := c.Name(t.Context(), "U0STRANGER"); name != "" || err != nil {
			t.Errorf("%q %v", name, err)
		}
	}
	if n := s.Count("users.info"); n != 2 {
		t.Errorf("Slack was asked %d times", n)
	}
	if name, err := c.Name(t.Context(), "not an id"); name != "" || err != nil {
		t.Errorf("%q %v", name, err)
	}
}

// TestFirstCall asks for a user with a client that has made no call and has no clock.
func TestFirstCall(t *testing.T) {
	s, c, _ := start(t)
	s.SetEmail("U01", "first@example.org")
	fresh := func() *slack.Client { return &slack.Client{URL: c.URL, Token: c.Token, HTTP: c.HTTP, Log: c.Log} }
	if name, err := fresh().Name(t.Context(), "U01"); name != "first" || err != nil {
		t.Errorf("%q %v", name, err)
	}
	if mail, err := fresh().Email(t.Context(), "U01"); mail != "first@example.org" || err != nil {
		t.Errorf("%q %v", mail, err)
	}
}

func TestThreadIsPaged(t *testing.T) {
	s, c, _ := start(t)
	parent := s.Write("U01", "C01", "", "parent")
	for i := range 450 {
		s.Write("U02", "C01", parent, fmt.Sprint(i))
	}
	th, err := c.Thread(deadline(t), "T01", "C01", parent)
	if err != nil || len(th.Replies) != 450 || th.Omitted != 0 || th.Parent.Text != "parent" {
		t.Fatalf("%d replies, %d omitted, %v", len(th.Replies), th.Omitted, err)
	}
	for i, p := range th.Replies {
		if p.Text != fmt.Sprint(i) {
			t.Fatalf("reply %d is %q", i, p.Text)
		}
	}
	if n := s.Count("conversations.replies"); n != 3 {
		t.Errorf("%d pages", n)
	}
}

func TestLongThreadKeepsTheNewest(t *testing.T) {
	s, c, _ := start(t)
	parent := s.Write("U01", "C01", "", "parent")
	const replies = 2500
	for i := range replies {
		s.Write("U02", "C01", parent, fmt.Sprint(i))
	}
	th, err := c.Thread(deadline(t), "T01", "C01", parent)
	if err != nil || len(th.Replies) != 999 || th.Omitted != replies-999 || th.Replies[998].Text != fmt.Sprint(replies-1) {
		t.Fatalf("%d replies, %d omitted, %v", len(th.Replies), th.Omitted, err)
	}
}

// TestThreadWhileLimited: pages come slowly, and all of them come.
func TestThreadWhileLimited(t *testing.T) {
	s, c, clock := start(t)
	s.Limit("conversations.replies", 1)
	s.Fail(slacktest.Fault{Method: "conversations.replies", Cut: true, Skip: 1},
		slacktest.Fault{Method: "users.info", Status: 503})
	parent := s.Write("U01", "C01", "", "parent")
	for range 399 {
		s.Write("U02", "C01", parent, "x")
	}
	began := clock.Now()
	th, err := c.Thread(deadline(t), "T01", "C01", parent)
	if err != nil || len(th.Replies) != 399 || th.Parent.Name != "first" {
		t.Fatalf("%d replies, %v", len(th.Replies), err)
	}
	if waited := clock.Now().Sub(began); waited < time.Minute {
		t.Errorf("it took %v", waited)
	}
}

func TestThreadThatIsGone(t *testing.T) {
	s, c, _ := start(t)
	ctx := deadline(t)
	parent := s.Write("U01", "C01", "", "parent")
	s.Write("U02", "C01", parent, "x")
	s.Delete("C01", parent)
	_, err := c.Thread(ctx, "T01", "C01", parent)
	var refused *slack.RefusedError
	if !errors.As(err, &refused) || refused.Code != "thread_not_found" {
		t.Errorf("Thread: %v", err)
	}
	if _, found, err := c.Find(ctx, "C01", parent, mark); found || err != nil {
		t.Errorf("Find: %v, %v", found, err)
	}
}

// TestForeignMark: another app's message with the same metadata is not taken for ramus's.
func TestForeignMark(t *testing.T) {
	s, c, _ := start(t)
	ctx := deadline(t)
	parent := s.Write("U01", "C01", "", "parent")
	payload, err := json.Marshal(mark)
	if err != nil {
		t.Fatal(err)
	}
	s.WriteAs("B99", "C01", parent, "done!", &slacktest.Metadata{Type: "ramus_message", Payload: payload})
	if _, found, err := c.Find(ctx, "C01", parent, mark); found || err != nil {
		t.Errorf("Find: %v, %v", found, err)
	}
	th, err := c.Thread(ctx, "T01", "C01", parent)
	if err != nil || len(th.Replies) != 1 || th.Replies[0].Own || th.Replies[0].Mark != nil || !th.Replies[0].Bot {
		t.Errorf("%+v, %v", th.Replies, err)
	}
}

// TestWhatBotsSay: blocks and attachments speak where there is no text.
func TestWhatBotsSay(t *testing.T) {
	page := func(message string) string {
		return `{"ok":true,"messages":[{"ts":"1.000001","user":"U01","text":"parent"},` + message +
			`],"response_metadata":{"next_cursor":""}}`
	}
	for _, c := range []struct{ message, want string }{
		{`{"ts":"1.000002","bot_id":"B1","text":"","blocks":[{"type":"header","text":{"type":"plain_text","text":"Build 7"}},
			{"type":"section","text":{"type":"mrkdwn","text":"failed &amp; <https://example.com|gone>"},"fields":[{"type":"mrkdwn","text":"*a*"},{"type":"mrkdwn","text":"b"}],"accessory":{"type":"button"}},
			{"type":"divider"},{"type":"actions","elements":[{"type":"button","text":{"type":"plain_text","text":"Retry"}}]},
			{"type":"context","elements":[{"type":"mrkdwn","text":"one"},{"type":"image","alt_text":"x"},{"type":"mrkdwn","text":"two"}]}]}`,
			"Build 7\nfailed & gone (https://example.com) *a* b\none  two"},
		{`{"ts":"1.000002","bot_id":"B1","blocks":[{"type":"rich_text","elements":[{"type":"rich_text_section","elements":[{"type":"text","text":"see <b> "},
			{"type":"user","user_id":"U02"},{"type":"text","text":" "},{"type":"link","url":"https://example.com/x"},{"type":"emoji","name":"eyes"}]},
			{"type":"rich_text_preformatted","elements":[{"type":"text","text":"go test"}]}]}]}`,
			"see <b> @second https://example.com/x:eyes:\ngo test"},
		{`{"ts":"1.000002","user":"U01","text":"look","attachments":[{"text":"forwarded","fallback":"no"},{"fallback":"[no preview]"},{"blocks":[{"type":"section","text":{"type":"mrkdwn","text":"in blocks"}}],"fallback":"no"}]}`,
			"look\nforwarded\n[no preview]\nin blocks"},
		{`{"ts":"1.000002","user":"U01","text":"odd","blocks":{"not":"a list"},"files":[{"id":"F1","mode":"tombstone"},{"id":"F2","title":"a title","size":3}],"metadata":{"event_type":"x","event_payload":7}}`, "odd"},
		{`{"ts":"1.000002","user":"U01","text":7}`, ""},
		{`{"ts":"soon","user":"U01","text":"unreadable"},{"ts":"1.000002","user":"U01","text":"later"}`, "later"},
		{`{"ts":"1.000002","user":"U01","text":"look at this","attachments":[{"title":"look","text":"at this"},{"text":"and this"}]}`, "look at this\nand this"},
	} {
		_, client, clock := start(t)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch path.Base(r.URL.Path) {
			case "auth.test":
				_, _ = io.WriteString(w, `{"ok":true,"team_id":"T01","user_id":"U0RAMUS","bot_id":"B0RAMUS"}`)
			case "users.info":
				_ = r.ParseForm()
				if r.Form.Get("user") == "" {
					t.Error("Slack was asked for the name of nobody")
				}
				_, _ = io.WriteString(w, `{"ok":true,"user":{"id":"U","name":"n","profile":{"display_name":"`+
					map[string]string{"U01": "first", "U02": "second"}[r.Form.Get("user")]+`"}}}`)
			default:
				_, _ = io.WriteString(w, page(c.message))
			}
		}))
		api := &slack.Client{URL: s.URL, Token: "x", HTTP: client.HTTP, Log: client.Log, Now: clock.Now, Sleep: clock.Sleep}
		th, err := api.Thread(deadline(t), "T01", "C01", "1.000001")
		if err != nil || len(th.Replies) != 1 || th.Replies[0].Text != c.want {
			t.Errorf("%s: %+v, %v; want %q", c.message, th.Replies, err, c.want)
		}
		client.HTTP.CloseIdleConnections()
		s.Close()
	}
}

func TestDownload(t *testing.T) {
	s, c, _ := start(t)
	ctx := deadline(t)
	parent := s.Write("U01", "C01", "", "see",
		slacktest.File{ID: "F1", Name: "shot one.png", MIME: "image/png", Data: []byte("0123456789")})
	th, err := c.Thread(ctx, "T01", "C01", parent)
	if err != nil {
		t.Fatal(err)
	}
	file := th.Parent.Files[0]
	s.Fail(slacktest.Fault{Method: "/files/F1/download/shot_one.png", Status: 503},
		slacktest.Fault{Method: "/files/F1/download/shot_one.png", Cut: true})
	data, err := c.Download(ctx, file, 10)
	if err != nil || string(data) != "0123456789" {
		t.Fatalf("%q, %v", data, err)
	}
	refused := func(what, code string, c *slack.Client, f slack.File, most int64) {
		t.Helper()
		_, err := c.Download(ctx, f, most)
		var r *slack.RefusedError
		if !errors.As(err, &r) || r.Code != code {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("too large, says Slack", "file_too_large", c, file, 9)
	unknown := file
	unknown.Size = 0
	refused("too large, as it turns out", "file_too_large", c, unknown, 9)
	foreign := file
	foreign.Download = "https://files.slack.com.example.com/x"
	refused("kept elsewhere", "foreign_url", c, foreign, 10)
	foreign.Download = "https://user@slack.com/x"
	refused("with a user", "foreign_url", c, foreign, 10)
	foreign.Download = "http://slack.com/x"
	refused("in the clear", "foreign_url", c, foreign, 10)
	gone := file
	gone.Download = s.URL() + "/files/F2"
	refused("gone", "status 404", c, gone, 10)
	before := len(s.Requests())
	other := &slack.Client{URL: s.API(), Token: "xoxb-other", HTTP: c.HTTP, Now: c.Now, Sleep: c.Sleep}
	refused("without the scope", "not_readable", other, file, 10)
	if n := len(s.Requests()) - before; n != 1 {
		t.Errorf("%d requests", n)
	}
}

func TestEphemeralAndRespond(t *testing.T) {
	var shown []slacktest.Change
	s, c, _ := start(t)
	ctx := deadline(t)
	s.On = func(change slacktest.Change) { shown = append(shown, change) }
	if err := c.Ephemeral(ctx, "C01", "", "U01", "only you"); err != nil {
		t.Fatal(err)
	}
	if err := c.Ephemeral(ctx, "C01", "", "U99", "nobody"); !errors.Is(err, slack.ErrRefused) {
		t.Errorf("Ephemeral to nobody: %v", err)
	}
	if len(shown) != 1 || shown[0].Kind != "ephemeral" || shown[0].User != "U01" || shown[0].Message.Text != "only you" {
		t.Errorf("shown: %+v", shown)
	}

	address := s.ResponseURL("C01", "U01")
	s.Fail(slacktest.Fault{Method: strings.TrimPrefix(address, s.URL()), RetryAfter: time.Second})
	for range 5 {
		if err := c.Respond(ctx, address, "here"); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Respond(ctx, address, "once more"); !errors.Is(err, slack.ErrRefused) {
		t.Errorf("the sixth answer: %v", err)
	}
	if all := s.Responses(); len(all) != 5 || all[0].Text != "here" || all[0].Type != "ephemeral" {
		t.Errorf("responses: %+v", all)
	}
	for _, foreign := range []string{"https://hooks.slack.com.example.com/x", "http://127.0.0.1:1/x",
		"file:///etc/passwd", "https://slack.com:8443/", ":"} {
		if err := c.Respond(ctx, foreign, "x"); !errors.Is(err, slack.ErrRefused) {
			t.Errorf("Respond at %s: %v", foreign, err)
		}
	}
}
