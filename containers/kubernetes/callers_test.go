package kubernetes_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
)

// BenchmarkCallers has 1 to 50 callers at once, each in a pod of its own. A round is a command of each caller. It reports
// the time from the first request to the last caller's first answer, the median and the slowest command of a hundred, and
// the requests to the API server for each command, and for each caller from its start to its end.
func BenchmarkCallers(b *testing.B) {
	config, namespace := cluster(b)
	for _, n := range []int{1, 5, 10, 25, 50} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			engine := newEngine(b, config, namespace)
			f := &containers.Fleet{Engine: engine, Dir: b.TempDir(), Capacity: n}
			fleet(b, f)
			before, began := engine.Asked(), time.Now()
			leases := make([]*containers.Lease, n)
			together(n, func(i int) {
				l, err := f.Acquire(b.Context(), containers.Request{Key: fmt.Sprint("run:caller-", i)})
				if err != nil {
					b.Error(err)
					return
				}
				perform(b, l.Host, "true")
				leases[i] = l
			})
			started := time.Since(began)
			if b.Failed() {
				return
			}

			atWork := engine.Asked()
			took := make([][]time.Duration, n)
			for b.Loop() {
				together(n, func(i int) {
					began := time.Now()
					perform(b, leases[i].Host, "true")
					took[i] = append(took[i], time.Since(began))
				})
			}
			all := slices.Concat(took...)
			slices.Sort(all)
			ended := engine.Asked()
			together(n, func(i int) {
				leases[i].Release()
				if err := f.Remove(b.Context(), fmt.Sprint("run:caller-", i)); err != nil {
					b.Error(err)
				}
			})
			b.ReportMetric(started.Seconds(), "s/start")
			b.ReportMetric(all[len(all)/2].Seconds()*1000, "ms/p50")
			b.ReportMetric(all[len(all)*99/100].Seconds()*1000, "ms/p99")
			b.ReportMetric(float64(ended-atWork)/float64(len(all)), "requests/command")
			b.ReportMetric(float64(engine.Asked()-before)/float64(n), "requests/caller")
		})
	}
}

// together runs a function n times at once.
func together(n int, do func(i int)) {
	var work sync.WaitGroup
	for i := range n {
		work.Go(func() { do(i) })
	}
	work.Wait()
}
