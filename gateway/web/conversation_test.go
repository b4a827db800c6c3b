package web_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/web"
	"github.com/ramus-dev/ramus/gateway/web/webtest"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/programs"
)

// talker is a world with containers and an agent that performs the lines of its prompts. The agent asks before it runs commands if ask is set. changes
// change the options of the pages.
func talker(t *testing.T, ask string, changes ...func(*web.API)) *world {
	t.Helper()
	bin := t.TempDir()
	for dir := bin; dir != os.TempDir() && len(dir) > 1; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := programs.Into(bin, "cmd/ramus", "internal/standin/acp-standin"); err != nil {
		t.Fatal(err)
	}
	w := openWith(t, ada, func(x *executor.Executor, e *sandbox.Engine) {
		e.Bwrap, e.Runner, e.ReadOnly = "", filepath.Join(bin, "ramus"), []string{bin}
		x.Options.Agents = map[string]agent.Agent{"coder": {Protocol: agent.ProtocolACP, Command: []string{filepath.Join(bin, "acp-standin")},
			Env:   []string{"ACP_STANDIN_SCRIPT=1", "ACP_STANDIN_STEER=1", "ACP_STANDIN_ASK=" + ask},
			State: []string{".acp-standin"}, Permission: agent.PermissionAsk}}
		if err := e.Check(t.Context()); err != nil {
			t.Skipf("cannot run here: %v", err)
		}
	}, func(api *web.API) {
		api.Assets = built(t)
		for _, change := range changes {
			change(api)
		}
	})
	w.repo("app")
	w.shared = bin
	return w
}

