package web_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/web"
	"github.com/ramus-dev/ramus/gateway/web/webtest"
)

// TestSessionEnd looks at a page long before the end of its session, shortly before it, and of somebody without a session.
func TestSessionEnd(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	signed := func(left time.Duration) route.Who {
		return route.NewWho(route.Account{ID: "github:1", Name: "Ada", Role: route.RoleMember, Ends: now.Add(left)})
	}
	for name, x := range map[string]struct {
		who  route.Who
		want string
	}{
		"days":    {signed(48 * time.Hour), `data-left="172800" data-soon="900" hidden>`},
		"minutes": {signed(14 * time.Minute), `data-left="840" data-soon="900"><p>Your session ends <time`},
		"over":    {signed(-time.Minute), `data-left="0" data-soon="900"><p>`},
		"a token": {ada, ""},
	} {
		w := open(t, x.who, func(api *web.API) { api.Now = func() time.Time { return now } })
		resp, err := http.Get(w.server.URL + "/workspaces?mine=1")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || strings.Contains(string(body), "data-left") != (x.want != "") || !strings.Contains(string(body), x.want) ||
			x.want != "" && !strings.Contains(string(body), `href="/auth?again=1&amp;to=%2Fworkspaces%3Fmine%3D1"`) {
			t.Errorf("%s: %v %s", name, err, body)
		}
	}
}

// TestSessionEndsSoon has a page that is open say so when the time comes.
func TestSessionEndsSoon(t *testing.T) {
	if testing.Short() {
		t.Skip("cannot run here: it starts a browser")
	}
	b := webtest.Start(t)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	who := route.NewWho(route.Account{ID: "github:1", Name: "Ada", Role: route.RoleMember,
		Ends: now.Add(15*time.Minute + 2*time.Second)})
	w := open(t, who, func(api *web.API) { api.Assets, api.Now = built(t), func() time.Time { return now } })
	p := b.Open(nil)
	p.Go(w.server.URL + "/workspaces")
	if !p.Holds(`document.querySelector('[data-left]').hidden`) {
		t.Error("the page says too early that the session ends")
	}
	p.Wait(`!document.querySelector('[data-left]').hidden && document.querySelector('[data-announce]').textContent.includes('ends soon')`)
	if faults := p.Faults(); len(faults) > 0 {
		t.Error(faults)
	}
}
