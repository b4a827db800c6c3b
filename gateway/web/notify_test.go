package web_test

import (
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/web"
	"github.com/ramus-dev/ramus/gateway/web/webtest"
)

// TestNotify switches notifications on, and has a run fail while a page is looked at, and while none is. Work that waited
// before is no news.
func TestNotify(t *testing.T) {
	if testing.Short() {
		t.Skip("cannot run here: it starts a browser")
	}
	b := webtest.Start(t)
	w := open(t, ada, func(api *web.API) { api.Assets = built(t) })
	w.repo("app")
	fails := record.Request{Command: &record.Command{Shell: "true"}} // there are no containers
	w.run("old-heron", fails)
	p := b.Open(nil)
	p.Go(w.server.URL + "/settings")
	// The browser's own notifications are counted here.
	p.Eval(`window.told = []; window.Notification = class { constructor(_, o) { told.push(o.body); }
		static permission = 'granted'; static requestPermission() { return Promise.resolve('granted'); } }; 0`, nil)
	p.Wait(`document.querySelector('[data-notify-switch]').textContent === 'Switch on'`)
	p.Eval(`document.querySelector('[data-notify-switch]').click(); 0`, nil)
	p.Wait(`document.documentElement.dataset.notify === 'yes'`)
	w.run("brave-otter", fails)
	p.Wait(`document.querySelector('.toast')?.innerText.startsWith('Needs you: ')`)
	if !p.Holds(`told.length === 0`) {
		t.Error("the browser tells of what a page shows")
	}
	p.Eval(`Object.defineProperty(document, 'visibilityState', { get: () => 'hidden' }); 0`, nil)
	w.run("calm-heron", fails)
	p.Wait(`told.length === 1`)

	// Other people of this browser have not switched it on, and neither has this one after it is switched off.
	p.Eval(`document.querySelector('[data-notify-switch]').click(); 0`, nil)
	p.Wait(`document.querySelector('[data-notify-switch]')?.textContent === 'Switch on'`)
	if !p.Holds(`localStorage.getItem('ramus.notify') === null`) {
		t.Error("it is not switched off")
	}
	if faults := p.Faults(); len(faults) > 0 {
		t.Error(faults)
	}
}
