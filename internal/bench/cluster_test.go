package main

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestClusterSizes(t *testing.T) {
	for most, want := range map[int][]int{1: {1}, 10: {1, 10}, 64: {1, 10, 64}, 1000: {1, 10, 100, 500, 1000}, 2000: {1, 10, 100, 500, 1000, 2000}} {
		if got := clusterSizes(most); !slices.Equal(got, want) {
			t.Errorf("up to %d: %v, want %v", most, got, want)
		}
	}
}

// TestAtOnceUpTo: no more than allowed are at work, all are called once, and one that fails ends none of the others.
func TestAtOnceUpTo(t *testing.T) {
	var mu sync.Mutex
	now, most, called := 0, 0, map[int]int{}
	err := atOnceUpTo(3, 20, func(i int) error {
		mu.Lock()
		now++
		most = max(most, now)
		called[i]++
		mu.Unlock()
		time.Sleep(time.Millisecond) // more would come in meanwhile
		mu.Lock()
		defer mu.Unlock()
		now--
		if i%10 == 0 {
			return errors.New("no")
		}
		return nil
	})
	if err == nil || !strings.HasPrefix(err.Error(), "2 of 20 failed") || most > 3 || len(called) != 20 {
		t.Errorf("%v; %d at once, %d called", err, most, len(called))
	}
	if err := atOnceUpTo(1, 0, nil); err != nil {
		t.Error(err)
	}
}

// TestClusterCharts: a size adds a point to each curve, and a run without a size has no chart.
func TestClusterCharts(t *testing.T) {
	c := newClusterCharts("cluster")
	if got := c.all(); len(got) != 0 {
		t.Errorf("without a size: %v", got)
	}
	c.add(10, crowdMeasured{start: time.Second, commands: []time.Duration{1, 2, 3e6}, alone: []time.Duration{1e6}, memory: 1e6, goroutines: 100,
		perCommand: 0.01, perCaller: 5})
	b := &bench{scenario: "cluster"}
	crowdMeasured{start: time.Second, commands: []time.Duration{1e6, 2e6, 3e6}, alone: []time.Duration{1e6}, perCommand: 0.2}.tell(b, 100)
	for _, chart := range c.all() {
		if s := chart.svg(); !strings.Contains(s, "callers, each in a pod") || strings.Contains(s, "NaN") {
			t.Errorf("%s:\n%s", chart.Name, s)
		}
	}
	if len(c.all()) != 3 || b.report.Rows[1].Ramus.Median != 2 || b.report.Rows[8].State != stateMissed {
		t.Errorf("%d charts; %+v", len(c.all()), b.report.Rows)
	}
}
