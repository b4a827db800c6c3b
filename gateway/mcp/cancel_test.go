package mcp

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/gather"
	"github.com/ramus-dev/ramus/gateway/route"
)

// peer is the other one of two replicas. It answers calls of tools when their request ends.
type peer struct {
	gather.Others
	api     *API
	begins  string        // what it answers before it waits
	waiting chan struct{} // gets a value when it waits
	ended   chan error    // gets the error of each request that has ended
}

func (p *peer) Ask(ctx context.Context, who route.Who, question string, body []byte) []gather.Answer {
	_, err := p.api.Desk.Answer(ctx, who, question, body)
	return []gather.Answer{{Of: p.api.Desk.Name, Body: []byte("{}"), Err: err}}
}

func (p *peer) Pass(*http.Request, gather.Work, bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.begins != "" {
			_, _ = io.WriteString(w, p.begins)
			_ = http.NewResponseController(w).Flush()
		}
		p.waiting <- struct{}{}
		<-r.Context().Done()
		p.ended <- context.Cause(r.Context())
		if p.begins != "" {
			panic(http.ErrAbortHandler) // as the proxy does
		}
	})
}

func (p *peer) PassTo(string, bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
}

// TestCancelAtOtherReplica calls a tool at one replica, whose work is at the other, and cancels the call at the other.
func TestCancelAtOtherReplica(t *testing.T) {
	for name, begins := range map[string]string{"before its answer begins": "", "after its answer has begun": "data: {}\n\n"} {
		t.Run(name, func(t *testing.T) {
			a, b := &API{}, &API{}
			p := &peer{api: b, begins: begins, waiting: make(chan struct{}, 1), ended: make(chan error, 1)}
			a.Desk = &gather.Desk{Name: "a", Others: p}
			b.Desk = &gather.Desk{Name: "b", Others: &peer{api: a}}
			send := func(api *API, subject, body string) *http.Response {
				s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if err := api.serve(&route.Call{W: w, R: r, Who: route.Who{Subject: subject, Repo: "*"}}); err != nil {
						t.Error(err)
					}
				}))
				t.Cleanup(s.Close)
				r, _ := http.NewRequestWithContext(t.Context(), "POST", s.URL, strings.NewReader(body))
				r.Header.Set(sessionHeader, "b.session")
				answer, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Error(err)
					return nil
				}
				t.Cleanup(func() { _ = answer.Body.Close() })
				return answer
			}
			a.setUp()
			b.setUp()

			answered := make(chan string, 1)
			go func() {
				answer := send(a, "ada", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"get_run","arguments":{"run":"x/y"}}}`)
				text, err := io.ReadAll(answer.Body)
				if err != nil {
					t.Errorf("the answer breaks off: %v", err)
				}
				answered <- answer.Status + " " + answer.Header.Get("Content-Type") + " " + string(text)
			}()
			<-p.waiting
			cancel := func(id string) string {
				b, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": map[string]any{"requestId": json.RawMessage(id)}})
				return string(b)
			}
			send(b, "bob", cancel("7")) // another person
			send(b, "ada", cancel("8"))
			select {
			case text := <-answered:
				t.Fatalf("somebody else's message ended the call: %s", text)
			case <-time.After(50 * time.Millisecond):
			}
			if got := send(b, "ada", cancel("7")); got.StatusCode != http.StatusAccepted {
				t.Errorf("the replica of the session did not get the message: %s", got.Status)
			}
			if err := <-p.ended; err != errCancelled {
				t.Errorf("the request ended with %v", err)
			}
			if text := <-answered; !strings.HasPrefix(text, "200 OK text/") || strings.Contains(text, "jsonrpc") {
				t.Errorf("the cancelled call was answered by %q", text)
			}
			if len(a.calls.calls) != 0 {
				t.Errorf("the replica keeps %v", a.calls.calls)
			}
		})
	}
}

// TestReadMessage reads the messages that decide which replica answers.
func TestReadMessage(t *testing.T) {
	for body, want := range map[string]gather.Work{
		`{"method":"tools/call","params":{"name":"get_run","arguments":{"run":"x"}}}`:            {Run: "x"},
		`{"method":"tools/call","params":{"name":"get_run","arguments":{"run":1,"repo":"app"}}}`: {},
		`{"method":"tools/call","params":{"name":"get_run","arguments":{"id":"x"}}}`:             {},
		`{"method":"tools/call","params":{"name":"revoke_share","arguments":{"id":"x"}}}`:        {Link: "x"},
		`{"method":"tools/call","params":{"name":"diff","arguments":{"of":"x@3"}}}`:              {Run: "x"},
		`{"method":"tools/call","params":null}`:                                                  {},
		`[{"method":"tools/call"}]`:                                                              {},
		`{`:                                                                                      {},
	} {
		if got := readMessage([]byte(body)).Params.Arguments.work(route.Who{Repo: "*"}); got != want {
			t.Errorf("%s names %+v, want %+v", body, got, want)
		}
	}
}
