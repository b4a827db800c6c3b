package containers

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// orphan is an engine with one container of an earlier process, whose runner does not answer before gone is closed.
type orphan struct {
	Engine
	made  Container
	gone  chan struct{}
	dials atomic.Int32
}

func (e *orphan) List(context.Context, string) ([]Container, error) { return []Container{e.made}, nil }
func (e *orphan) Name() string                                      { return "orphan" }
func (e *orphan) Remove(context.Context, string) error              { return nil }
func (e *orphan) Dial(context.Context, string) (net.Conn, error) {
	e.dials.Add(1)
	<-e.gone
	return nil, ErrGone
}

func (e *orphan) Process(context.Context, string) (int, uint64, error) { return 0, 0, ErrGone }

// However many want to ask a container that nobody is connected to, one at a time does, and nobody after
// the container was found to be gone.
func TestFleetAsksOnce(t *testing.T) {
	dir := t.TempDir()
	name := newFolderName()
	if err := os.MkdirAll(filepath.Join(dir, "hosts", name), 0o700); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		e := &orphan{made: Container{ID: "c1", Key: "run:a", Running: true,
			Labels: map[string]string{labelFolder: name}}, gone: make(chan struct{})}
		var late atomic.Bool
		var lost atomic.Int32
		f := &Fleet{Engine: e, Dir: dir, Now: func() time.Time {
			if late.Load() {
				return time.Now().Add(time.Hour)
			}
			return time.Now()
		}, Event: func(e FleetEvent) {
			if e.What == "lost" {
				lost.Add(1)
			}
		}}
		if err := f.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer f.Close(context.WithoutCancel(t.Context()), false)
		synctest.Wait()

		late.Store(true)
		f.mu.Lock()
		b := f.slots["run:a"]
		f.mu.Unlock()
		var group sync.WaitGroup
		for range 3 {
			group.Go(f.sweepOnce)
			group.Go(func() { f.killFull(b, nil, "full") })
		}
		synctest.Wait()
		if n := e.dials.Load(); n != 1 {
			t.Errorf("%d connect to the runner at once, want 1", n)
		}
		close(e.gone)
		group.Wait()
		synctest.Wait()

		// A look at the disk may have come first, then a sweep found the container gone.
		if n := e.dials.Load(); n > 4 {
			t.Errorf("the runner was connected to %d times", n)
		}
		if n := lost.Load(); n != 1 {
			t.Errorf("the container was lost %d times", n)
		}
		if left, err := os.ReadDir(filepath.Join(dir, "hosts")); err != nil || len(left) > 0 {
			t.Errorf("folders left: %v, %v", left, err)
		}
	})
}

// A runner's key is kept in the folder of its container, and in none that was removed.
func TestPinMakesNoFolder(t *testing.T) {
	key, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "gone")
	if err := filePin(filepath.Join(dir, "host_key")).Store(key); err == nil {
		t.Error("a key was stored where no folder is")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is there: %v", err)
	}
}
