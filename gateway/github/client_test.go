package github_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/github"
)

var repo = github.Name{Owner: "acme", Repo: "app"}

// hub is GitHub as far as one test needs it, with answers in the order in which
// they are asked for.
type hub struct {
	t    *testing.T
	mux  *http.ServeMux
	http *httptest.Server

	mu    sync.Mutex // guards asked
	asked []string   // method, path and query of every request
}

func newHub(t *testing.T) (*hub, *github.Client) {
	t.Helper()
	h := &hub{t: t, mux: http.NewServeMux()}
	h.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.asked = append(h.asked, r.Method+" "+r.URL.RequestURI())
		h.mu.Unlock()
		if r.Header.Get("Authorization") != "Bearer "+secretToken {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.mux.ServeHTTP(w, r)
	}))
	t.Cleanup(h.http.Close)
	c := &clock{now: time.Unix(1700000000, 0)}
	client := &github.Client{URL: h.http.URL + "/api/v3", Tokens: github.Token(secretToken), Log: slog.New(slog.DiscardHandler), Now: c.Now,
		Sleep: func(ctx context.Context, d time.Duration) error {
			c.move(d)
			return context.Cause(ctx)
		}}
	h.answer("GET /user", `{"login":"ramus"}`)
	return h, client
}

const secretToken = "ghp_0123456789"

func (h *hub) handle(pattern string, f func(w http.ResponseWriter, r *http.Request)) {
	method, path, _ := strings.Cut(pattern, " ")
	h.mux.HandleFunc(method+" /api/v3"+path, f)
}

func (h *hub) answer(pattern, body string) {
	h.handle(pattern, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, body) })
}

func (h *hub) count(prefix string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range h.asked {
		if strings.HasPrefix(a, prefix) {
			n++
		}
	}
	return n
}

// say answers with a status and GitHub's message.
func say(w http.ResponseWriter, status int, message string, header ...string) {
	for i := 0; i < len(header); i += 2 {
		w.Header().Set(header[i], header[i+1])
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": message})
}

func TestSayOnce(t *testing.T) {
	h, c := newHub(t)
	var posted []string
	h.handle("GET /repos/acme/app/issues/7/comments", func(w http.ResponseWriter, r *http.Request) {
		var list []map[string]any
		for i, body := range posted {
			list = append(list, map[string]any{"id": i + 1, "body": body + "\r\n", "user": map[string]any{"login": "Ramus"}})
		}
		_ = json.NewEncoder(w).Encode(list)
	})
	h.handle("POST /repos/acme/app/issues/7/comments", func(w http.ResponseWriter, r *http.Request) {
		var ask struct{ Body string }
		_ = json.NewDecoder(r.Body).Decode(&ask)
		posted = append(posted, ask.Body)
		say(w, http.StatusBadGateway, "no") // it was done, and nobody hears of it
	})
	for range 3 {
		got, err := c.Say(t.Context(), repo, 7, "done", "task/1")
		if err != nil || got.ID != 1 || !got.Issue {
			t.Fatal(got, err)
		}
	}
	if len(posted) != 1 || !strings.HasPrefix(posted[0], "done\n\n<!-- ramus:") {
		t.Errorf("posted %q", posted)
	}
	if n := h.count("GET /api/v3/user"); n != 1 {
		t.Errorf("asked %d times who ramus is", n)
	}
	if _, err := c.Say(t.Context(), repo, 7, "done", ""); err == nil {
		t.Error("posted without a mark")
	}
}

func TestErrors(t *testing.T) {
	for _, one := range []struct {
		status int
		header []string
		want   error
	}{
		{404, nil, github.ErrNotFound}, {410, nil, github.ErrNotFound}, {403, nil, github.ErrRefused}, {422, nil, github.ErrRefused},
		{451, nil, github.ErrRefused}, {401, nil, github.ErrRefused}, {403, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1700000100"}, nil},
		{429, []string{"Retry-After", "7"}, nil}, {403, []string{"Retry-After", "7"}, nil}, {429, nil, nil}, {500, nil, nil}, {502, nil, nil}, {503, []string{"Retry-After", "3"}, nil},
	} {
		t.Run(fmt.Sprint(one.status, one.header), func(t *testing.T) {
			h, c := newHub(t)
			n := 0
			h.handle("GET /repos/acme/app/pulls/7", func(w http.ResponseWriter, r *http.Request) {
				if n++; n < 3 {
					say(w, one.status, "the message", one.header...)
					return
				}
				_, _ = io.WriteString(w, `{"number":7,"state":"open"}`)
			})
			p, err := c.Pull(t.Context(), repo, 7)
			if one.want == nil {
				if err != nil || p.Number != 7 || n != 3 {
					t.Error(p, err, n)
				}
				return
			}
			if !errors.Is(err, one.want) || n != 1 || !strings.Contains(err.Error(), "the message") {
				t.Error(p, err, n)
			}
		})
	}
}
