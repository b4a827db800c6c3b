package web_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gateway/web/webtest"
)

// vitals collects the Web Vitals of a page. __vitals.events are the events of interactions that
// took 16 ms or longer, and __vitals.frames the frames that took 50 ms or longer.
const vitals = `window.__vitals = {lcp: 0, cls: 0, events: [], frames: []};
const follow = (type, see, more) =>
	new PerformanceObserver(l => l.getEntries().forEach(see)).observe({type, buffered: true, ...more});
const nameOf = e => !e ? 'nothing' :
	e.nodeName.toLowerCase() + (e.id ? '#' + e.id : e.classList?.length ? '.' + e.classList[0] : '');
follow('largest-contentful-paint', e => { __vitals.lcp = e.startTime; });
follow('layout-shift', e => { if (!e.hadRecentInput) __vitals.cls += e.value; });
follow('event', e => {
	if (e.interactionId) __vitals.events.push({id: e.interactionId, name: e.name, target: nameOf(e.target),
		start: e.startTime, handled: e.processingStart, done: e.processingEnd, took: e.duration});
}, {durationThreshold: 16});
follow('long-animation-frame', f => __vitals.frames.push({start: f.startTime, took: f.duration,
	blocked: f.blockingDuration, render: f.renderStart, style: f.styleAndLayoutStart,
	scripts: f.scripts.map(s => ({name: s.invoker + ' ' + s.sourceFunctionName, took: s.duration,
		forced: s.forcedStyleAndLayoutDuration}))}));`

// event is the longest event of an interaction. Its times are in milliseconds of the page's clock.
type event struct {
	ID                         float64
	Name, Target               string
	Start, Handled, Done, Took float64
}

// String returns the parts of the time until the next picture of the page: the wait for the handlers, the handlers,
// and the picture.
func (e event) String() string {
	return fmt.Sprintf("%5.0f ms  %-11s %-22s waits %4.0f, is handled %4.0f, is shown %4.0f", e.Took, e.Name, e.Target,
		e.Handled-e.Start, e.Done-e.Handled, e.Start+e.Took-e.Done)
}

// frame is a long frame. Its times are in milliseconds of the page's clock, and Render and Style are zero if it shows
// nothing.
type frame struct {
	Start, Took, Blocked, Render, Style float64
	Scripts                             []struct {
		Name         string
		Took, Forced float64
	}
}

// String returns the parts of a frame: tasks before the rendering, scripts of the rendering, and style and layout.
func (f frame) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "frame of %.0f ms, blocks %.0f", f.Took, f.Blocked)
	if end := f.Start + f.Took; f.Render > 0 {
		fmt.Fprintf(&b, "; tasks %.0f, scripts of the frame %.0f, style and layout %.0f", f.Render-f.Start,
			cmp.Or(f.Style, end)-f.Render, end-cmp.Or(f.Style, end))
	}
	for _, s := range f.Scripts {
		fmt.Fprintf(&b, "; %s %.0f, of which layout %.0f", s.Name, s.Took, s.Forced)
	}
	return b.String()
}

// interactions are the interactions of a page with a person during a time.
type interactions struct {
	Count  int // with those that took less than 16 ms
	Events []event
	Frames []frame
	// Work is the time of the processor that the main thread used, and Over the time that passed.
	Work webtest.Work
	Over time.Duration
}

// keyEvery is the time between two keys or presses of a person who types quickly, 120 words a minute.
const keyEvery = 100 * time.Millisecond

// interact types at the composer of the conversation, and opens and closes its menu.
func interact(p *webtest.Page) (seen interactions) {
	pause := time.NewTicker(keyEvery)
	defer pause.Stop()
	var before struct{ Count, Now float64 }
	p.Click("#say")
	p.Eval(`__vitals.events = [], __vitals.frames = [], {count: performance.interactionCount}`, &before)
	work, began := p.Work(), time.Now()
	for range 10 {
		for _, key := range []string{"a", "b", "c", "d", " "} {
			<-pause.C
			p.Press(key)
		}
		for _, pressed := range []string{".say summary", ".say summary", "#say"} {
			<-pause.C
			p.Click(pressed)
		}
	}
	seen.Work, seen.Over = p.Work().Since(work), time.Since(began)
	// The last entries come after the picture that they wait for.
	p.Eval(`new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(r, 200))))`, nil)
	var after struct {
		Count  float64
		Events []event
		Frames []frame
	}
	p.Eval(`({count: performance.interactionCount, events: __vitals.events, frames: __vitals.frames})`, &after)
	seen.Count, seen.Frames = int(after.Count-before.Count), after.Frames
	slices.SortFunc(after.Events, func(a, b event) int { return cmp.Compare(b.Took, a.Took) })
	for _, e := range after.Events { // an interaction is as long as its longest event
		if !slices.ContainsFunc(seen.Events, func(x event) bool { return x.ID == e.ID }) {
			seen.Events = append(seen.Events, e)
		}
	}
	return seen
}

// INP returns the time of the slowest interaction in milliseconds. One of each fifty does not count, as browsers
// define it.
func (s interactions) INP() float64 {
	if skip := s.Count / 50; skip < len(s.Events) {
		return s.Events[skip].Took
	}
	return 0 // all took less than 16 ms
}

// String describes the ten slowest interactions, each with the long frames that it waited for.
func (s interactions) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "    the main thread worked %s in %.1f s\n", s.Work, s.Over.Seconds())
	for _, e := range s.Events[:min(len(s.Events), 10)] {
		fmt.Fprintf(&b, "    %s\n", e)
		for _, f := range s.Frames {
			if f.Start < e.Start+e.Took && e.Start < f.Start+f.Took {
				fmt.Fprintf(&b, "        %s\n", f)
			}
		}
	}
	return b.String()
}
