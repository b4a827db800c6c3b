// Package webtest is for tests and demos: it drives Chromium over the DevTools protocol.
//
// A [Browser] is a Chromium, and a [Page] a tab of it. A [Site] is a real ramus that serves its pages, with the
// stand-in of an agent. A [Story] is the day of a person at a Site, by mouse or by keyboard alone, with scripts or
// without.
package webtest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// T is the part of a *testing.T that this package needs. Fatal, Fatalf and Skip do not return.
type T interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Skip(args ...any)
	TempDir() string
	Cleanup(func())
}

// chromiums are the programs that Find looks for. RAMUS_CHROMIUM names another one.
var chromiums = []string{"/usr/lib/chromium/chromium-headless-shell", "chromium-headless-shell", "chromium",
	"chromium-browser", "google-chrome"}

// Find returns a program of Chromium. A test that needs one is skipped if there is none, and fails if CI is set.
func Find(t T) string {
	t.Helper()
	list := chromiums
	if named := os.Getenv("RAMUS_CHROMIUM"); named != "" {
		list = []string{named}
	}
	for _, name := range list {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("there is no Chromium")
	}
	t.Skip("cannot run here: there is no Chromium")
	return ""
}

// Browser is a Chromium with one connection.
type Browser struct {
	t    T
	conn *websocket.Conn

	mu      sync.Mutex // guards all below
	last    int
	waiting map[int]chan answer
	events  map[string][]chan json.RawMessage // by session and method
}

type answer struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

// Start starts a Chromium, which ends with the test.
func Start(t T) *Browser {
	t.Helper()
	program := Find(t)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
		"--disable-dev-shm-usage", "--no-first-run", fmt.Sprintf("--window-size=%d,%d", windowWidth, windowHeight),
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-port=0",
		"--user-data-dir="+dir, "about:blank")
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	b := &Browser{t: t, waiting: map[int]chan answer{}, events: map[string][]chan json.RawMessage{}}
	address := b.address(filepath.Join(dir, "DevToolsActivePort"))
	conn, _, err := websocket.DefaultDialer.Dial(address, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.conn = conn
	t.Cleanup(func() { conn.Close() })
	go b.read()
	return b
}

// address waits for the file in which Chromium writes where it listens.
func (b *Browser) address(file string) string {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		text, err := os.ReadFile(file)
		if port, path, ok := strings.Cut(strings.TrimSpace(string(text)), "\n"); err == nil && ok {
			return "ws://127.0.0.1:" + port + path
		}
	}
	b.t.Fatal("Chromium does not say where it listens")
	return ""
}

func (b *Browser) read() {
	for {
		var m struct {
			ID        int
			Method    string
			SessionID string `json:"sessionId"`
			Params    json.RawMessage
			answer
		}
		if err := b.conn.ReadJSON(&m); err != nil {
			return
		}
		b.mu.Lock()
		if m.ID != 0 {
			if c := b.waiting[m.ID]; c != nil {
				c <- m.answer
				delete(b.waiting, m.ID)
			}
		} else {
			for _, c := range b.events[m.SessionID+" "+m.Method] {
				select {
				case c <- m.Params:
				default:
				}
			}
		}
		b.mu.Unlock()
	}
}

// send sends a command and waits for its result.
func (b *Browser) send(session, method string, params any, into any) error {
	b.mu.Lock()
	b.last++
	id, c := b.last, make(chan answer, 1)
	b.waiting[id] = c
	err := b.conn.WriteJSON(map[string]any{"id": id, "method": method, "params": params, "sessionId": session})
	b.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case a := <-c:
		if a.Error != nil {
			return fmt.Errorf("%s: %s", method, a.Error.Message)
		}
		if into == nil {
			return nil
		}
		return json.Unmarshal(a.Result, into)
	case <-time.After(60 * time.Second):
		return fmt.Errorf("%s: no answer", method)
	}
}

// Page is a tab.
type Page struct {
	b       *Browser
	session string
	context string // with the cookies
	loaded  chan json.RawMessage
}

type object = map[string]any

// violations gathers violations of the Content-Security-Policy, and errors of scripts.
const violations = `window.__faults = [];
addEventListener('securitypolicyviolation', e => __faults.push('csp ' + e.effectiveDirective + ' ' + e.blockedURI + ' ' + e.sample));
addEventListener('error', e => __faults.push('error ' + e.message));
addEventListener('unhandledrejection', e => __faults.push('rejection ' + e.reason));`

// Open opens a tab. The headers are sent with every request of it.
func (b *Browser) Open(headers map[string]string) *Page {
	b.t.Helper()
	var target struct {
		BrowserContextID string `json:"browserContextId"`
	}
	b.must(b.send("", "Target.createBrowserContext", object{"disposeOnDetach": true}, &target))
	return b.tab(target.BrowserContextID, headers)
}

// Another opens a tab with the cookies of this one.
func (p *Page) Another() *Page {
	p.b.t.Helper()
	return p.b.tab(p.context, nil)
}

func (b *Browser) tab(browserContext string, headers map[string]string) *Page {
	b.t.Helper()
	var target struct {
		TargetID string `json:"targetId"`
	}
	b.must(b.send("", "Target.createTarget", object{"url": "about:blank", "browserContextId": browserContext}, &target))
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	b.must(b.send("", "Target.attachToTarget", object{"targetId": target.TargetID, "flatten": true}, &attached))
	p := &Page{b: b, session: attached.SessionID, context: browserContext, loaded: make(chan json.RawMessage, 16)}
	b.mu.Lock()
	b.events[p.session+" Page.loadEventFired"] = append(b.events[p.session+" Page.loadEventFired"], p.loaded)
	b.mu.Unlock()
	p.do("Page.enable", object{})
	p.do("Network.enable", object{})
	if len(headers) > 0 {
		p.do("Network.setExtraHTTPHeaders", object{"headers": headers})
	}
	p.do("Page.addScriptToEvaluateOnNewDocument", object{"source": violations})
	return p
}

