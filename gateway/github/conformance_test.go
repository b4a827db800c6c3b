package github_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/forge/forgetest"
	"github.com/ramus-dev/ramus/gateway/github"
	"github.com/ramus-dev/ramus/internal/standin/githubtest"
)

// TestConformance runs the suite of forges.
func TestConformance(t *testing.T) {
	forgetest.Run(t, func(t *testing.T) forgetest.World {
		hub := githubtest.New(t, func(s *githubtest.Server) { s.Hourly, s.PostsPerMinute = -1, -1 })
		hub.AddUser("visitor", "read")
		r, err := hub.AddRepo("app", "")
		if err != nil {
			t.Fatal(err)
		}
		return &shared{t, hub, r}
	})
}

// shared is the stand-in of GitHub as a world of the suite.
type shared struct {
	t   *testing.T
	hub *githubtest.Server
	r   *githubtest.Repo
}

func (w *shared) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *shared) Client(rt http.RoundTripper) forge.Forge {
	h := &http.Client{Transport: rt}
	return &github.Client{URL: w.hub.API(), HTTP: h, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Sleep:  forgetest.Sleep,
		Tokens: &github.App{ID: w.hub.App, Installation: w.hub.Installation, Key: w.hub.Key, URL: w.hub.API()}}
}

func (w *shared) Repo() forge.Name { return forge.Name{Owner: w.hub.Account, Repo: "app"} }
func (w *shared) Writer() string   { return "reviewer" }
func (w *shared) Reader() string   { return "visitor" }

func (w *shared) Push(branch string, files map[string]string) string {
	w.t.Helper()
	sha, err := w.r.Push("reviewer", branch, "Change", files)
	w.must(err)
	return sha
}

func (w *shared) Review(number int, state, body string, lines ...forgetest.Line) {
	w.t.Helper()
	var on []githubtest.Line
	for _, l := range lines {
		on = append(on, githubtest.Line{Path: l.Path, Line: l.Line, Body: l.Body})
	}
	_, err := w.r.Review("reviewer", number, state, body, on...)
	w.must(err)
}

func (w *shared) Comment(user string, number int, body string) {
	w.t.Helper()
	_, err := w.r.Comment(user, number, body)
	w.must(err)
}

func (w *shared) Status(commit, name, state string) {
	w.t.Helper()
	k := githubtest.Check{Name: name, Conclusion: state}
	if state == "pending" {
		k.Conclusion = ""
	}
	_, err := w.r.Check(commit, k)
	w.must(err)
}

func (w *shared) StatusOf(commit, name string) (state, text string) {
	return w.r.StatusOf(commit, name)
}

func (w *shared) Merge(number int) {
	w.t.Helper()
	_, err := w.r.Merge("reviewer", number, "merge")
	w.must(err)
}

func (w *shared) Close(number int)             { w.t.Helper(); w.must(w.r.Close("reviewer", number)) }
func (w *shared) HasBranch(branch string) bool { return w.r.Head(branch) != "" }

func (w *shared) Webhooks() (all []forgetest.Webhook) {
	for _, d := range w.hub.Deliveries() {
		if d.Event != "installation" && !strings.HasPrefix(d.Event, "installation_") {
			h := signed(d.Event, string(d.Body))
			h.Set("X-GitHub-Delivery", d.ID)
			all = append(all, forgetest.Webhook{Header: h, Body: d.Body})
		}
	}
	return all
}

func (w *shared) Parse(hook forgetest.Webhook, secret bool) (forge.Delivery, error) {
	if !secret {
		return github.ParseDelivery(hook.Header, hook.Body, "another secret")
	}
	return github.ParseDelivery(hook.Header, hook.Body, hookSecret)
}
