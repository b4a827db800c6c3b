package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/internal/standin/slacktest"
)

// BenchmarkChat sends 50 mentions a second for ten seconds, in threads of
// their own. Half of them are commands that need a container, and half are
// questions that need none, mixed. The questions are the baseline. It reports
// the time to the acknowledgement, to the first message of ramus and to the
// result, in milliseconds, as median and as 99th percentile.
func BenchmarkChat(b *testing.B) {
	const rate, seconds = 50, 10
	for b.Loop() {
		var mu sync.Mutex
		firsts, results := map[string]time.Time{}, map[string]time.Time{}
		s := newChatServer(b, "")
		s.slack.On = func(c slacktest.Change) {
			var mark slack.Mark
			if c.Kind != "post" || c.Message.Metadata == nil || json.Unmarshal(c.Message.Metadata.Payload, &mark) != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if firsts[c.Message.ThreadTS].IsZero() {
				firsts[c.Message.ThreadTS] = time.Now()
			}
			if mark.Part == "result" {
				results[c.Message.ThreadTS] = time.Now()
			}
		}
		s.start()
		type sent struct {
			ts   string
			at   time.Time
			took time.Duration
		}
		kinds := map[string][]*sent{}
		var wg sync.WaitGroup
		tick := time.NewTicker(time.Second / rate)
		for i := range rate * seconds {
			<-tick.C
			kind, text := "command", "exec true"
			if i%2 == 0 {
				kind, text = "question", "help"
			}
			m := &sent{at: time.Now()}
			m.ts = s.slack.Write(chatOwner, "C01", "", fmt.Sprintf("<@%s> %s", s.slack.BotUser, text))
			kinds[kind] = append(kinds[kind], m)
			bodies := s.slack.Envelopes("C01", m.ts)
			wg.Go(func() {
				for i, body := range bodies { // the duplicate follows at once
					for _, a := range s.slack.Deliver(b.Context(), body) {
						if a.Status != 200 {
							b.Errorf("status %d %v", a.Status, a.Err)
						}
						if i == 0 {
							m.took = a.Took
						}
					}
				}
			})
		}
		tick.Stop()
		wg.Wait()
		s.until("all results", 10*time.Minute, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(results) == rate*seconds
		})
		s.kill(syscall.SIGTERM)
		for kind, all := range kinds {
			report := func(what string, of func(*sent) time.Duration) {
				var d []time.Duration
				for _, m := range all {
					d = append(d, of(m))
				}
				slices.Sort(d)
				b.ReportMetric(float64(d[len(d)/2])/1e6, kind+"-"+what+"-p50-ms")
				b.ReportMetric(float64(d[len(d)*99/100])/1e6, kind+"-"+what+"-p99-ms")
			}
			report("ack", func(m *sent) time.Duration { return m.took })
			report("first", func(m *sent) time.Duration { return firsts[m.ts].Sub(m.at) })
			report("result", func(m *sent) time.Duration { return results[m.ts].Sub(m.at) })
		}
	}
}
