package goroutines

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// recorder is a test that fails without failing this one.
type recorder struct {
	testing.TB
	cleanup []func()
	failed  string
}

func (r *recorder) Helper()                      {}
func (r *recorder) Cleanup(f func())             { r.cleanup = append(r.cleanup, f) }
func (r *recorder) Errorf(f string, args ...any) { r.failed += fmt.Sprintf(f, args...) }
func (r *recorder) end() {
	for _, f := range r.cleanup {
		f()
	}
}

// TestWatch finds the goroutines of one test only, also those that its goroutines started.
func TestWatch(t *testing.T) {
	release := make(chan struct{})
	other := make(chan struct{})
	go func() { <-other }()
	defer close(other)

	r := &recorder{TB: t}
	Watch(r)
	Watch(r)
	value := strconv.FormatUint(tests.Load(), 10)
	started := make(chan struct{}, 2)
	for range 2 {
		go func() {
			go func() {
				started <- struct{}{}
				<-release
			}()
		}()
	}
	<-started
	<-started
	n, stacks, err := labelled(value)
	if err != nil || n != 3 || !strings.Contains(stacks, ".TestWatch.") {
		t.Errorf("%d goroutines with this one, %v:\n%s", n, err, stacks)
	}

	time.AfterFunc(50*time.Millisecond, func() { close(release) })
	r.end()
	if r.failed != "" || len(r.cleanup) != 1 {
		t.Error(r.failed, len(r.cleanup))
	}
	if n, stacks, err := labelled(value); n != 0 || err != nil {
		t.Errorf("%d goroutines at the end, %v:\n%s", n, err, stacks)
	}
}

// TestLeft has a test that ends before its goroutine does.
func TestLeft(t *testing.T) {
	grace = time.Millisecond
	t.Cleanup(func() { grace = 30 * time.Second })
	release := make(chan struct{})
	defer close(release)
	r := &recorder{TB: t}
	Watch(r)
	go func() { <-release }()
	r.end()
	if !strings.Contains(r.failed, "1 goroutines are left") || !strings.Contains(r.failed, "TestLeft.func") {
		t.Error(r.failed)
	}
}
