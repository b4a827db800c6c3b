package containers_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ramus-dev/ramus/containers"
)

// stage is an engine without containers, whose sidecars end when they are told to.
type stage struct {
	containers.Engine
	fails error         // of List, until it is nil
	end   chan struct{} // ends one sidecar a value

	mu    sync.Mutex // guards the below
	on    []string   // keys of those that run
	most  int
	swept []string // owners
}

func (e *stage) List(context.Context, string) ([]containers.Container, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return nil, e.fails
}

func (e *stage) SweepSidecars(_ context.Context, owner string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.swept = append(e.swept, owner)
	return nil
}

func (e *stage) Beside(ctx context.Context, id string, s containers.Sidecar) (containers.SidecarExit, error) {
	name := s.Key + " of " + s.Owner
	e.mu.Lock()
	e.on = append(e.on, name)
	e.most = max(e.most, len(e.on))
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		e.on = slices.DeleteFunc(e.on, func(s string) bool { return s == name })
		e.mu.Unlock()
	}()
	select {
	case <-e.end:
		return containers.SidecarExit{Image: id}, nil
	case <-ctx.Done():
		return containers.SidecarExit{}, context.Cause(ctx)
	}
}

func (e *stage) running() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.on, ", ")
}

func stageFleet(t *testing.T, e *stage) (f *containers.Fleet, running func(keys ...string)) {
	t.Helper()
	e.end = make(chan struct{})
	f = &containers.Fleet{Engine: e, Dir: t.TempDir(), Sidecars: 1}
	if err := f.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f, func(keys ...string) {
		t.Helper()
		synctest.Wait()
		for i := range keys {
			keys[i] += " of " + containers.Owner(f)
		}
		if got, want := e.running(), strings.Join(keys, ", "); got != want {
			t.Errorf("%q runs, not %q", got, want)
		}
	}
}

func TestFleetSidecarsInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &stage{}
		f, running := stageFleet(t, e)
		var all sync.WaitGroup
		start := func(ctx context.Context, s containers.Sidecar, want error) {
			all.Go(func() {
				exit, err := f.Beside(ctx, "id", s)
				if !errors.Is(err, want) || err == nil && exit.Image != "id" {
					t.Errorf("%s: %+v, %v", s.Key, exit, err)
				}
			})
			synctest.Wait()
		}
		left := errors.New("left")
		leaving, leave := context.WithCancelCause(t.Context())
		start(t.Context(), containers.Sidecar{Key: "first", Owner: "pretended"}, nil)
		start(leaving, containers.Sidecar{Key: "leaves"}, left)
		start(t.Context(), containers.Sidecar{Key: "second"}, nil)
		start(t.Context(), containers.Sidecar{Key: "third"}, nil)
		running("first")
		leave(left)
		e.end <- struct{}{}
		running("second")
		e.end <- struct{}{}
		running("third")
		start(t.Context(), containers.Sidecar{Key: "at once", Unqueued: true}, nil)
		running("third", "at once")
		e.end <- struct{}{}
		e.end <- struct{}{}
		all.Wait()
		if e.most != 2 {
			t.Errorf("%d ran at once", e.most)
		}
		if len(e.swept) != 1 || e.swept[0] != containers.Owner(f) {
			t.Errorf("swept were those of %q", e.swept)
		}
		if err := f.Close(t.Context(), false); err != nil {
			t.Error(err)
		}
	})
}

func TestFleetCloseEndsSidecars(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &stage{}
		f, running := stageFleet(t, e)
		var all sync.WaitGroup
		for _, key := range []string{"runs", "waits"} {
			all.Go(func() {
				if exit, err := f.Beside(t.Context(), "id", containers.Sidecar{Key: key}); err == nil {
					t.Errorf("%s: %+v", key, exit)
				}
			})
			synctest.Wait()
		}
		running("runs")
		if err := f.Close(t.Context(), true); err != nil {
			t.Error(err)
		}
		if got := e.running(); got != "" {
			t.Errorf("Close returned, and %s runs", got)
		}
		all.Wait()
		if _, err := f.Beside(t.Context(), "id", containers.Sidecar{Key: "late"}); err == nil {
			t.Error("a closed fleet runs one")
		}
	})
}

// An engine that answers late is swept when it does, and sidecars wait for that.
func TestFleetSidecarsAwaitEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &stage{fails: containers.ErrUnavailable}
		f, running := stageFleet(t, e)
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := f.Beside(t.Context(), "id", containers.Sidecar{Key: "early"}); err != nil {
				t.Error(err)
			}
		})
		running()
		e.mu.Lock()
		e.fails = nil
		e.mu.Unlock()
		time.Sleep(5 * time.Second) // the fleet looks again meanwhile
		running("early")
		e.end <- struct{}{}
		all.Wait()
		if len(e.swept) != 1 {
			t.Errorf("swept %d times", len(e.swept))
		}
		if err := f.Close(t.Context(), false); err != nil {
			t.Error(err)
		}
	})
}

func TestSidecarBounds(t *testing.T) {
	l := containers.Sidecar{}.Bounds()
	if l.Memory != 1<<30 || l.CPUs != 2 || l.PIDs != 256 || l.Tmp != 512<<20 {
		t.Errorf("%+v", l)
	}
	l = containers.Sidecar{Limits: containers.Limits{Memory: 100, CPUs: 1, PIDs: 3, Tmp: 99}}.Bounds()
	if l.Memory != 100 || l.CPUs != 1 || l.PIDs != 3 || l.Tmp != 50 {
		t.Errorf("%+v", l)
	}
}

// besideMain is a ramus that runs a sidecar until it is killed.
func besideMain(dir, id string) int {
	_, err := (&containers.Sandbox{Dir: dir}).Beside(context.Background(), id, containers.Sidecar{
		Owner: "owner", Key: "browser:x", Stdout: os.Stdout,
		Args: []string{"/bin/sh", "-c", "setsid sleep 600 & echo $RAMUS_SIDECAR; exec sleep 600"},
	})
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// A ramus that is killed takes its sidecars along; what they lay in is swept.
func TestSandboxSidecarOutlivedByNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "engine")
	s := &containers.Sandbox{Dir: dir}
	if err := s.Check(t.Context()); err != nil {
		t.Skipf("cannot run here: engine sandbox: %v", err)
	}
	c, err := s.Start(t.Context(), containers.Spec{
		Key: "run:x", Owner: "owner", Dir: filepath.Join(t.TempDir(), "box"),
		ClientKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Remove(context.Background(), c.ID); err != nil {
			t.Error(err)
		}
	}()
	cmd := exec.Command(os.Args[0], "beside", dir, c.ID)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	id := strings.TrimSpace(line)
	if err != nil || id == "" {
		t.Fatalf("it says %q, %v", line, err)
	}
	cmd.Process.Kill()
	cmd.Wait()

	left := func() (n int) {
		environs, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, p := range environs {
			if b, err := os.ReadFile(p); err == nil && strings.Contains(string(b), id) {
				n++
			}
		}
		return n
	}
	for deadline := time.Now().Add(time.Minute); left() > 0; {
		if time.Now().After(deadline) {
			t.Fatalf("%d processes of a sidecar outlive ramus", left())
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := s.SweepSidecars(t.Context(), "owner"); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != c.ID {
		t.Errorf("left are %v, %v", entries, err)
	}
	if list, err := s.List(t.Context(), "owner"); err != nil || len(list) != 1 || !list[0].Running {
		t.Errorf("listed are %+v, %v", list, err)
	}
}
