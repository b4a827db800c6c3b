package web_test

import (
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/web/webtest"
)

const (
	// holding has each answer to a script wait in __held while __hold is more than 0. __sockets has the connections of
	// the page.
	holding = `window.__hold = 0; window.__held = []; window.__sockets = [];
	{
		const real = fetch;
		window.fetch = async (...a) => {
			const r = await real(...a), text = await r.text();
			if (__hold > 0) { __hold--; await new Promise((go, fail) => __held.push({go, fail})); }
			return {ok: r.ok, status: r.status, redirected: r.redirected, text: async () => text, json: async () => JSON.parse(text)};
		};
		window.WebSocket = class extends WebSocket { constructor(...a) { super(...a); __sockets.push(this); } };
	}`
	// watching counts in __gone the rows of __rows that are taken out, also if they come back, and notes in __said how
	// the log announces rows.
	watching = `{
		const list = document.querySelector('[data-live=talk]');
		window.__gone = 0;
		window.__rows = new Set(list.children);
		window.__said = [];
		new MutationObserver(changes => {
			for (const c of changes) for (const e of c.removedNodes) if (__rows.has(e)) __gone++;
			__said.push(list.closest('[role=log]').getAttribute('aria-live'));
		}).observe(list, {childList: true});
		0
	}`
	earlier = `[...document.querySelectorAll('a')].find(a => a.innerText === 'Earlier')`
	rows    = `document.querySelectorAll('[data-live=talk] > .entry')`
	drawn   = `new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))`
	gap     = `__sockets.at(-1).onmessage({data: JSON.stringify({at: ` +
		`document.querySelector('[data-live-at]').dataset.liveAt, gap: true})})`
)

// grow shows an earlier part of a conversation while a turn comes. No row moves, the new turn counts, and screen
// readers hear of no earlier rows. full is set if one part more does not have the first turn.
func (w *world) grow(p *webtest.Page, path string, full bool) {
	w.t.Helper()
	p.Watch(holding)
	p.Go(w.server.URL + path)
	p.Wait(connected)
	p.Eval(`{
		const last = [...`+rows+`].at(-1), pre = window.__pre = document.createElement('pre');
		pre.textContent = 'a line\n'.repeat(200);
		last.append(pre);
		pre.scrollTop = 40;
		getSelection().selectAllChildren(last.previousElementSibling);
		window.__selected = String(getSelection());
		scrollTo(0, 0);
		__hold = 1;
	}
	`+drawn, nil)
	p.Eval(earlier+`.click()`, nil)
	p.Wait(`__held.length === 1`)
	w.run("many-turns", record.Request{Agent: &record.AgentCall{Name: "coder", Prompt: "While it loads"}})
	p.Wait(`[...` + rows + `].find(e => e.innerText.includes('While it ` +
		`loads'))?.nextElementSibling?.matches('.failure')`)
	if !p.Holds(`document.querySelector('.talk-new').innerText === 'New · 2'`) {
		w.t.Error("a message that comes while an earlier part is loaded is not new")
	}
	var shown int
	p.Eval(watching, nil)
	p.Eval(`window.__first = `+rows+`[0]; window.__top = __first.getBoundingClientRect().top; `+rows+`.length`, &shown)
	p.Eval(`__held.shift().go(); 0`, nil)
	p.Wait(fmt.Sprintf(`%s.length > %d`, rows, shown))
	p.Wait(`document.querySelector('[data-live=talk]').innerText.includes('Turn 0:') || ` + fmt.Sprint(full))
	p.Eval(drawn, nil)
	var got struct {
		Gone, Moved  float64
		New, At, Way string
		Said         []string
		Kept         bool
	}
	p.Eval(`({gone: __gone, moved: __first.getBoundingClientRect().top - __top, new: `+
		`document.querySelector('.talk-new').innerText, said: __said,
		at: document.querySelector('[data-live-at]').dataset.liveAt, way: location.search,
		kept: __first.isConnected && __pre.scrollTop === 40 && __selected !== '' && String(getSelection()) === __selected})`, &got)
	if got.Gone > 0 || got.Moved < -2 || got.Moved > 2 || got.New != "New · 2" || !got.Kept || len(got.Said) == 0 ||
		got.Said[0] != "off" {
		w.t.Errorf("the conversation does not grow upward in place: %+v", got)
	}
	if !strings.Contains(got.At, "more=2") || !strings.Contains(got.Way, "more=2") {
		w.t.Errorf("the page is %q, with %q", got.At, got.Way)
	}
	p.Wait(`!document.querySelector('[role=log]').hasAttribute('aria-live')`)
}

// gap has a page load the changes that it missed. A part that comes meanwhile stays, and a page that cannot be loaded follows
// its conversation later.
func (w *world) gap(p *webtest.Page, path string) {
	w.t.Helper()
	p.Go(w.server.URL + path)
	p.Wait(connected)
	var shown int
	p.Eval(rows+`.length`, &shown)
	p.Eval(`__hold = 1; `+gap, nil)
	p.Wait(`__held.length === 1`)
	p.Eval(earlier+`.click()`, nil)
	p.Wait(fmt.Sprintf(`%s.length > %d`, rows, shown))
	p.Eval(watching, nil)
	p.Eval(`__held.shift().go(); `+drawn, nil)
	if !p.Holds(`__gone === 0`) {
		w.t.Error("an older page takes the earlier part away")
	}
	p.Eval(`__hold = 1; `+gap, nil)
	p.Wait(`__held.length === 1`)
	var sockets int
	p.Eval(`__sockets.length`, &sockets)
	p.Eval(`__held.shift().fail(new TypeError('no connection')); 0`, nil)
	p.Wait(fmt.Sprintf(`__sockets.length > %d && %s`, sockets, connected))
	w.run("many-turns", record.Request{Agent: &record.AgentCall{Name: "coder", Prompt: "One more turn"}})
	p.Wait(`document.querySelector('[data-live=talk]').innerText.includes('One more turn')`)
	if faults := p.Faults(); len(faults) > 0 {
		w.t.Error(faults)
	}
}
