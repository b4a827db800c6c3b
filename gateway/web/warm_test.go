package web_test

import (
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/web/webtest"
	"github.com/ramus-dev/ramus/gitd"
)

// TestWarm types into the conversation of a workspace that sleeps, which wakes it. Somebody who may only read wakes nothing.
func TestWarm(t *testing.T) {
	w := talker(t, "")
	w.run("otter", record.Request{Command: &record.Command{Shell: "true"}})
	if err := w.x.Fleet.Remove(t.Context(), "run:otter"); err != nil {
		t.Fatal(err)
	}
	for path, form := range map[string]url.Values{"/workspaces/run-nobody/warm": {}, "/workspaces/warm": {"repository": {"none"}}} {
		if status, _, _ := w.post(path, form); status != 404 {
			t.Errorf("%s answers %d", path, status)
		}
	}
	w.become(route.Who{Subject: "bo", Repo: "*", Scopes: []string{gitd.ScopeRead}, Name: "Bo", Email: "bo@example.org"})
	for path, form := range map[string]url.Values{"/workspaces/run-otter/warm": {}, "/workspaces/warm": {"repository": {"app"}}} {
		if status, _, _ := w.post(path, form); status != 403 {
			t.Errorf("%s answers a reader with %d", path, status)
		}
	}
	w.become(ada)
	if status, _, body := w.post("/workspaces/warm", url.Values{"repository": {"app"}}); status != 204 || body != "" {
		t.Errorf("%d %s", status, body)
	}
	if n := w.x.Stats().WarmUps; n.Begun != 0 || slices.Contains(w.x.Fleet.Keys(), "run:otter") {
		t.Errorf("%+v", n)
	}
	if testing.Short() {
		t.Skip("cannot run here: it starts a browser")
	}
	p := webtest.Start(t).Open(nil)
	p.Go(w.server.URL + "/workspaces/run-otter?pane=chat")
	p.Wait(`document.documentElement.dataset.connected === 'yes'`)
	p.Click("#say")
	p.Insert("say h")
	for range 1000 {
		if slices.Contains(w.x.Fleet.Keys(), "run:otter") {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	p.Insert("ello")
	if n := w.x.Stats().WarmUps; n.Begun != 1 || n.Refused != 0 {
		t.Errorf("%+v", n)
	}
	if faults := p.Faults(); len(faults) > 0 {
		t.Error(faults)
	}
}
