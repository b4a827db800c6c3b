package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestTerminalUse uses the terminal of a page in the ways in which people do. With RAMUS_TEST=full it prints 100 MB and
// kills the server 20 times. RAMUS_CRASHES is the number of kills. The figures of the log are no conditions.
func TestTerminalUse(t *testing.T) {
	t.Parallel()
	d := sit(t)
	d.tab.Allow("http://"+d.cable.address, "clipboardReadWrite", "clipboardSanitizedWrite")
	d.open()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the screen is\n%s", tail(d.text(), 2000))
			d.shot("failed")
		}
	})
	for _, use := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"programs", d.programs}, {"clipboard", d.clipboard}, {"reader", d.reader}, {"keyboard", d.keyboard},
		{"viewers", d.viewers}, {"phone", d.phone},
		{"lag", d.lag}, {"paste", d.paste}, {"network", d.network}, {"kills", d.kills}, {"output", d.output},
	} {
		if !t.Run(use.name, func(t *testing.T) {
			defer func(old *testing.T) { d.typist.t = old }(d.typist.t)
			d.typist.t = t
			d.clear()
			use.do(t)
		}) {
			t.FailNow()
		}
	}
	d.faultless()
}

// atPrompt is true if the screen ends with a prompt.
const atPrompt = `/typed:\/work\$\s*$/.test(` + rterm + `.text())`

// clear empties the screen, and counts prompts from there.
func (d *desk) clear() {
	d.t.Helper()
	d.tab.Eval(xterm+`.clear()`, nil)
	d.tab.Eval(xterm+`.focus()`, nil)
	d.seen = d.typedN
	d.prompt(d.typedN)
}

// programs edits a file with vim, and looks at programs that fill the screen.
func (d *desk) programs(t *testing.T) {
	const full = xterm + `.buffer.active.type === 'alternate'`
	for _, p := range []struct{ name, command, shows, keys string }{
		{"vim", "vim -u NONE notes", "~", "ihello from vim\x1b:wq\r"},
		{"less", "seq 1000 | less", "\n20\n", "Gq"},
		{"tmux", "tmux -f /dev/null", "[0]", "exit\r"},
		{"top", "top", "load average", "q"},
	} {
		if _, err := exec.LookPath(p.name); err != nil {
			t.Logf("there is no %s", p.name)
			continue
		}
		d.tab.Type(p.command + "\r")
		shows, _ := json.Marshal(p.shows)
		if p.name != "top" { // it uses the whole screen without the alternate one
			d.tab.Wait(full)
		}
		d.tab.Wait(rterm + `.text().includes(` + string(shows) + `)`)
		d.shot(p.name)
		d.tab.Type(p.keys)
		if p.name == "top" { // it has cleared the prompts before
			d.tab.Wait(atPrompt)
			d.typedN++
			d.clear()
			continue
		}
		d.done(p.name == "vim")
	}
	if _, err := exec.LookPath("vim"); err == nil {
		if got := d.git("show", "ramus/run-typed:notes"); got != "hello from vim" {
			t.Errorf("the file of vim has %q", got)
		}
	}
}

// clipboard copies a selection, has a program copy, and pastes lines.
func (d *desk) clipboard(t *testing.T) {
	copied := func(want string) {
		t.Helper()
		late := time.Now().Add(10 * time.Second)
		for got := ""; got != want; time.Sleep(20 * time.Millisecond) {
			d.tab.Eval(`navigator.clipboard.readText()`, &got)
			if time.Now().After(late) {
				t.Fatalf("the clipboard has %q, want %q", got, want)
			}
		}
	}
	d.look(`printf '\e]52;c;%s\a' $(printf 'from a program' | base64)`)
	copied("from a program")
	d.look("echo selected words")
	d.tab.Eval(fmt.Sprintf(`(t => { for (let y = 0; y < t.buffer.active.length; y++)
		if (t.buffer.active.getLine(y).translateToString(true) === 'selected words') t.select(0, y, 8) })(%s)`, xterm), nil)
	d.tab.Type("\x03") // copies, and does not interrupt
	copied("selected")
	d.tab.Eval(pasteText(`'echo p1 > p1\necho p2 > p2\n'`), nil) // the shell takes it as one input
	d.tab.Wait(rterm + `.text().includes('echo p2 > p2')`)
	d.tab.Type("\r")
	d.done(true)
	if got := d.git("ls-tree", "--name-only", "ramus/run-typed", "p1", "p2"); got != "p1\np2" {
		t.Errorf("the branch has %q", got)
	}
}

