// Package goroutines finds the goroutines that a test left. Tests that start servers call it at their start.
//
// A test labels its goroutine, and the runtime copies the labels of a goroutine to each one that it starts. So the tests
// of a package can run in parallel, and each sees only its own goroutines. The goroutine of a [time.AfterFunc] has no
// label and is not found.
package goroutines

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// label is the key of the label. Its value is different for each test.
	label = "ramus-test"
	again = 10 * time.Millisecond
)

// grace bounds the wait for goroutines that end by themselves.
var grace = 30 * time.Second

var tests atomic.Uint64

// watched has the tests that have a label.
var watched sync.Map

// Watch labels the calling goroutine and all that it starts from now on. At the end of the test Watch fails the test if a
// labelled goroutine is left. Cleanup functions that t has got later run before, and those that t has got earlier run
// after. A second call for the same test has no effect.
func Watch(t testing.TB) {
	t.Helper()
	if _, again := watched.LoadOrStore(t, true); again {
		return
	}
	value := strconv.FormatUint(tests.Add(1), 10)
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(label, value)))

	t.Cleanup(func() {
		watched.Delete(t)
		// The test's own goroutine is not one that it left.
		pprof.SetGoroutineLabels(context.Background())
		var left int
		var stacks string
		for until := time.Now().Add(grace); ; time.Sleep(again) {
			var err error
			if left, stacks, err = labelled(value); err != nil {
				t.Errorf("cannot list the goroutines: %v", err)
				return
			}
			if left == 0 {
				return
			}
			if time.Now().After(until) {
				break
			}
		}
		t.Errorf("%d goroutines are left:\n%s", left, stacks)
	})
}

// labelled returns the number and the stacks of the goroutines with a value of the label.
func labelled(value string) (n int, stacks string, err error) {
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		return 0, "", err
	}
	// A group of equal goroutines begins with their number, and its second line has their labels.
	mark := fmt.Sprintf("%q:%q", label, value)
	var found []string
	for group := range strings.SplitSeq(all.String(), "\n\n") {
		head, _, _ := strings.Cut(group, " @ ")
		_, labels, _ := strings.Cut(group, "\n# labels: ")
		labels, _, _ = strings.Cut(labels, "\n")
		if !strings.Contains(labels, mark) {
			continue
		}
		// The first group follows a line with the total.
		_, count, ok := strings.Cut(head, "\n")
		if !ok {
			count = head
		}
		number, err := strconv.Atoi(count)
		if err != nil {
			return 0, "", fmt.Errorf("a group of goroutines begins with %.100q", head)
		}
		n += number
		found = append(found, group)
	}
	return n, strings.Join(found, "\n\n"), nil
}
