package webtest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// key is a key of a keyboard, as the DevTools protocol names it.
type key struct {
	code string
	sign int // the virtual key code
	text string
}

// keys are the keys that Press knows.
var keys = map[string]key{
	"Tab":        {"Tab", 9, ""},
	"Enter":      {"Enter", 13, "\r"},
	"Escape":     {"Escape", 27, ""},
	"F6":         {"F6", 117, ""},
	" ":          {"Space", 32, " "},
	"?":          {"Slash", 191, "?"},
	"]":          {"BracketRight", 221, "]"},
	"ArrowUp":    {"ArrowUp", 38, ""},
	"ArrowDown":  {"ArrowDown", 40, ""},
	"ArrowLeft":  {"ArrowLeft", 37, ""},
	"ArrowRight": {"ArrowRight", 39, ""},
	"Home":       {"Home", 36, ""},
	"End":        {"End", 35, ""},
	"PageUp":     {"PageUp", 33, ""},
	"PageDown":   {"PageDown", 34, ""},
}

// keyOf returns a key by its name. A lower-case letter is its own name.
func keyOf(name string) (key, bool) {
	if len(name) == 1 && 'a' <= name[0] && name[0] <= 'z' {
		upper := strings.ToUpper(name)
		return key{"Key" + upper, int(upper[0]), name}, true
	}
	k, ok := keys[name]
	return k, ok
}

// shift is the bit of the Shift key.
const shift = 8

// Press presses a key, such as "Tab", "Shift+Tab" or "a", and releases it.
func (p *Page) Press(name string) {
	p.b.t.Helper()
	modifiers := 0
	name, isShifted := strings.CutPrefix(name, "Shift+")
	if isShifted {
		modifiers = shift
	}
	k, ok := keyOf(name)
	if !ok {
		p.b.t.Fatalf("there is no key %q", name)
	}
	event := object{"type": "rawKeyDown", "key": name, "code": k.code, "windowsVirtualKeyCode": k.sign,
		"nativeVirtualKeyCode": k.sign, "modifiers": modifiers}
	if k.text != "" {
		event["type"], event["text"], event["unmodifiedText"] = "keyDown", k.text, k.text
	}
	p.do("Input.dispatchKeyEvent", event)
	delete(event, "text")
	delete(event, "unmodifiedText")
	event["type"] = "keyUp"
	p.do("Input.dispatchKeyEvent", event)
}

// Insert puts a text into the element that has the focus, at once.
func (p *Page) Insert(text string) {
	p.b.t.Helper()
	p.do("Input.insertText", object{"text": text})
}

// maxTabs bounds the number of elements that TabTo visits.
const maxTabs = 300

// TabTo presses Tab until the element that fits a selector has the focus. The focus must be visible at every element
// on the way. A terminal takes the key Tab itself; F6 leaves it, and then the way goes back.
func (p *Page) TabTo(selector string) {
	p.b.t.Helper()
	var way []string
	step := "Tab"
	for range maxTabs {
		var at struct {
			There, Takes bool
			Name, Fault  string
		}
		p.Eval("("+focus+")("+Quote(selector)+")", &at)
		if at.Fault != "" {
			p.b.t.Fatalf("the focus on %s is not visible: %s", at.Name, at.Fault)
		}
		if at.There {
			return
		}
		way = append(way, at.Name)
		if at.Takes {
			p.Press("F6")
			step = "Shift+Tab"
			continue
		}
		p.Press(step)
	}
	p.b.t.Fatalf("Tab does not reach %s in %d steps: %s", selector, maxTabs, strings.Join(way[:min(len(way), 60)], ", "))
}

// focus describes the element that has the focus, and says why it is not seen. An element shows its focus by an
// outline, or by a change of its own or of an element around it. No bar covers it.
const focus = `selector => {
	const e = document.activeElement;
	if (!e || e === document.body || e === document.documentElement)
		return {there: false, name: 'nothing', fault: ''};
	const words = (e.getAttribute('aria-label') || e.innerText || e.getAttribute('name') || '').trim();
	const name = e.tagName.toLowerCase() + (e.id ? '#' + e.id : '') + ' "' + words.split('\n')[0].slice(0, 40) + '"';
	const takes = e.classList.contains('xterm-helper-textarea');
	const at = {there: e.matches(selector), takes, name, fault: ''};
	if (takes) return at;
	const lined = x => {
		const s = getComputedStyle(x);
		return s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 1;
	};
	const looks = () => {
		const all = [];
		for (let x = e, i = 0; x && i < 4; x = x.parentElement, i++) {
			const s = getComputedStyle(x);
			all.push(s.outlineStyle + s.outlineWidth + s.boxShadow + s.borderTopColor + s.backgroundColor);
		}
		return all.join('|');
	};
	if (!e.matches(':focus-visible')) at.fault = 'it has no :focus-visible';
	else if (!lined(e) || e.classList.contains('hide')) {
		const now = looks();
		e.blur();
		const before = looks();
		e.focus();
		if (now === before) at.fault = 'nothing changes';
	}
	const shown = e.classList.contains('hide') && e.closest('label') || e;
	const r = shown.getBoundingClientRect();
	const left = Math.max(r.left, 0), right = Math.min(r.right, innerWidth);
	const top = Math.max(r.top, 0), bottom = Math.min(r.bottom, innerHeight);
	if (right <= left || bottom <= top) at.fault = at.fault || 'it is outside of the window';
	else {
		const seen = [[.5, .5], [.1, .2], [.9, .8]].some(([x, y]) => {
			const t = document.elementFromPoint(left + (right - left) * x, top + (bottom - top) * y);
			return t && (shown.contains(t) || t.contains(shown));
		});
		if (!seen) at.fault = at.fault || 'it is covered';
	}
	return at;
}`

