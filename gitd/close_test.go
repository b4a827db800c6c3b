package gitd

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
)

// TestNothingStays checks that Close leaves no goroutine, no process and no
// open file.
func TestNothingStays(t *testing.T) {
	files := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("cannot run here: no /proc:", err)
		}
		return len(list)
	}
	// The first round creates the resources that Go itself keeps.
	use := func() {
		s := &Server{Root: t.TempDir()}
		if err := s.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		r, err := s.Create(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			commit(t, r, "main", "One", "a", "1")
			commit(t, r, "work", "One", "b", "1")
			if err := r.Maintain(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := r.ReadFile(t.Context(), "main", "a", 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Log(t.Context(), "main", LogOptions{}); !errors.Is(err, gitcmd.ErrClosed) {
			t.Error("used after Close:", err)
		}
	}
	use()
	goroutines, open := runtime.NumGoroutine(), files()
	for range 3 {
		use()
	}
	within(time.Minute, func() bool { return runtime.NumGoroutine() <= goroutines && files() <= open })
	if n := runtime.NumGoroutine(); n > goroutines {
		var b bytes.Buffer
		buf := make([]byte, 1<<20)
		b.Write(buf[:runtime.Stack(buf, true)])
		t.Errorf("%d goroutines became %d\n%s", goroutines, n, b.String())
	}
	if n := files(); n > open {
		t.Errorf("%d open files became %d", open, n)
	}
	if left := children(t, "update-ref"); len(left) > 0 {
		t.Error("processes stay:", left)
	}
}
