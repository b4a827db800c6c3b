package web_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/web"
	"github.com/ramus-dev/ramus/gateway/web/webtest"
)

// axeFile is the script of axe-core, which `npm ci` installs.
const axeFile = "node_modules/axe-core/axe.min.js"

// TestAccessible looks at each page with Chromium: by axe, for violations of the policy, and for sideways scrolling at 320 px. Each page is
// seen at one size and in one theme, by turns. With RAMUS_TEST=full it is seen in all, also with 500 rows. With RAMUS_SHOTS=DIR a picture
// of each is written.
func TestAccessible(t *testing.T) {
	if testing.Short() {
		t.Skip("cannot run here: it starts a browser")
	}
	axe, err := os.ReadFile(axeFile)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("cannot run here: `npm ci` in gateway/web brings axe-core")
	}
	b := webtest.Start(t)
	looks := []look{{1440, 900, "light"}, {390, 844, "dark"}, {390, 844, "light"}, {1440, 900, "dark"}}
	full, states := os.Getenv("RAMUS_TEST") == "full", []int{-1, 0}
	if full {
		states = append(states, 500)
	}
	turn := 0
	for _, rows := range states {
		w := open(t, ada, func(api *web.API) { api.Assets = built(t) })
		if rows >= 0 {
			w.fill(rows)
		}
		list := paths(rows)
		if rows == 0 {
			w.tournament("cup", "run:brave-otter")
			list = append(list, "/workspaces/run-cup-1/runs/RUN")
		}
		p := b.Open(nil)
		for _, path := range list {
			seen := looks
			if !full && !strings.Contains(path, "cup") {
				seen = looks[turn%len(looks) : turn%len(looks)+1]
			}
			turn++
			for _, l := range seen {
				w.look(p, string(axe), path, rows, l)
			}
			p.Look(320, 640, "light")
			p.Go(w.server.URL + w.path(path))
			var wide []string
			p.Eval(widerThanWindow, &wide)
			if len(wide) > 0 {
				t.Errorf("%d rows, %s is wider than 320 px: %v", rows, path, wide)
			}
		}
	}
}

// widerThanWindow returns the elements that make a page scroll sideways.
const widerThanWindow = `document.documentElement.scrollWidth <= innerWidth ? [] :
	[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1).slice(0, 5).map(e => e.tagName + '.' + e.className)`

// look is a size and a theme.
type look struct {
	width, height int
	theme         string
}

// look looks at one page.
func (w *world) look(p *webtest.Page, axe, path string, rows int, l look) {
	w.t.Helper()
	name := fmt.Sprintf("%d rows, %s, %d px, %s", rows, path, l.width, l.theme)
	p.Look(l.width, l.height, l.theme)
	p.Go(w.server.URL + w.path(path))
	if faults := p.Faults(); len(faults) > 0 {
		w.t.Errorf("%s: %s", name, strings.Join(faults, "; "))
	}
	if dir := os.Getenv("RAMUS_SHOTS"); dir != "" {
		file := fmt.Sprintf("%d%s-%d-%s.png", rows, path, l.width, l.theme)
		p.Shot(filepath.Join(dir, strings.NewReplacer("/", "_", "?", "_", "RUN", "run").Replace(file)), false)
	}
	for _, v := range p.Axe(axe) {
		w.t.Errorf("%s: %s", name, v)
	}
}

// endless adds the badge of work to a page, and returns the number of animations without end.
const endless = `(() => {
	const badge = document.createElement('span');
	badge.className = 'badge live';
	document.querySelector('main').append(badge);
	return document.getAnimations().filter(a => a.effect.getComputedTiming().iterations === Infinity).length;
})()`