// look types a command that changes no file, and waits for the next prompt.
func (d *desk) look(command string) {
	d.t.Helper()
	d.tab.Type(command + "\r")
	d.done(false)
}

// pasteText pastes the value of an expression.
func pasteText(expression string) string {
	return `(text => { const data = new DataTransfer(); data.setData('text/plain', text);
		document.activeElement.dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true})) })(` + expression + `)`
}

// reader switches the mode for screen readers on, and looks for faults by axe, in both themes and at both sizes.
func (d *desk) reader(t *testing.T) {
	d.tab.Eval(`document.querySelector('[data-part=reader]').click()`, nil)
	d.look("echo words to hear")
	d.tab.Wait(`document.querySelector('.xterm-accessibility')?.innerText.includes('words to hear')`)
	root, _ := filepath.Abs("../../gateway/web/node_modules/axe-core/axe.min.js")
	axe, err := os.ReadFile(root)
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	for _, theme := range []string{"light", "dark"} {
		for _, l := range []struct {
			width, height int
			until         string
		}{{1440, 900, `innerWidth === 1440`}, {390, 844, `innerWidth === 390 && ` + placed}} {
			d.tab.Look(l.width, l.height, theme)
			d.tab.Wait(l.until)
			d.shot(fmt.Sprintf("reader-%d-%s", l.width, theme))
			if err != nil {
				continue
			}
			if found := d.tab.Axe(string(axe)); len(found) > 0 {
				t.Errorf("%d px, %s: %s", l.width, theme, strings.Join(found, "\n"))
			}
		}
	}
	d.tab.Look(1440, 900, "dark")
	d.tab.Eval(`document.querySelector('[data-part=reader]').click()`, nil)
	d.tab.Eval(xterm+`.focus()`, nil)
	d.tab.Eval(`document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'F6', keyCode: 117, bubbles: true, cancelable: true}))`, nil)
	d.tab.Wait(`document.activeElement.role === 'tab'`)
	d.tab.Eval(xterm+`.focus()`, nil)
}

// viewers has a second, narrower page. The size is that of the page in which somebody types.
func (d *desk) viewers(t *testing.T) {
	columns := func() (n int) {
		t.Helper()
		d.tab.Eval(xterm+`.cols`, &n)
		return n
	}
	first, wide := d.tab, columns()
	second := first.Another()
	second.Look(390, 844, "light")
	second.Go("http://" + d.cable.address + shellPath)
	d.tab = second
	d.prompt(d.typedN)
	d.tab.Wait(xterm + `.cols === ` + strconv.Itoa(wide)) // to look on changes nothing
	d.tab.Wait(`!document.querySelector('[data-part=take]').hidden`)
	d.shot("watcher-390-light")
	d.tab.Eval(xterm+`.focus()`, nil)
	d.command("tput cols > columns")
	narrow := columns()
	if got := d.git("show", "ramus/run-typed:columns"); narrow >= wide || got != strconv.Itoa(narrow) {
		t.Errorf("the program sees %s columns, the page has %d, and had %d", got, narrow, wide)
	}
	d.tab = first
	d.tab.Wait(xterm + `.cols === ` + strconv.Itoa(narrow))
	d.tab.Wait(`document.querySelector('[data-part=status]').textContent.includes('types')`)
	d.shot("watcher-1440-dark")
	d.tab.Eval(`document.querySelector('[data-part=take]').click()`, nil)
	d.tab.Wait(xterm + `.cols === ` + strconv.Itoa(wide))
	d.tab.Eval(xterm+`.focus()`, nil)
	d.command("tput cols > columns")
	if got := d.git("show", "ramus/run-typed:columns"); got != strconv.Itoa(wide) {
		t.Errorf("the program sees %s columns, want %d", got, wide)
	}
	second.Go("about:blank")
}

