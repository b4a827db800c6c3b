// Package forgeworld makes stand-ins of forges worlds of their conformance suite.
package forgeworld

import (
	"net/http"
	"testing"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/forge/forgetest"
	"github.com/ramus-dev/ramus/internal/standin/hub"
)

// New returns a world over a stand-in. client returns a client with the token of the user "ramus", who is an
// administrator, and parse reads a webhook with a secret.
func New(t *testing.T, h *hub.Hub, client func(token string, rt http.RoundTripper) forge.Forge,
	parse func(http.Header, []byte, string) (forge.Delivery, error)) forgetest.World {
	t.Helper()
	ramus := h.AddUser("ramus", hub.Admin)
	h.AddUser("reviewer", hub.Writer)
	h.AddUser("visitor", hub.Reader)
	r, err := h.AddRepo("acme", "app", "")
	if err != nil {
		t.Fatal(err)
	}
	return &world{t, h, r, func(rt http.RoundTripper) forge.Forge { return client(ramus.Token, rt) }, parse}
}

type world struct {
	t      *testing.T
	h      *hub.Hub
	r      *hub.Repo
	client func(http.RoundTripper) forge.Forge
	parse  func(http.Header, []byte, string) (forge.Delivery, error)
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) Client(rt http.RoundTripper) forge.Forge { return w.client(rt) }
func (w *world) Repo() forge.Name                        { return forge.Name{Owner: "acme", Repo: "app"} }
func (w *world) Writer() string                          { return w.h.Form.Identity(w.h.User("reviewer")) }
func (w *world) Reader() string                          { return w.h.Form.Identity(w.h.User("visitor")) }

func (w *world) Push(branch string, files map[string]string) string {
	w.t.Helper()
	sha, err := w.r.Push("reviewer", branch, files)
	w.must(err)
	return sha
}

func (w *world) Review(number int, state, body string, lines ...forgetest.Line) {
	w.t.Helper()
	var on []hub.Line
	for _, l := range lines {
		on = append(on, hub.Line(l))
	}
	w.must(w.r.Review("reviewer", number, state, body, on...))
}

func (w *world) Comment(user string, number int, body string) {
	w.t.Helper()
	login := "reviewer"
	if user == w.Reader() {
		login = "visitor"
	}
	w.must(w.r.Comment(login, number, body))
}

func (w *world) Status(commit, name, state string)                 { w.r.SetStatus(commit, name, state) }
func (w *world) StatusOf(commit, name string) (state, text string) { return w.r.StatusOf(commit, name) }
func (w *world) Merge(number int)                                  { w.t.Helper(); w.must(w.r.Merge("reviewer", number)) }
func (w *world) Close(number int)                                  { w.t.Helper(); w.must(w.r.SetState("reviewer", number, "closed")) }
func (w *world) HasBranch(branch string) bool                      { return w.r.Head(branch) != "" }

func (w *world) Webhooks() (all []forgetest.Webhook) {
	headers, bodies := w.h.Webhooks()
	for i := range headers {
		all = append(all, forgetest.Webhook{Header: headers[i], Body: bodies[i]})
	}
	return all
}

func (w *world) Parse(hook forgetest.Webhook, secret bool) (forge.Delivery, error) {
	if !secret {
		return w.parse(hook.Header, hook.Body, "another secret")
	}
	return w.parse(hook.Header, hook.Body, w.h.Secret)
}