// ask submits a prompt and returns at once.
func (w *world) ask(name, prompt string) record.Run {
	w.t.Helper()
	caller, err := record.RunCaller(name)
	if err != nil {
		w.t.Fatal(err)
	}
	r, err := w.x.Submit(w.t.Context(), record.Request{Caller: caller, Repo: "app", Asker: gitd.Person{Name: "Ada", Email: "ada@example.org"},
		Agent: &record.AgentCall{Name: "coder", Prompt: prompt}})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

const firstPrompt = `Round the amounts in the invoice to two digits, and say in the README why.
plan Look at the code | Round the amounts | Run the tests | Say why
think The amounts are floats. I will round where they are printed.
say I will look at the **code** first.
read README
write src/amount.go package amount // amounts have two digits
write README hello, amounts have two digits
run printf '\033[32mok\033[0m  amount 0.41s\n'; echo 'ok  invoice 0.12s'
run echo 'FAIL: TestTax: 1.005 became 1.00' >&2; exit 3
say ## What I did
say 
say Rounding is in ` + "`Format`" + `; the tests are green. See [the rules](https://example.org/rounding).
say 
say - ` + "`src/amount.go`" + ` rounds *half to even*
say - the README says why
say 
say | amount | before | after |
say |---|---:|---:|
say | tax | 1.005 | 1.00 |
say 
say ` + "```go" + `
say func Format(a float64) string { return fmt.Sprintf("%.2f", a) }
say ` + "```"

// shots looks at a page in both themes, wide and on a phone: by axe, for violations of the policy and for sideways scrolling. With
// RAMUS_SHOTS=DIR it writes pictures.
func (w *world) shots(p *webtest.Page, name, path string) {
	w.t.Helper()
	axe, err := os.ReadFile(axeFile)
	if err != nil {
		cannotRun(w.t, "`npm ci` in gateway/web brings axe-core")
	}
	looks := []look{{1440, 900, "light"}, {390, 844, "dark"}, {390, 844, "light"}, {1440, 900, "dark"}}
	if os.Getenv("RAMUS_TEST") != "full" && os.Getenv("RAMUS_SHOTS") == "" {
		at := len(name) % len(looks) // another one for each state
		looks = looks[at : at+1]
	}
	for _, l := range looks {
		p.Look(l.width, l.height, l.theme)
		p.Go(w.server.URL + path)
		p.Wait(connected)
		if dir := os.Getenv("RAMUS_SHOTS"); dir != "" {
			p.Eval(`new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))`, nil)
			p.Shot(filepath.Join(dir, fmt.Sprintf("talk-%s-%d-%s.png", name, l.width, l.theme)), false)
		}
		var wide []string
		p.Eval(widerThanWindow, &wide)
		for _, fault := range slices.Concat(p.Axe(string(axe)), wide, p.Faults()) {
			w.t.Errorf("%s, %d px, %s: %s", name, l.width, l.theme, fault)
		}
	}
}

// cannotRun skips a test that cannot run here. With CI set it fails.
func cannotRun(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip("cannot run here: " + why)
}

const (
	connected = `document.documentElement.dataset.connected === 'yes'`
	// told is the last words of the agent.
	told = `[...document.querySelectorAll('[data-live=talk] > .words')].map(e => e.textContent).join(' ').replace(/\s+/g, ' ')`
	// frames measures the longest frame from now on, in milliseconds, and counts the elements that come.
	frames = `{window.__longest = 0; window.__changes = 0; let t = performance.now();
		const next = () => { const n = performance.now(); __longest = Math.max(__longest, n - t); t = n; requestAnimationFrame(next); }; next();
		new MutationObserver(l => { __changes += l.length; }).observe(document.querySelector('[data-live=talk]'), {childList: true}); 0}`
	// press presses the button of a text.
	press = `[...document.querySelectorAll('button')].find(b => b.textContent.trim().startsWith(%q)).click()`
	// submit says something, as a person who types it and presses Enter.
	submit = `{const a = document.querySelector('#say'); a.focus(); a.value = %q;
		a.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true, cancelable: true})); 0}`
)

// TestConversation has one conversation on a computer and on a phone. The agent's words arrive whole although a connection is cut in the
// middle of a sentence, its question is answered from both at once and counts once, prompts that wait are changed and come back when the
// turn is stopped, and results that the page leaves out come by a press.
func TestConversation(t *testing.T) {
	if testing.Short() {
		t.Skip("cannot run here: it starts a browser")
	}
	b := webtest.Start(t)
	w := talker(t, "execute")
	w.run("brave-otter", record.Request{Command: &record.Command{Shell: "true"}})
	const path = "/workspaces/run-brave-otter"
	wide, phone := b.Open(nil), b.Open(nil)
	wide.Look(1440, 900, "light")
	phone.Look(390, 844, "dark")
	var words []string
	for n := range 400 {
		words = append(words, fmt.Sprintf("word-%d", n))
	}
	said := strings.Join(words, " ")
	// The sentence stops twice until the test has seen enough, however slow the pages are.
	gates := filepath.Dir(w.x.Options.Agents["coder"].Command[0])
	goOn := func(gate string) {
		if err := os.WriteFile(filepath.Join(gates, gate), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sentence := strings.Join(slices.Concat(words[:60], []string{"until:" + gates + "/one"}, words[60:300], []string{"until:" + gates + "/two"},
		words[300:]), " ")
	wide.Go(w.server.URL + path)
	phone.Go(w.server.URL + path)
	wide.Wait(connected)
	phone.Wait(connected)
	wide.Eval(fmt.Sprintf(submit, firstPrompt[:strings.Index(firstPrompt, "run printf")]+"slowly 5 "+sentence+"\nrun printf '\\033[32mok\\033[0m'\n"+
		firstPrompt[strings.Index(firstPrompt, "say ## What"):]), nil)
	wide.Loaded()
	wide.Wait(connected)

	wide.Eval(frames, nil)
	phone.Wait(told + `.includes('word-40')`)
	wide.Wait(`(window.__growing = document.querySelector('.entry.words .md.open ` +
		`p')?.firstChild)?.data?.includes('word-1')`)
	phone.Offline(true)
	w.drop()
	phone.Wait(`document.documentElement.dataset.connected === 'no'`)
	goOn("one")
	wide.Wait(told + `.includes('word-200')`)
	if !wide.Holds(`__growing.isConnected && __growing.data.includes('word-200')`) {
		t.Error("words that grow are not appended to")
	}
	goOn("two")
	phone.Offline(false)
	for name, p := range map[string]*webtest.Page{"wide": wide, "phone": phone} {
		p.Wait(`document.title.startsWith('(1)') && !!document.querySelector('[role=group] button[value=once]')`)
		var got string
		if p.Eval(told, &got); !strings.Contains(got, "first. "+said+" ") && !strings.Contains(got, " "+said) || strings.Count(got, "word-399") != 1 {
			t.Errorf("%s: %s", name, got)
		}
	}
	var longest, changes float64
	wide.Eval(`window.__longest`, &longest)
	wide.Eval(`window.__changes`, &changes)
	t.Logf("%.0f fragments came while words were shown, and the longest frame took %.0f ms", changes, longest)
	w.shots(phone, "asks", path)
	phone.Look(390, 844, "dark")
	phone.Go(w.server.URL + path)
	phone.Wait(connected)

	r := w.lastRun("brave-otter")
	var decided sync.WaitGroup
	for _, p := range []*webtest.Page{wide, phone} {
		decided.Go(func() { p.Eval(`document.querySelector('[role=group] button[value=once]').click()`, nil); p.Loaded() })
	}
	decided.Wait()
	answers := 0
	w.settle("brave-otter")
	for e, err := range w.x.Events(t.Context(), r.Name(), 0, false) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == record.EventDecision {
			answers++
		}
	}
	if answers != 1 {
		t.Errorf("%d answers count", answers)
	}
	for _, p := range []*webtest.Page{wide, phone} {
		p.Go(w.server.URL + path)
		p.Wait(`document.body.innerText.includes('“Once”, by') && !document.title.startsWith('(')`)
	}
	w.shots(wide, "done", path)

	wide.Look(1440, 900, "light")
	wide.Go(w.server.URL + path)
	wide.Eval(`document.querySelector('details.capsule').open = true`, nil)
	wide.Wait(`document.querySelector('details.capsule').textContent.includes('edit README')`)
	wide.Eval(`[...document.querySelectorAll('details.capsule details.tool')].find(d => d.textContent.includes('edit README')).open = true`, nil)
	wide.Wait(`document.querySelector('details.capsule .diff')?.textContent.includes('+hello, amounts')`)
	if dir := os.Getenv("RAMUS_SHOTS"); dir != "" {
		wide.Shot(filepath.Join(dir, "talk-opened.png"), false)
	}
	if faults := slices.Concat(wide.Faults(), phone.Faults()); len(faults) > 0 {
		t.Error(faults)
	}
	w.queue(wide, phone, path)
}

// queue changes prompts that wait, from two places, and stops the turn.
func (w *world) queue(wide, phone *webtest.Page, path string) {
	w.t.Helper()
	say := func(p *webtest.Page, text string) {
		w.t.Helper()
		p.Go(w.server.URL + path)
		p.Wait(connected)
		p.Eval(fmt.Sprintf(submit, text), nil)
		p.Loaded()
		p.Wait(connected)
	}
	say(wide, "Now the docs.\nplan Read | Write | Check\nsay I read them.\nhang")
	wide.Wait(`document.body.innerText.includes('hanging')`)
	say(wide, "say second")
	say(wide, "say third")
	phone.Go(w.server.URL + path)
	phone.Wait(`document.querySelectorAll('.queued').length === 2`)
	w.shots(phone, "queue", path)
	phone.Look(390, 844, "dark")
	phone.Go(w.server.URL + path)
	phone.Eval(fmt.Sprintf(press, "To the front"), nil)
	phone.Loaded()
	wide.Wait(`document.querySelector('.queued').innerText.includes('say third')`)
	phone.Go(w.server.URL + path)
	phone.Eval(`{const f = document.querySelector('.queued form[action$=resay]'); f.querySelector('textarea').value = 'say third, changed'; f.requestSubmit(); 0}`, nil)
	phone.Loaded()
	wide.Wait(`document.querySelector('.queued').innerText.includes('third, changed')`)
	wide.Eval(`[...document.querySelectorAll('.queued')][1].querySelector('form[action$=unsay]').requestSubmit()`, nil)
	wide.Loaded()
	phone.Wait(`document.querySelectorAll('.queued').length === 1`)
	wide.Wait(connected)
	wide.Eval(fmt.Sprintf(press, "Stop the turn"), nil)
	wide.Loaded()
	var back string
	if wide.Eval(`document.querySelector('#say').value`, &back); back != "say third, changed" {
		w.t.Errorf("%q came back", back)
	}
	w.settle("brave-otter")
	phone.Wait(`document.body.innerText.includes('stopped the turn')`)
	w.shots(phone, "stopped", path)
}

// lastRun returns the last run of a caller.
func (w *world) lastRun(name string) record.Run {
	w.t.Helper()
	caller, err := record.RunCaller(name)
	if err != nil {
		w.t.Fatal(err)
	}
	list := w.x.OfCaller(caller)
	return list[len(list)-1]
}

// TestLongConversation opens a conversation of many entries. The page stays small, and each of them can be reached.
func TestLongConversation(t *testing.T) {
	if testing.Short() {
		t.Skip("cannot run here: it starts a browser")
	}
	turns, calls := 2, 400
	if os.Getenv("RAMUS_TEST") == "full" {
		turns, calls = 6, 1900
	}
	b := webtest.Start(t)
	w := talker(t, "")
	for n := range turns {
		w.ask("brave-otter", fmt.Sprintf("Turn %d\nflood %d\nsay done with %d", n, calls, n))
		w.settle("brave-otter")
	}
	const path = "/workspaces/run-brave-otter"
	w.get(path)
	began := time.Now()
	const rounds = 5
	size := 0
	for range rounds {
		_, _, page := w.get(path)
		size = len(page)
	}
	took := time.Since(began) / rounds
	p := b.Open(nil)
	p.Look(1440, 900, "light")
	p.Go(w.server.URL + path)
	p.Wait(connected)
	var nodes int
	p.Eval(`document.querySelectorAll('*').length`, &nodes)
	t.Logf("%d entries: page in %v, %d kB, %d nodes", turns*calls, took, size>>10, nodes)
	if nodes > 4000 {
		t.Errorf("the page has %d nodes", nodes)
	}
	p.Eval(`document.querySelector('details.capsule').open = true`, nil)
	for shown := 100; shown < calls; shown += 100 {
		p.Wait(fmt.Sprintf(`document.querySelectorAll('details.capsule[open] p.tool').length === %d`, shown))
		p.Eval(`document.querySelector('details.capsule[open] a[data-more]').click()`, nil)
	}
	p.Wait(fmt.Sprintf(`document.querySelectorAll('details.capsule[open] p.tool').length === %d && !document.querySelector('a[data-more]')`, calls))
	if faults := p.Faults(); len(faults) > 0 {
		t.Error(faults)
	}
}
