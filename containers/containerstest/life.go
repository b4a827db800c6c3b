package containerstest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/layer"
)

func testList(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{})
	list, err := s.engine.List(t.Context(), s.owner)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 {
		t.Fatalf("%d containers are listed, not 1: %+v", len(list), list)
	}
	c := list[0]
	if c.ID != b.c.ID || c.Key != b.spec.Key || !c.Running || c.Labels["ramus.test"] != b.spec.Labels["ramus.test"] {
		t.Errorf("it is listed as %+v", c)
	}
	if d := time.Since(c.Created); d < -time.Minute || d > 10*time.Minute {
		t.Errorf("it was made at %v", c.Created)
	}
	if others, err := s.engine.List(t.Context(), "someone else"); err != nil || len(others) != 0 {
		t.Errorf("another owner sees %+v, %v", others, err)
	}
	if conn, err := s.engine.Dial(t.Context(), "no-such-container"); err == nil {
		conn.Close()
		t.Error("a container that is none can be dialled")
	} else if !isGone(err) {
		t.Errorf("dialling no container: %v", err)
	}
	if err := s.engine.Remove(t.Context(), "no-such-container"); err != nil {
		t.Errorf("removing no container: %v", err)
	}
}

// counting prints numbers for a while, and the last of them when it may, so that a
// connection breaks in the middle however late that is.
const (
	counting = "i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo out $i; echo err $i >&2; sleep 0.02; while [ $i = 50 -a ! -e go-on ]; do sleep 0.02; done; done; exit 9"
	goOn     = "touch go-on"
)

func counted(word string) string {
	var b strings.Builder
	for i := 1; i <= 60; i++ {
		fmt.Fprintf(&b, "%s %d\n", word, i)
	}
	return b.String()
}

// stopAfter makes its reader see an error after some bytes.
type stopAfter struct {
	bytes.Buffer
	n    int
	stop func()
}

func (w *stopAfter) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if w.Len() >= w.n && w.stop != nil {
		w.stop()
		w.stop = nil
	}
	return n, err
}

func testAttachAgain(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{})
	id := rand.Text()
	p, err := b.host.Start(t.Context(), containers.Command{ID: id, Shell: counting})
	if err != nil {
		t.Fatal(err)
	}
	out := &stopAfter{n: 40, stop: func() { go b.host.Close() }}
	var errOut bytes.Buffer
	if _, err := p.Output(out, &errOut); !isGone(err) {
		t.Errorf("a broken connection says %v", err)
	}
	b.dial(t, s.engine, nil)
	b.ok(t, goOn)
	p, err = b.host.Attach(t.Context(), id, int64(out.Len()), int64(errOut.Len()))
	if err != nil {
		t.Fatal(err)
	}
	out.stop = nil
	exit, err := p.Output(out, &errOut)
	if err != nil || exit.Code != 9 {
		t.Errorf("%+v, %v", exit, err)
	}
	if out.String() != counted("out") || errOut.String() != counted("err") {
		t.Errorf("something is lost:\n%s%s", out.String(), errOut.String())
	}
	// And from the start, after its end, until it is forgotten.
	p, err = b.host.Attach(t.Context(), id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if exit, err := p.Output(&again, io.Discard); err != nil || exit.Code != 9 || again.String() != counted("out") {
		t.Errorf("the second time: %+v, %v, %q", exit, err, again.String())
	}
	if err := b.host.Forget(t.Context(), id); err != nil {
		t.Error(err)
	}
	if _, err := b.host.Attach(t.Context(), id, 0, 0); !errors.Is(err, containers.ErrUnknownCommand) {
		t.Errorf("a forgotten command: %v", err)
	}
}

