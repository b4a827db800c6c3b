package web_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/web/webtest"
)

// inWindow is the name of a function of scripts that reports whether a whole element is in the window, and on top.
const inWindow = `(e => {
	const r = e.getBoundingClientRect();
	const t = document.elementFromPoint(r.left + r.width / 2, r.top + r.height / 2);
	return r.left >= 0 && r.right <= innerWidth && r.top >= 0 && r.bottom <= innerHeight && !!t && (e.contains(t) || t.contains(e));
})`

// phone opens a page of a phone.
func phone(b *webtest.Browser) *webtest.Page {
	p := b.Open(nil)
	p.Look(390, 844, "light")
	return p
}

// TestPhone looks at a workspace on a phone. The hash of a commit is on one line and leaves its command the room, and
// the current tab is in sight.
func TestPhone(t *testing.T) {
	if testing.Short() {
		t.Skip("cannot run here: it starts a browser")
	}
	p := phone(webtest.Start(t))
	w := talker(t, "execute")
	w.run("brave-otter", record.Request{Command: &record.Command{Shell: "echo " + strings.Repeat("word ", 40) +
		">words.txt"}})
	path := w.server.URL + "/workspaces/run-brave-otter"
	p.Go(path + "?pane=chat")
	var look struct {
		Lines        int
		Hash, Window float64
		What         float64
	}
	p.Eval(`(() => {
		const chip = document.querySelector('.talk .chip'), row = chip.closest('.entry');
		const lines = document.createRange();
		lines.selectNodeContents(chip.querySelector('code'));
		return {lines: new Set([...lines.getClientRects()].map(r => r.top)).size, hash: chip.querySelector('code').offsetWidth,
			what: row.querySelector('.what').offsetWidth, window: innerWidth};
	})()`, &look)
	if look.Lines != 1 || look.Hash < 30 || look.What < look.Window*2/3 {
		t.Errorf("%+v", look)
	}
	for _, pane := range []string{"chat", "shell", "preview", "activity", "files"} {
		p.Go(path + "?pane=" + pane)
		if !p.Holds(inWindow + `(document.querySelector('.tabs.phone-only [aria-current]'))`) {
			t.Errorf("the tab of %s is out of sight", pane)
		}
		var wide []string
		if p.Eval(widerThanWindow, &wide); len(wide) > 0 {
			t.Errorf("%s: %v", pane, wide)
		}
	}
	if faults := p.Faults(); len(faults) > 0 {
		t.Error(faults)
	}
}

// deadQuestion puts a question of an earlier run, which nobody answered, above the conversation of a page.
const deadQuestion = `new MutationObserver((_, o) => {
	if (!document.querySelector('.talk-dock')) return;
	o.disconnect();
	const e = document.createElement('div');
	e.className = 'entry question';
	e.id = 'question-dead';
	e.textContent = 'An earlier question';
	document.querySelector('[data-live=talk]').prepend(e);
}).observe(document, {childList: true, subtree: true});`

// TestPhoneAsks leads to the question of an agent on a phone, whether the page is opened then or was open before. The
// focus goes there, too.
func TestPhoneAsks(t *testing.T) {
	if testing.Short() {
		t.Skip("cannot run here: it starts a browser")
	}
	p := phone(webtest.Start(t))
	w := talker(t, "execute")
	w.run("brave-otter", record.Request{Command: &record.Command{Shell: "true"}})
	path := w.server.URL + "/workspaces/run-brave-otter?pane=chat"
	p.Go(path)
	p.Wait(connected)
	w.ask("brave-otter", strings.Repeat("say a paragraph\nsay \n", 60)+"run echo asked >asked.txt")
	const lead, answer = `document.querySelector('.talk-dock .doing a.btn')`,
		`document.querySelector('.ask-card button[value=once]')`
	p.Wait(lead)
	p.Eval(`scrollTo(0, 0)`, nil)
	p.Wait(inWindow + `(` + lead + `)`)
	p.Eval(lead+`.click()`, nil)
	p.Wait(inWindow + `(` + answer + `)`)
	p.Wait(`document.activeElement.matches('.ask-card')`)
	p.Press("Tab")
	if !p.Holds(`document.activeElement === document.querySelector('.ask-card button')`) {
		t.Error("Tab does not lead from the question to its first answer")
	}

	p.Watch(deadQuestion)
	p.Go(path)
	p.Wait(connected + ` && ` + inWindow + `(` + answer + `)`)
	var said struct{ Command, Text string }
	p.Eval(`({command: document.querySelector('.ask-card pre').textContent, text: `+
		`document.querySelector('.ask-card').textContent})`, &said)
	if said.Command != "echo asked >asked.txt" || strings.Count(said.Text, "asked.txt") != 1 ||
		strings.Contains(said.Text, "{") {
		t.Errorf("the question is %q, with the command %q", said.Text, said.Command)
	}
	p.Eval(answer+`.click()`, nil)
	p.Loaded()
	w.settle("brave-otter")
	p.Go(path)
	p.Wait(fmt.Sprintf(`document.body.innerText.includes(%q)`, "Once”, by Ada"))
}

// TestWindow tests that a workspace with a terminal ends with the window, below notices of any size. In a low window
// its main part scrolls.
func TestWindow(t *testing.T) {
	if testing.Short() {
		t.Skip("cannot run here: it starts a browser")
	}
	needs(t, "node_modules/@xterm/xterm")
	p := webtest.Start(t).Open(nil)
	p.Look(1440, 900, "light")
	w := talker(t, "")
	w.run("brave-otter", record.Request{Command: &record.Command{Shell: "true"}})
	p.Go(w.server.URL + "/workspaces/run-brave-otter?pane=shell")
	var look struct{ Page, Pane, Frame, Height float64 }
	const ends = `(() => {
		const frame = document.querySelector('.term-frame').getBoundingClientRect();
		return {page: document.scrollingElement.scrollHeight, pane: document.querySelector('.work').getBoundingClientRect().bottom,
			frame: frame.bottom, height: frame.height};
	})()`
	for range 3 {
		p.Wait(`document.querySelector('.term-frame').checkVisibility()`)
		p.Eval(ends, &look)
		if look.Page > 900 || look.Pane > 900 || look.Pane < 850 || look.Frame > look.Pane+1 || look.Height < 250 {
			t.Errorf("%+v", look)
		}
		p.Eval(`{const n = document.createElement('div'); n.className = 'notice'; n.textContent = 'Something is to `+
			`be said.';
			document.querySelector('.notices').append(n); 0}`, nil)
	}
	p.Look(1440, 500, "light")
	p.Eval(`document.querySelector('main').scrollTo(0, 10_000)`, nil)
	p.Eval(ends, &look)
	if look.Page > 500 || look.Pane > 500 || look.Frame > look.Pane+1 || look.Height < 250 {
		t.Errorf("in a low window: %+v", look)
	}
}
