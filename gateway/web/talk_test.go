package web_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/web"
	"github.com/ramus-dev/ramus/gateway/web/webtest"
)

// talk fills the conversations of three workspaces, with nothing, with one turn and with many. Each turn has two entries.
func (w *world) talk(turns int) []string {
	w.t.Helper()
	w.repo("app")
	w.run("nothing-said", record.Request{Command: &record.Command{Shell: "true"}})
	w.run("one-turn", record.Request{Agent: &record.AgentCall{Name: "coder", Prompt: "Say <b>why</b>\nin the README."}})
	for n := range turns {
		w.run("many-turns", record.Request{Agent: &record.AgentCall{Name: "coder",
			Prompt: fmt.Sprintf("Turn %d: %s", n, strings.Repeat("verylongword", n%30))}})
	}
	return []string{"/workspaces/run-nothing-said?pane=chat", "/workspaces/run-one-turn?pane=chat", "/workspaces/run-many-turns?pane=chat"}
}

// TestTalkPane looks at conversations with nothing, one turn and 500 entries in Chromium, in both themes and at three widths: by axe, for
// violations of the policy and for sideways scrolling. Then it asks without scripts.
func TestTalkPane(t *testing.T) {
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
	turns := 45 // more than one window
	if os.Getenv("RAMUS_TEST") == "full" {
		turns = 250
	}
	b := webtest.Start(t)
	w := open(t, ada, func(api *web.API) { api.Assets = built(t) })
	list := w.talk(turns)
	p := b.Open(nil)
	for i, path := range list {
		looks := []look{{1440, 900, "light"}, {390, 844, "dark"}, {320, 640, "light"}, {1440, 900, "dark"}, {390, 844, "light"},
			{320, 640, "dark"}}
		if os.Getenv("RAMUS_TEST") != "full" {
			looks = looks[2*i : 2*i+2]
		}
		for _, l := range looks {
			w.look(p, string(axe), path, turns, l)
			var wide []string
			p.Eval(widerThanWindow, &wide)
			if len(wide) > 0 {
				t.Errorf("%s is wider than %d px: %v", path, l.width, wide)
			}
		}
	}
	var both bool
	if p.Eval(`!!document.querySelector('[role=log][data-live]')`, &both); both {
		t.Error("an element is a log and a list of fragments")
	}
	var shown int
	if p.Eval(`document.querySelectorAll('[data-live=talk] > .entry').length`, &shown); shown < 80 {
		t.Errorf("%d entries are shown", shown)
	}
	var again int
	p.Go(w.server.URL + list[2] + "&more=2") // without scripts it is the same page
	if p.Eval(`document.querySelectorAll('[data-live=talk] > .entry').length`, &again); again <= shown {
		t.Errorf("the page of both parts has %d entries", again)
	}
	w.grow(p, list[2], turns > 80)
	w.gap(p, list[2])

	p.Scripts(false)
	p.Look(390, 844, "light")
	p.Go(w.server.URL + list[1])
	status, _, page := w.get(list[1])
	d := parse(t, "without scripts", page)
	d.check()
	var key, label string
	for _, n := range d.all {
		switch attr(n, "name") {
		case "key":
			if key == "" && under(n, "say") {
				key = attr(n, "value")
			}
		case "session":
			label = attr(n, "value")
		}
	}
	if status != 200 || key == "" {
		t.Fatalf("%d, no composer", status)
	}
	form := map[string][]string{"key": {key}, "session": {label}, "agent": {"coder"}, "prompt": {"Said without scripts"}}
	for range 2 { // a form that is sent twice asks once
		if status, _, page := w.post("/workspaces/run-one-turn/say", form); status != 303 {
			t.Fatalf("%d %s", status, page)
		}
	}
	if _, _, page := w.get(list[1]); strings.Count(page, "Said without scripts</p>") != 1 {
		t.Errorf("it was said %d times", strings.Count(page, "Said without scripts</p>"))
	}
}

// under reports whether an element is in a form whose action ends with a word.
func under(n *html.Node, word string) bool {
	for ; n != nil; n = n.Parent {
		if n.Data == "form" {
			return strings.HasSuffix(attr(n, "action"), "/"+word)
		}
	}
	return false
}

// TestDrafts keeps a draft over a reload, and drops it when the person signs out or another one is here.
func TestDrafts(t *testing.T) {
	if testing.Short() {
		t.Skip("cannot run here: it starts a browser")
	}
	b := webtest.Start(t)
	w := open(t, ada, func(api *web.API) { api.Assets = built(t) })
	path := w.server.URL + w.talk(0)[1]
	p := b.Open(nil)
	p.Look(1440, 900, "light")
	draft := func(want string) {
		t.Helper()
		p.Go(path)
		var got string
		if p.Eval(`document.querySelector('#say').value`, &got); got != want {
			t.Errorf("the draft is %q, want %q", got, want)
		}
	}
	typed := `{const a = document.querySelector('#say'); a.value = 'half a sentence'; a.dispatchEvent(new Event('input', {bubbles: true})); 0}`
	draft("")
	p.Eval(typed, nil)
	draft("half a sentence")
	p.Eval(`{const f = document.createElement('form'); f.method = 'post'; f.setAttribute('action', '/auth/out');
		f.addEventListener('submit', e => e.preventDefault()); document.body.append(f); f.requestSubmit(); 0}`, nil)
	draft("")
	p.Eval(typed, nil)
	other := ada
	other.Subject, other.Name = "github:2", "Bo"
	w.become(other)
	draft("")
}