// testInputCut tests a connection that ends in the middle of a command's input. The command then waits for the rest,
// and the next connection learns of it. Input that has ended is not reported.
func testInputCut(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{})
	for _, id := range []string{"half", "unread", "over", "whole", "none"} {
		c := containers.Command{ID: id, Shell: "cat > " + id + "; touch " + id + ".all; sleep 600", Background: true}
		if id != "none" {
			r, w := io.Pipe()
			defer w.Close() // after the connection, because it is not the end of the input
			c.Stdin = r
			size := 4
			switch id {
			case "unread":
				size = 200 << 10 // more than a pipe holds
				c.Shell = "sleep 600"
			case "over":
				c.Shell = "read -r line"
			}
			go func() {
				_, _ = w.Write(append(bytes.Repeat([]byte("x"), size-1), '\n'))
				if id == "whole" {
					w.Close()
				}
			}()
		}
		p, err := b.host.Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if id == "over" {
			if exit, err := p.Output(nil, nil); err != nil || exit.Code != 0 {
				t.Errorf("%+v, %v", exit, err)
			}
		}
	}
	states := func() map[string]containers.CommandState {
		t.Helper()
		list, err := b.host.Commands(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]containers.CommandState{}
		for _, c := range list {
			all[c.ID] = c
		}
		return all
	}
	eventually(t, "input that does not arrive", func() (left []string) {
		if _, _, exit := b.run(t, "test -s half -a -e whole.all -a -e none.all"); exit.Code != 0 {
			left = append(left, b.ok(t, "ls"))
		}
		return left
	})
	for id, c := range states() {
		if c.Cut {
			t.Errorf("%s: its input is said to be cut while it is being sent", id)
		}
	}
	b.host.Close()
	b.dial(t, s.engine, nil)
	eventually(t, "nobody noted that input was cut", func() (left []string) {
		for _, id := range []string{"half", "unread"} {
			if !states()[id].Cut {
				left = append(left, id)
			}
		}
		return left
	})
	for id, c := range states() {
		if c.Cut != (id == "half" || id == "unread") {
			t.Errorf("%s: %+v", id, c)
		}
	}
	if _, _, exit := b.run(t, "test -e half.all"); exit.Code == 0 {
		t.Error("half an input was taken for the whole")
	}
}

func testAdopt(s *suite, t *testing.T) {
	first := s.open(t)
	b := s.startSpec(t, s.spec(containers.Limits{}))
	b.dial(t, first, nil)
	id := rand.Text()
	if _, err := b.host.Start(t.Context(), containers.Command{ID: id, Shell: counting}); err != nil {
		t.Fatal(err)
	}
	b.ok(t, "echo kept > "+containers.WorkDir+"/file")
	b.host.Close()
	if err := first.Close(); err != nil {
		t.Error(err)
	}

	second := s.open(t)
	defer second.Close()
	list, err := second.List(t.Context(), s.owner)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, c := range list {
		found = found || c.ID == b.c.ID && c.Running && c.Key == b.spec.Key
	}
	if !found {
		t.Fatalf("the container of an earlier engine is not found in %+v", list)
	}
	b.dial(t, second, nil)
	b.ok(t, goOn)
	p, err := b.host.Attach(t.Context(), id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	exit, err := p.Output(&out, &errOut)
	if err != nil || exit.Code != 9 || out.String() != counted("out") || errOut.String() != counted("err") {
		t.Errorf("%+v, %v, %q %q", exit, err, out.String(), errOut.String())
	}
	if got := b.ok(t, "cat "+containers.WorkDir+"/file"); got != "kept" {
		t.Errorf("the work tree holds %q", got)
	}
	b.host.Close()
	if err := second.Remove(t.Context(), b.c.ID); err != nil {
		t.Error(err)
	}
}

func testRemoveInMidCommand(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{})
	// The removal meets a tree that denies entry, and many processes, some of which ignore signals.
	b.ok(t, "mkdir -p a/b/c && touch a/b/c/d && chmod 000 a/b/c a/b && ln -s /nowhere link && mkdir -m 0500 closed")
	p, err := b.host.Start(t.Context(),
		containers.Command{Shell: "trap '' TERM HUP; for i in 1 2 3 4 5; do setsid sleep 600 & done; echo ready; while :; do sleep 600; done", ID: rand.Text()})
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		_, err := p.Output(&stopAfter{n: 1, stop: func() { close(ready) }}, nil)
		ended <- err
	}()
	<-ready
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.engine.Remove(ctx, b.c.ID); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !isGone(err) {
		t.Errorf("the command's follower hears %v", err)
	}
	if _, err := s.engine.Dial(ctx, b.c.ID); !isGone(err) {
		t.Errorf("dialling a removed container: %v", err)
	}
	if err := s.engine.Remove(ctx, b.c.ID); err != nil {
		t.Errorf("removing it again: %v", err)
	}
	// Its files are left, and no process that writes to them.
	if err := layer.RemoveTree(b.spec.Dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(b.spec.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder is there: %v", err)
	}
}

