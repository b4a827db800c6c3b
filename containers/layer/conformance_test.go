package layer_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/docker"
	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/containers/layer/layertest"
	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/internal/programs"
)

// built is the ramus of these tests, made when first asked for.
var built struct {
	dir   string
	ramus func() (string, error)
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "layer-test")
	if err == nil {
		err = os.Chmod(dir, 0o755) // others must be able to start programs in it
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	built.ramus = sync.OnceValues(func() (string, error) {
		return filepath.Join(dir, "ramus"), programs.Into(dir, "containers/layer/testdata/ramus")
	})
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// Every Keeper, with containers of every engine.
func TestKeepers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("cannot run here: not root")
	}
	program, err := built.ramus()
	if err != nil {
		t.Fatal(err)
	}
	moby := &docker.Engine{Runner: program}
	t.Cleanup(func() { moby.Close() })
	for _, keeper := range []string{"root", "helper"} {
		t.Run(keeper, func(t *testing.T) {
			root := t.TempDir()
			var k layer.Keeper = layer.NewLocal(root)
			if keeper == "helper" {
				needEngine(t, moby)
				k = layer.NewHelper(root, docker.Lift{Engine: moby, Owner: rand.Text()})
			}
			t.Cleanup(func() {
				if err := k.Close(); err != nil {
					t.Error(err)
				}
			})
			for _, engine := range []containers.Engine{moby, &sandbox.Engine{Dir: filepath.Join(root, "sandbox"), Runner: program}} {
				t.Run(engine.Name(), func(t *testing.T) {
					if keeper == "helper" && engine != moby && os.Getenv("RAMUS_TEST") != "full" {
						return // nobody works so unless told to
					}
					needEngine(t, engine)
					f := &containers.Fleet{Engine: engine, Dir: filepath.Join(root, engine.Name()+"-hosts"), Keeper: k,
						Capacity: 20}
					if err := f.Open(t.Context()); err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() {
						ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
						defer cancel()
						if err := f.Close(ctx, false); err != nil {
							t.Error(err)
						}
					})
					layertest.Run(t, k, root, func(t *testing.T) layertest.Box { return startBox(t, f) })
				})
			}
		})
	}
}

func needEngine(t *testing.T, e containers.Engine) {
	t.Helper()
	if err := e.Check(t.Context()); err != nil {
		t.Skipf("cannot run here: engine %s: %v", e.Name(), err)
	}
}

// startBox starts a container, which ends with the test.
func startBox(t *testing.T, f *containers.Fleet) layertest.Box {
	t.Helper()
	key := "run:" + rand.Text()
	lease, err := f.Acquire(t.Context(), containers.Request{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	remove := sync.OnceFunc(func() {
		lease.Release()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := f.Remove(ctx, key); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(remove)
	if lease.Place == nil {
		t.Fatal("the fleet names no place")
	}
	return layertest.Box{
		PID: lease.Place.PID, Start: lease.Place.Start, Dir: lease.Place.Dir, UID: lease.Place.UID,
		Target: containers.WorkDir, Kill: remove,
		Sh: func(ctx context.Context, script string) (string, error) {
			p, err := lease.Host.Start(ctx, containers.Command{ID: rand.Text(), Shell: script})
			if err != nil {
				return "", err
			}
			var out bytes.Buffer
			var mu sync.Mutex
			w := writer(func(b []byte) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				return out.Write(b)
			})
			exit, err := p.Output(w, w)
			if err == nil && exit.Code != 0 {
				err = fmt.Errorf("exit status %d", exit.Code)
			}
			return out.String(), err
		},
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
