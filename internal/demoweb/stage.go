package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// stage takes the place of a test for package webtest. Fatal ends the demo.
type stage struct {
	began    time.Time
	cleanups []func()
}

// miss is the value of the panic by which Fatal ends the demo.
type miss struct{ text string }

// Helper does nothing.
func (s *stage) Helper() {}

// Fatal ends the demo.
func (s *stage) Fatal(args ...any) { panic(miss{fmt.Sprint(args...)}) }

// Fatalf ends the demo.
func (s *stage) Fatalf(format string, args ...any) { panic(miss{fmt.Sprintf(format, args...)}) }

// Skip ends the demo, because it cannot run here.
func (s *stage) Skip(args ...any) { s.Fatal(args...) }

// Logf prints a line.
func (s *stage) Logf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// TempDir returns a new folder, which is removed at the end.
func (s *stage) TempDir() string {
	dir, err := os.MkdirTemp("", "demoweb")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Cleanup calls f at the end. The last function is called first.
func (s *stage) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

// strike calls the functions of Cleanup.
func (s *stage) strike() (err error) {
	for _, f := range slices.Backward(s.cleanups) {
		func() {
			var missed error
			defer func() { err = errors.Join(err, missed) }()
			defer s.missed(&missed)
			f()
		}()
	}
	return err
}

// missed sets err if Fatal was called. It is deferred.
func (s *stage) missed(err *error) {
	switch m := recover().(type) {
	case nil:
	case miss:
		*err = errors.Join(*err, errors.New("missed: "+m.text))
	default:
		panic(m)
	}
}

// note prints a step with its evidence, and when it had happened.
func (s *stage) note(step, evidence string) {
	fmt.Printf("\n== %5.1f s  %s\n           %s\n", time.Since(s.began).Seconds(), step, evidence)
}