// placed is true if the terminal fills the room between the top of the page and the keyboard.
const placed = `((f, top) => f.top >= top && f.top <= top + 8 && f.bottom <= innerHeight && f.bottom >= innerHeight - 8)
	(document.querySelector('.term-frame').getBoundingClientRect(), document.querySelector('.top').getBoundingClientRect().bottom)`

// phone uses the keys that phones lack, with and without a keyboard on the screen.
func (d *desk) phone(t *testing.T) {
	d.tab.Look(390, 844, "light")
	d.tab.Wait(`document.querySelector('.term-keys').getClientRects().length && ` + placed)
	for _, height := range []int{500, 844, 500, 844} {
		d.tab.Eval(`scrollTo(0, 0)`, nil)
		d.tab.Look(390, height, "light")
		d.tab.Wait(fmt.Sprintf(`innerHeight === %d && %s`, height, placed))
	}
	d.tab.Eval(`scrollTo(0, 10000)`, nil)
	if !d.tab.Holds(placed) {
		t.Error("the page can be scrolled until its top covers the terminal")
	}
	d.tab.Eval(`document.activeElement.blur(); scrollTo(0, 0); `+xterm+`.focus()`, nil)
	d.tab.Wait(placed)
	key := func(selector string) {
		t.Helper()
		d.tab.Eval(`document.querySelector('.term-keys `+selector+`').click()`, nil)
	}
	d.shot("phone-390-light")
	d.tab.Type("sleep 100; echo $?\r")
	d.tab.Wait(rterm + `.active.screen.busy`)
	key("[data-press=break]")
	d.done(false)
	d.tab.Type("sleep 200\r")
	d.tab.Wait(rterm + `.active.screen.busy`)
	key("[data-hold=ctrl]")
	d.tab.Type("c")
	d.done(false)
	d.look("echo again")
	key("[data-press=up]")
	d.tab.Type("\r")
	d.done(false)
	key("[data-line]")
	d.tab.Eval(`document.querySelector('#term-line').value = 'echo by a line'`, nil)
	d.shot("line-390-light")
	d.tab.Eval(`document.querySelector('[data-part=line]').requestSubmit()`, nil)
	d.done(false)
	key("[data-line]")
	text := d.text()
	if strings.Count(text, "\nagain") != 2 || !strings.Contains(text, "\nby a line") {
		t.Errorf("the screen is\n%s", text)
	}
	d.tab.Look(1440, 900, "dark")
}

// lag measures the time from a key to its echo on the screen.
func (d *desk) lag(t *testing.T) {
	var took []float64
	d.tab.Eval(fmt.Sprintf(`(async t => { const took = [];
		for (let i = 0; i < 200; i++) {
			const at = performance.now();
			await new Promise(shown => { const on = t.onWriteParsed(() => { on.dispose(); shown() }); t.input('x') });
			took.push(performance.now() - at);
		}
		return took })(%s)`, xterm), &took)
	slices.Sort(took)
	t.Logf("key to echo: median %.1f ms, 95%% %.1f ms, most %.1f ms", took[len(took)/2], took[len(took)*95/100], took[len(took)-1])
	d.tab.Type("\x15")
	d.tab.Wait(atPrompt)
}

