package containers

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// starts counts the containers that an engine was asked for, and makes none.
type starts struct {
	Engine
	n atomic.Int32
}

func (e *starts) List(context.Context, string) ([]Container, error) { return nil, nil }
func (e *starts) Name() string                                      { return "starts" }
func (e *starts) Start(context.Context, Spec) (Container, error) {
	e.n.Add(1)
	return Container{}, errors.New("none today")
}

// Containers for the pool are made when those who came at once have theirs; when
// they never cease to come, all the same.
func TestPoolRests(t *testing.T) {
	for name, test := range map[string]struct {
		every time.Duration // between two takers
		lasts time.Duration // how long they come
		at    time.Duration // when the first is made, from the first taker on
	}{
		"one":         {every: time.Hour, lasts: time.Second, at: poolRest},
		"burst":       {every: poolRest / 2, lasts: poolRest, at: poolRest/2 + poolRest},
		"without end": {every: poolRest / 2, lasts: 10 * poolRestMax, at: poolRestMax},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				e := new(starts)
				f := &Fleet{Engine: e, Dir: dir, Pool: 2}
				if err := f.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
				defer f.Close(context.WithoutCancel(t.Context()), false)
				began := time.Now()
				for e.n.Load() == 0 && time.Since(began) < 20*poolRestMax {
					if gone := time.Since(began); gone%test.every == 0 && gone < test.lasts {
						f.mu.Lock()
						f.takePooledLocked(Request{})
						f.mu.Unlock()
					}
					time.Sleep(time.Millisecond)
					synctest.Wait()
				}
				if at := time.Since(began); at != test.at {
					t.Errorf("the first was made after %v, not %v", at, test.at)
				}
			})
		})
	}
}