func (b *Browser) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (p *Page) do(method string, params any) {
	p.b.t.Helper()
	p.b.must(p.b.send(p.session, method, params, nil))
}

// Look sets the size of the page, which is at most 1440 by 900 pixels if its times are measured, and the theme
// ("light" or "dark").
func (p *Page) Look(width, height int, theme string) {
	p.b.t.Helper()
	p.do("Emulation.setTouchEmulationEnabled", object{"enabled": width < 700}) // first, as a phone has it before it turns
	p.do("Emulation.setDeviceMetricsOverride",
		object{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700})
	p.do("Emulation.setEmulatedMedia", object{"features": []object{{"name": "prefers-color-scheme", "value": theme},
		{"name": "prefers-reduced-motion", "value": "reduce"}}})
}

// Allow grants the pages of an origin permissions, such as "clipboardReadWrite", and no others.
func (p *Page) Allow(origin string, permissions ...string) {
	p.b.t.Helper()
	p.b.must(p.b.send("", "Browser.grantPermissions",
		object{"origin": origin, "browserContextId": p.context, "permissions": permissions}, nil))
}

// Scripts switches the scripts of pages on or off.
func (p *Page) Scripts(on bool) {
	p.b.t.Helper()
	p.do("Emulation.setScriptExecutionDisabled", object{"value": !on})
}

// Offline takes the network away, or gives it back.
func (p *Page) Offline(away bool) {
	p.b.t.Helper()
	p.do("Network.emulateNetworkConditions",
		object{"offline": away, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1})
}

// Go loads a page, and waits until it is loaded.
func (p *Page) Go(url string) {
	p.b.t.Helper()
	for len(p.loaded) > 0 {
		<-p.loaded
	}
	p.do("Page.navigate", object{"url": url})
	p.Loaded()
}

// Loaded waits until a page is loaded.
func (p *Page) Loaded() {
	p.b.t.Helper()
	select {
	case <-p.loaded:
	case <-time.After(30 * time.Second):
		p.b.t.Fatal("the page is not loaded after 30 s")
	}
}

// Eval returns the value of a script's expression, which may be a promise.
func (p *Page) Eval(script string, into any) {
	p.b.t.Helper()
	if err := p.eval(script, into); err != nil {
		p.b.t.Fatal(err)
	}
}

func (p *Page) eval(script string, into any) error {
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	if err := p.b.send(p.session, "Runtime.evaluate",
		object{"expression": script, "awaitPromise": true, "returnByValue": true}, &r); err != nil {
		return err
	}
	if r.ExceptionDetails != nil {
		return errors.New(r.ExceptionDetails.Text + " " + r.ExceptionDetails.Exception.Description)
	}
	if into == nil || len(r.Result.Value) == 0 {
		return nil
	}
	return json.Unmarshal(r.Result.Value, into)
}

// Type types a text, key by key, at the element that has the focus. "\r" is the key Enter, "\x1b" is Escape, and other
// control characters are typed with Ctrl. Characters that are not ASCII come as from an input method.
func (p *Page) Type(text string) {
	p.b.t.Helper()
	for _, r := range text {
		if r > 0x7e {
			p.do("Input.insertText", object{"text": string(r)})
			continue
		}
		key := object{"type": "keyDown", "text": string(r), "unmodifiedText": string(r), "key": string(r)}
		switch {
		case r == '\r':
			key["key"], key["code"], key["windowsVirtualKeyCode"] = "Enter", "Enter", 13
		case r == 0x1b:
			key = object{"type": "rawKeyDown", "key": "Escape", "code": "Escape", "windowsVirtualKeyCode": 27}
		case r < ' ':
			key = object{"type": "rawKeyDown", "key": string(r | 0x60), "code": "Key" + string(r|0x40),
				"windowsVirtualKeyCode": r | 0x40, "modifiers": 2}
		}
		p.do("Input.dispatchKeyEvent", key)
		key["type"] = "keyUp"
		delete(key, "text")
		delete(key, "unmodifiedText")
		p.do("Input.dispatchKeyEvent", key)
	}
}

// Wait waits until the expression of a script is true.
func (p *Page) Wait(script string) {
	p.b.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if p.Holds(script) {
			return
		}
	}
	var text string
	_ = p.eval("document.body.innerText", &text)
	p.b.t.Fatalf("not true after 30 s: %s\n%s", script, text)
}

// Holds reports whether the expression of a script is true now. A page that is being replaced has no script, and
// Holds reports false.
func (p *Page) Holds(script string) bool {
	var ok bool
	return p.eval("!!("+script+")", &ok) == nil && ok
}

// Faults returns the violations of the Content-Security-Policy and the errors of scripts so far.
func (p *Page) Faults() []string {
	p.b.t.Helper()
	var list []string
	p.Eval("window.__faults || []", &list)
	return list
}

// Shot writes a picture of the page, or of its first window if whole is not set.
func (p *Page) Shot(file string, whole bool) {
	p.b.t.Helper()
	var shot struct{ Data string }
	p.b.must(p.b.send(p.session, "Page.captureScreenshot", object{"format": "png", "captureBeyondViewport": whole}, &shot))
	b, err := base64.StdEncoding.DecodeString(shot.Data)
	p.b.must(err)
	p.b.must(os.MkdirAll(filepath.Dir(file), 0o755))
	p.b.must(os.WriteFile(file, b, 0o644))
}

// Status returns the status of a GET request.
func Status(url string, headers map[string]string) (int, error) {
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		return 0, err
	}
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}