// paste pastes 1 MiB, after it is asked whether to.
func (d *desk) paste(t *testing.T) {
	d.tab.Type("cat > pasted\r")
	d.tab.Wait(rterm + `.active.screen.busy`)
	began := time.Now()
	d.tab.Eval(pasteText(`Array.from({length: 16384}, (_, i) => String(i).padStart(63, 'abc ')).join('\n') + '\n'`), nil)
	d.tab.Wait(`document.querySelector('dialog.ask')?.open`)
	d.shot("paste")
	d.tab.Eval(`document.querySelector('dialog.ask .primary').click()`, nil)
	d.tab.Wait(`!document.querySelector('dialog.ask')`)
	d.tab.Type("\x04") // not all echoes need be there, because the kernel drops them if a screen is slow
	d.tab.Wait(atPrompt)
	t.Logf("1 MiB was pasted in %v", time.Since(began).Round(time.Millisecond))
	d.typedN++
	d.wrote++
	d.committed()
	lines := strings.Split(d.git("show", "ramus/run-typed:pasted"), "\n")
	if len(lines) != 16384 || len(lines[9999]) != 63 || !strings.HasSuffix(lines[9999], "9999") {
		t.Errorf("%d lines were pasted", len(lines))
	}
}

// keyboard leaves the terminal by F6. Tab leads past it, and Enter at its tab leads back. After the focus was
// elsewhere, Tab leads into it again, also if the focus was nowhere in between.
func (d *desk) keyboard(t *testing.T) {
	const inside = `document.activeElement.matches('.xterm-helper-textarea')`
	d.tab.Wait(inside)
	d.tab.Press("F6")
	d.tab.Wait(`document.activeElement.matches('.term-tabs button')`)
	for n := 0; d.tab.Holds(`document.activeElement.closest('.term-frame')`); n++ {
		if n == 40 || d.tab.Holds(inside) {
			t.Fatalf("after %d keys the focus is still in the terminal", n)
		}
		d.tab.Press("Tab")
	}
	d.tab.Eval(`document.querySelector('.term-tabs button[aria-selected=true]').focus()`, nil)
	d.tab.Press("Enter")
	d.tab.Wait(inside + ` && document.activeElement.tabIndex === 0`)
	d.tab.Press("F6")
	d.tab.Wait(`document.activeElement.matches('.term-tabs button')`)
	d.tab.Eval(`document.activeElement.blur(); document.querySelector('a.skip').focus()`, nil)
	if !d.tab.Holds(`[...document.querySelectorAll('.xterm-helper-textarea')].every(e => e.tabIndex === 0)`) {
		t.Error("Tab leads past a terminal that was left long ago")
	}
	d.tab.Eval(xterm+`.focus()`, nil)
}

