package webtest

import (
	"encoding/json"
	"time"
)

// maxTraceParts bounds the messages of a trace, which have thousands of events each.
const maxTraceParts = 1000

// LongestTask calls do, and returns the longest task of the main threads of pages meanwhile, in time of the processor. As in [Work], it includes
// the time by which Throttle slows the thread down, and no time in which the thread waits for a processor.
func (p *Page) LongestTask(do func()) time.Duration {
	p.b.t.Helper()
	parts, over := make(chan json.RawMessage, maxTraceParts), make(chan json.RawMessage, 1)
	p.b.mu.Lock()
	p.b.events[p.session+" Tracing.dataCollected"] = []chan json.RawMessage{parts}
	p.b.events[p.session+" Tracing.tracingComplete"] = []chan json.RawMessage{over}
	p.b.mu.Unlock()
	p.do("Tracing.start", object{"transferMode": "ReportEvents",
		"traceConfig": object{"includedCategories": []string{"toplevel", "__metadata"}, "excludedCategories": []string{"*"}}})
	do()
	p.do("Tracing.end", object{})
	select {
	case <-over:
	case <-time.After(30 * time.Second):
		p.b.t.Fatal("the trace does not end")
	}
	type thread struct{ PID, TID int }
	main, longest := map[thread]bool{}, map[thread]int64{}
	for len(parts) > 0 {
		var part struct {
			Value []struct {
				PID, TID int
				Name, Ph string
				TDur     int64 // microseconds
				Args     struct{ Name any }
			}
		}
		if err := json.Unmarshal(<-parts, &part); err != nil {
			p.b.t.Fatal(err)
		}
		for _, e := range part.Value {
			at := thread{e.PID, e.TID}
			if e.Name == "thread_name" && e.Args.Name == "CrRendererMain" {
				main[at] = true
			}
			longest[at] = max(longest[at], e.TDur)
		}
	}
	if len(main) == 0 {
		p.b.t.Fatal("the trace has no main thread of a page")
	}
	var most int64
	for at := range main {
		most = max(most, longest[at])
	}
	return time.Duration(most) * time.Microsecond
}