// TestLive follows a page in Chromium while work begins, asks and ends. A field with the focus and an open element stay as they are.
func TestLive(t *testing.T) {
	if testing.Short() {
		t.Skip("cannot run here: it starts a browser")
	}
	b := webtest.Start(t)
	w := open(t, ada, func(api *web.API) { api.Assets = built(t) })
	w.repo("app")
	w.run("brave-otter", record.Request{Command: &record.Command{Shell: "true"}})
	p := b.Open(nil)
	p.Look(1440, 900, "light")
	p.Go(w.server.URL + "/dashboard")
	p.Wait(`document.documentElement.dataset.connected === 'yes'`)
	p.Eval(`const f = document.querySelector('#prompt'); f.focus(); f.value = 'half a sentence'; window.same = f; 0`, nil)
	w.run("calm-heron", record.Request{Workflow: asks})
	p.Wait(`document.querySelector('[data-live=needs]').innerText.includes('Publish <b>version 2</b>?')`)
	p.Wait(`document.title.startsWith('(2)')`)
	var kept bool
	if p.Eval(`document.activeElement === window.same && window.same.value === 'half a sentence'`, &kept); !kept {
		t.Error("the field lost its focus or its text")
	}
	p.Eval(`[...document.querySelectorAll('button')].find(b => b.innerText.startsWith('Approve')).click()`, nil)
	p.Loaded()
	p.Wait(`!document.querySelector('[data-live=needs]').innerText.includes('Publish')`)

	p.Go(w.server.URL + w.path("/workspaces/run-brave-otter"))
	p.Wait(`document.documentElement.dataset.connected === 'yes'`)
	p.Eval(`document.querySelector('details.menu').open = true`, nil)
	w.run("brave-otter", record.Request{Command: &record.Command{Shell: "echo more"}})
	p.Wait(`document.querySelector('[data-live=commands]').innerText.includes('echo more')`)
	if p.Eval(`document.querySelector('details.menu').open`, &kept); !kept {
		t.Error("the menu was closed")
	}
	var moving int
	if p.Eval(endless, &moving); moving > 0 {
		t.Error("the badge of work moves without end, although Look asks for less motion")
	}
	if faults := p.Faults(); len(faults) > 0 {
		t.Error(faults)
	}
}

// TestReconnect cuts the connection of a page, which connects again and catches up, also with its title.
func TestReconnect(t *testing.T) {
	if testing.Short() {
		t.Skip("cannot run here: it starts a browser")
	}
	b := webtest.Start(t)
	w := open(t, ada, func(api *web.API) { api.Assets = built(t) })
	w.repo("app")
	p := b.Open(nil)
	p.Go(w.server.URL + "/dashboard")
	p.Wait(`document.documentElement.dataset.connected === 'yes'`)
	p.Offline(true)
	w.drop()
	p.Wait(`document.documentElement.dataset.connected === 'no'`)
	w.run("calm-heron", record.Request{Workflow: asks})
	p.Offline(false)
	p.Wait(`document.querySelector('[data-live=needs]').innerText.includes('Publish') && document.title.startsWith('(1)')`)
}

// TestFirstRow has the first element of a list appear in a page that was open while the list was empty.
func TestFirstRow(t *testing.T) {
	if testing.Short() {
		t.Skip("cannot run here: it starts a browser")
	}
	b := webtest.Start(t)
	var hub *live.Hub
	w := open(t, ada, func(api *web.API) { api.Assets, hub = built(t), api.Live.Hub })
	p := b.Open(nil)
	empty := func(path string) {
		t.Helper()
		p.Go(w.server.URL + path)
		p.Wait(`document.documentElement.dataset.connected === 'yes' && document.querySelector('.empty')`)
	}
	empty("/repos")
	p.Eval(`const f = document.querySelector('#source'); f.focus(); f.value = 'half a source'; 0`, nil)
	w.repo("app")
	hub.Wake(live.TopicMe) // as the end of an import does
	p.Wait(`document.querySelector('.toast')?.innerText.includes('something new')`)
	if !p.Holds(`document.querySelector('#source').value === 'half a source'`) {
		t.Error("the field lost its text")
	}
	empty("/workspaces")
	w.run("brave-otter", record.Request{Command: &record.Command{Shell: "true"}})
	p.Wait(`document.querySelector('[data-live=workspaces]')?.innerText.includes('brave-otter')`)
	if faults := p.Faults(); len(faults) > 0 {
		t.Error(faults)
	}
}