// testStartGivenUp tests that a start that is abandoned at any moment leaves nothing. The suite checks for that
// at its end.
func testStartGivenUp(s *suite, t *testing.T) {
	began := time.Now()
	b := s.start(t, containers.Limits{})
	took := time.Since(began)
	b.host.Close()
	for i := range 8 {
		spec := s.spec(containers.Limits{})
		if err := os.Mkdir(spec.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), took*time.Duration(i)/7)
		c, err := s.engine.Start(ctx, spec)
		cancel()
		if err == nil {
			if err := s.engine.Remove(t.Context(), c.ID); err != nil {
				t.Error(err)
			}
		}
	}
	// The engine removes a container that nobody waits for once it is made.
	eventually(t, "containers are left", func() (left []string) {
		list, err := s.engine.List(t.Context(), s.owner)
		if err != nil {
			return []string{err.Error()}
		}
		for _, c := range list {
			if c.ID != b.c.ID {
				left = append(left, fmt.Sprintf("%+v", c))
			}
		}
		return left
	})
}

func testManyAtOnce(s *suite, t *testing.T) {
	boxes := make([]*box, s.Many)
	var group sync.WaitGroup
	for i := range boxes {
		spec := s.spec(containers.Limits{PIDs: 64, Memory: 256 << 20})
		if err := os.Mkdir(spec.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			c, err := s.engine.Start(ctx, spec)
			if err != nil {
				t.Error(err)
				return
			}
			s.mu.Lock()
			s.ids = append(s.ids, c.ID)
			s.mu.Unlock()
			b := &box{s: s, spec: spec, c: c, pin: &memoryPin{}}
			boxes[i] = b
			b.host, err = (&containers.Dialer{Engine: s.engine, Signer: s.signer, Pin: b.pin}).Dial(ctx, c.ID)
			if err != nil {
				t.Error(err)
				return
			}
			for n := range 5 {
				p, err := b.host.Start(ctx, containers.Command{ID: fmt.Sprint("n", n),
					Shell: fmt.Sprintf("echo %d %d >> log; cat log | wc -l; tail -n 1 log", i, n)})
				if err != nil {
					t.Error(err)
					return
				}
				var out bytes.Buffer
				exit, err := p.Output(&out, nil)
				if want := fmt.Sprintf("%d\n%d %d\n", n+1, i, n); err != nil || exit.Code != 0 || out.String() != want {
					t.Errorf("container %d says %q, not %q: %+v, %v", i, out.String(), want, exit, err)
				}
			}
		})
	}
	group.Wait()
	list, err := s.engine.List(t.Context(), s.owner)
	if err != nil || len(list) != s.Many {
		t.Errorf("%d containers are listed, not %d; %v", len(list), s.Many, err)
	}
	for _, b := range boxes {
		if b == nil {
			continue
		}
		group.Go(func() {
			if b.host != nil {
				b.host.Close()
			}
			if err := s.engine.Remove(context.WithoutCancel(t.Context()), b.c.ID); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}