// network cuts the network while a program prints.
func (d *desk) network(t *testing.T) {
	var took []time.Duration
	d.tab.Type("for i in $(seq 400); do echo net-$i.; sleep 0.005; done\r")
	d.tab.Wait(rterm + `.text().includes('net-1.')`) // input that is on its way when the network is cut is lost
	for range 5 {
		d.tab.Wait(rterm + `.dataset.state === 'open'`)
		began, dials := time.Now(), d.cable.made()
		d.cable.cut()
		for d.cable.made() == dials {
			time.Sleep(time.Millisecond)
		}
		d.tab.Wait(rterm + `.dataset.state === 'open'`)
		took = append(took, time.Since(began))
	}
	d.done(false)
	inOrder(t, d.text(), "net-", 400)
	slices.Sort(took)
	t.Logf("a connection that was cut was there again after a median of %v, and at most %v",
		took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
}

// kills kills the server while a program prints.
func (d *desk) kills(t *testing.T) {
	kills := 2
	if os.Getenv("RAMUS_TEST") == "full" {
		kills = 20
	}
	if n, err := strconv.Atoi(os.Getenv("RAMUS_CRASHES")); err == nil && n > 0 {
		kills = n
	}
	var took []time.Duration
	for n := range kills {
		d.tab.Type(fmt.Sprintf("for i in $(seq 100); do echo kill-%d-$i.; sleep 0.005; done; echo %d > killed\r", n, n))
		d.tab.Wait(fmt.Sprintf(`%s.text().includes('kill-%d-1.')`, rterm, n))
		time.Sleep(rand.N(300 * time.Millisecond)) // the kill is at any time
		d.kill(syscall.SIGKILL)
		d.serve()
		began := time.Now()
		d.tab.Wait(rterm + `.dataset.state === 'open'`)
		took = append(took, time.Since(began))
		d.done(true)
	}
	text := d.text()
	for n := range kills {
		inOrder(t, text, fmt.Sprintf("kill-%d-", n), 100)
	}
	if got := d.git("show", "ramus/run-typed:killed"); got != strconv.Itoa(kills-1) {
		t.Errorf("the last command wrote %q", got)
	}
	slices.Sort(took)
	t.Logf("%d kills, %d commands that wrote files and as many commits; the terminal was there %v after the server (median)", kills, d.wrote,
		took[len(took)/2].Round(time.Millisecond))
}

// inOrder fails if a text lacks a numbered line, or has one twice or in the wrong order.
func inOrder(t *testing.T, text, prefix string, n int) {
	t.Helper()
	next := 1
	for line := range strings.SplitSeq(text, "\n") {
		if !strings.HasPrefix(line, prefix) {
			continue
		}
		if line != fmt.Sprintf("%s%d.", prefix, next) {
			t.Errorf("the line %q, want %s%d", line, prefix, next)
			return
		}
		next++
	}
	if next != n+1 {
		t.Errorf("%d lines %s, want %d", next-1, prefix, n)
	}
}

// output prints more than a page can keep, and stops a program that prints without end.
func (d *desk) output(t *testing.T) {
	mega := 4
	if os.Getenv("RAMUS_TEST") == "full" {
		mega = 100
	}
	began := time.Now()
	d.tab.Type(fmt.Sprintf("yes 0123456789012345678901234567890123456789012345678901234567890123456789012345678 | head -c %d000000; echo the end\r", mega))
	d.typedN++
	d.waitLong(rterm+`.dataset.state === 'open' && `+rterm+`.text().includes('the end\ntyped:')`, 5*time.Minute)
	took := time.Since(began)
	heap, _ := d.tab.Heap()
	t.Logf("%d MB were shown in %v, %.1f MB/s; the scripts of the page use %.1f MB", mega, took.Round(time.Millisecond),
		float64(mega)/took.Seconds(), float64(heap)/1e6)
	d.tab.Eval(xterm+`.clear()`, nil)
	d.tab.Type("yes\r")
	d.tab.Wait(xterm + `.buffer.active.length > 2000`)
	began = time.Now()
	d.tab.Type("\x03")
	d.typedN++
	d.tab.Wait(atPrompt)
	t.Logf("from ^C to the prompt: %v", time.Since(began).Round(time.Millisecond))
}

// waitLong waits until the expression of a script is true.
func (d *desk) waitLong(script string, most time.Duration) {
	d.t.Helper()
	for late := time.Now().Add(most); ; time.Sleep(200 * time.Millisecond) {
		var ok bool
		d.tab.Eval("!!("+script+")", &ok)
		if ok {
			return
		}
		if time.Now().After(late) {
			d.t.Fatalf("not true after %v: %s", most, script)
		}
	}
}

// tail returns the end of a text.
func tail(text string, n int) string { return text[max(0, len(text)-n):] }

// cable is a way to a server that can be cut.
type cable struct {
	address string

	mu    sync.Mutex // guards all below
	conns map[net.Conn]bool
	dials int
}

// lay serves a way to a server, until the test ends.
func lay(t *testing.T, to string) *cable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{address: l.Addr().String(), conns: map[net.Conn]bool{}}
	var serving sync.WaitGroup
	t.Cleanup(func() { l.Close(); c.cut(); serving.Wait() })
	serving.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { c.join(in, to) })
		}
	})
	return c
}

func (c *cable) join(in net.Conn, to string) {
	defer in.Close()
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer out.Close()
	c.mu.Lock()
	c.conns[in] = true
	c.dials++
	c.mu.Unlock()
	var back sync.WaitGroup
	back.Go(func() { _, _ = io.Copy(in, out); in.Close() })
	_, _ = io.Copy(out, in)
	out.Close()
	back.Wait()
	c.mu.Lock()
	delete(c.conns, in)
	c.mu.Unlock()
}

// made returns the number of connections so far.
func (c *cable) made() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dials
}

// cut ends all connections.
func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		conn.Close()
	}
}