// Quote returns a text as an expression of a script.
func Quote(text string) string {
	b, _ := json.Marshal(text) // a string has a form in JSON
	return string(b)
}

// Click clicks on the element that fits a selector, at its center.
func (p *Page) Click(selector string) {
	p.b.t.Helper()
	var at *struct{ X, Y float64 }
	p.Eval(fmt.Sprintf(`(() => {
		const e = document.querySelector(%s);
		if (!e) return null;
		e.scrollIntoView({block: 'center', behavior: 'instant'});
		const r = e.getBoundingClientRect();
		return r.width && r.height ? {x: r.left + r.width / 2, y: r.top + r.height / 2} : null;
	})()`, Quote(selector)), &at)
	if at == nil {
		p.b.t.Fatalf("there is nothing to click at %s", selector)
	}
	for _, kind := range []string{"mouseMoved", "mousePressed", "mouseReleased"} {
		event := object{"type": kind, "x": at.X, "y": at.Y}
		if kind != "mouseMoved" {
			event["button"], event["clickCount"] = "left", 1
		}
		p.do("Input.dispatchMouseEvent", event)
	}
}

// Follow calls do, which leads to another page, and waits until that is loaded.
func (p *Page) Follow(do func()) {
	p.b.t.Helper()
	for len(p.loaded) > 0 {
		<-p.loaded
	}
	do()
	p.Loaded()
}

// Focused has the page behave as the front one, which alone gets keys and counts as seen.
func (p *Page) Focused() {
	p.b.t.Helper()
	p.do("Emulation.setFocusEmulationEnabled", object{"enabled": true})
}

// Throttle slows the processor down by a factor, and the network to so many bits a second with a latency in
// milliseconds. 1, 0 and 0 are the machine as it is.
func (p *Page) Throttle(slower float64, bits, latency int) {
	p.b.t.Helper()
	rate := -1
	if bits > 0 {
		rate = bits / 8
	}
	p.do("Emulation.setCPUThrottlingRate", object{"rate": slower})
	p.do("Network.emulateNetworkConditions",
		object{"offline": false, "latency": latency, "downloadThroughput": rate, "uploadThroughput": rate})
}

// Forget empties the cache of the browser.
func (p *Page) Forget() {
	p.b.t.Helper()
	p.do("Network.clearBrowserCache", object{})
}

// Watch runs a script in every page that is loaded from now on, before its own.
func (p *Page) Watch(script string) {
	p.b.t.Helper()
	p.do("Page.addScriptToEvaluateOnNewDocument", object{"source": script})
}

// Heap returns the bytes that the scripts of the page use after a collection, and the number of nodes of the document.
func (p *Page) Heap() (bytes, nodes int) {
	p.b.t.Helper()
	p.do("HeapProfiler.collectGarbage", object{})
	var usage struct{ UsedSize, BackingStorageSize float64 }
	p.b.must(p.b.send(p.session, "Runtime.getHeapUsage", object{}, &usage))
	p.Eval(`document.querySelectorAll('*').length`, &nodes)
	return int(usage.UsedSize + usage.BackingStorageSize), nodes
}

// Work is time of the processor, which the main thread of a page has used. It includes the time by which Throttle
// slows the thread down, and no time in which the thread waits for a processor.
type Work struct{ All, Script, Style, Layout time.Duration }

// Since returns the work after an earlier one.
func (w Work) Since(earlier Work) Work {
	return Work{w.All - earlier.All, w.Script - earlier.Script, w.Style - earlier.Style, w.Layout - earlier.Layout}
}

func (w Work) String() string {
	return fmt.Sprintf("%.2f s (scripts %.2f, style %.2f, layout %.2f)", w.All.Seconds(), w.Script.Seconds(),
		w.Style.Seconds(), w.Layout.Seconds())
}

// Work returns the work of the page since the first call.
func (p *Page) Work() (w Work) {
	p.b.t.Helper()
	p.do("Performance.enable", object{"timeDomain": "threadTicks"})
	var got struct {
		Metrics []struct {
			Name  string
			Value float64 // seconds
		}
	}
	p.b.must(p.b.send(p.session, "Performance.getMetrics", nil, &got))
	for _, m := range got.Metrics {
		of := map[string]*time.Duration{"TaskDuration": &w.All, "ScriptDuration": &w.Script,
			"RecalcStyleDuration": &w.Style, "LayoutDuration": &w.Layout}[m.Name]
		if of != nil {
			*of = time.Duration(m.Value * float64(time.Second))
		}
	}
	return w
}
