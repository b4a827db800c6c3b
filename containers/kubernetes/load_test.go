package kubernetes

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/kubernetes/way"
)

// shorten changes a time limit for a test.
func shorten(t *testing.T, limit *time.Duration, to time.Duration) {
	t.Helper()
	old := *limit
	*limit = to
	t.Cleanup(func() { *limit = old })
}

// crowd counts how many are inside at once. The first full ones stay until all of them are inside.
type crowd struct {
	full    int
	gathers chan struct{} // is closed when full are inside

	mu           sync.Mutex // guards the fields below
	inside, most int
}

func newCrowd(full int) *crowd { return &crowd{full: full, gathers: make(chan struct{})} }

func (c *crowd) enter() {
	c.mu.Lock()
	c.inside++
	if c.most = max(c.most, c.inside); c.inside == c.full && c.most == c.full {
		select {
		case <-c.gathers:
		default:
			close(c.gathers)
		}
	}
	c.mu.Unlock()
	<-c.gathers
}

func (c *crowd) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inside--
}

// The engine has a bounded number of requests under way, whatever the number of callers. A caller that gives up while it waits for
// its turn gets its own reason.
func TestRequestsAtOnce(t *testing.T) {
	f, e := newFake(t)
	c := newCrowd(maxAsked)
	f.refuse = func(http.ResponseWriter, *http.Request) bool {
		c.enter()
		defer c.leave()
		time.Sleep(time.Millisecond) // more would come in meanwhile
		return false
	}
	var all sync.WaitGroup
	for range 5 * maxAsked {
		all.Go(func() {
			if _, err := e.List(bounded(t), "owner"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if c.most != maxAsked {
		t.Errorf("%d requests were under way at once; want %d", c.most, maxAsked)
	}
}

// The engine makes a bounded number of connections at once. Connections that broke have their own bound, so that pods that do not
// answer keep no other from going on.
func TestConnectionsAtOnce(t *testing.T) {
	play := &echo{sessions: map[string]*way.Stream{}, ws: map[*websocket.Conn]bool{}}
	f, e, id, conn := dialled(t, play.serve)
	conn.SetDeadline(time.Now().Add(time.Minute))
	said := func(word string) {
		t.Helper()
		got := make([]byte, len(word))
		if _, err := io.WriteString(conn, word); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != word {
			t.Fatalf("%q, %v", got, err)
		}
	}
	said("before")
	c, first := newCrowd(maxTried), conn.(*link).session
	gate := make(chan struct{})
	f.mu.Lock()
	f.exec = func(ws *websocket.Conn, pod, container string, args []string) {
		if !strings.Contains(args[3], first) {
			c.enter()
			<-gate
			time.Sleep(time.Millisecond) // more would come in meanwhile
			c.leave()                    // before the answer, which lets the next one in
			ws.WriteMessage(websocket.BinaryMessage, exitStatus(way.Failed))
			return
		}
		play.serve(ws, pod, container, args)
	}
	f.mu.Unlock()
	var all sync.WaitGroup
	for range 3 * maxTried {
		all.Go(func() {
			if _, err := e.dial(bounded(t), id.ID); !errors.Is(err, containers.ErrUnavailable) {
				t.Errorf("dialled: %v", err)
			}
		})
	}
	<-c.gathers
	play.cut()
	said("after") // although all turns of new connections are taken
	close(gate)
	all.Wait()
	if c.most != maxTried {
		t.Errorf("%d connections were made at once; want %d", c.most, maxTried)
	}
}

// A pod that takes a connection and then says nothing is tried again.
func TestSilentPodIsTriedAgain(t *testing.T) {
	shorten(t, &tryWait, 50*time.Millisecond)
	for _, test := range []struct {
		name string
		say  func(ws *websocket.Conn)
	}{
		{"no word of the way", func(*websocket.Conn) {}},
		{"no greeting of the runner", func(ws *websocket.Conn) {
			frame := func(kind byte) error {
				var b strings.Builder
				(&way.FrameWriter{W: &b}).Frame(kind, make([]byte, 8))
				return ws.WriteMessage(websocket.BinaryMessage, message(1, b.String()))
			}
			for err := frame(way.FrameHello); err == nil; err = frame(way.FrameAck) { // the way is alive, and the runner is not
				time.Sleep(5 * time.Millisecond)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, e := newFake(t)
			var tries atomic.Int64
			f.exec = func(ws *websocket.Conn, pod, container string, args []string) {
				if tries.Add(1) > 1 {
					greet(ws, pod, container, args)
					return
				}
				test.say(ws)
				for {
					if _, _, err := ws.ReadMessage(); err != nil {
						return
					}
				}
			}
			if _, err := e.Start(bounded(t), newSpec()); err != nil {
				t.Error(err)
			}
			if tries.Load() < 2 {
				t.Error("it was not tried again")
			}
		})
	}
}

// A pod is created although the API server refuses at first because it has too much to do. There is one, also if an answer was lost.
func TestCreationIsRepeated(t *testing.T) {
	for _, test := range []struct {
		name   string
		refuse func(f *fake, w http.ResponseWriter, r *http.Request)
	}{
		{"too many requests", func(_ *fake, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			refusal(w, http.StatusTooManyRequests, "TooManyRequests", "later")
		}},
		{"etcd is slow", func(_ *fake, w http.ResponseWriter, _ *http.Request) {
			refusal(w, http.StatusInternalServerError, "InternalError", "etcdserver: request timed out")
		}},
		{"a quota is in use", func(_ *fake, w http.ResponseWriter, _ *http.Request) {
			refusal(w, http.StatusConflict, "Conflict", "Operation cannot be fulfilled on resourcequotas")
		}},
		{"the answer is lost", func(f *fake, _ http.ResponseWriter, r *http.Request) {
			f.create(discard{http.Header{}}, r)
			panic(http.ErrAbortHandler)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, e := newFake(t)
			var creations atomic.Int64
			f.refuse = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPost || creations.Add(1) > 1 {
					return false
				}
				test.refuse(f, w, r)
				return true
			}
			c, err := e.Start(bounded(t), newSpec())
			if err != nil {
				t.Fatal(err)
			}
			if got := f.names(); !slices.Equal(got, []string{c.ID}) || c.Key != newSpec().Key {
				t.Errorf("pods are %s, and %+v was started", got, c)
			}
			if n := creations.Load(); n != 2 {
				t.Errorf("the pod was created %d times", n)
			}
		})
	}
}

// An API server that goes on to refuse ends the start, and one that will always refuse ends it at once.
func TestCreationIsNotRepeatedForEver(t *testing.T) {
	shorten(t, &createWait, 300*time.Millisecond)
	for _, test := range []struct {
		code   int
		reason string
		want   func(tries int64, err error) bool
	}{
		{http.StatusTooManyRequests, "TooManyRequests", func(tries int64, err error) bool {
			return tries > 1 && errors.Is(err, containers.ErrUnavailable)
		}},
		{http.StatusForbidden, "Forbidden", func(tries int64, err error) bool {
			return tries == 1 && !errors.Is(err, containers.ErrUnavailable)
		}},
		{http.StatusConflict, "AlreadyExists", func(tries int64, err error) bool { return tries == 1 }},
	} {
		t.Run(test.reason, func(t *testing.T) {
			f, e := newFake(t)
			var creations atomic.Int64
			f.refuse = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPost {
					return false
				}
				creations.Add(1)
				refusal(w, test.code, test.reason, "no")
				return true
			}
			_, err := e.Start(bounded(t), newSpec())
			if err == nil || !test.want(creations.Load(), err) {
				t.Errorf("after %d tries: %v", creations.Load(), err)
			}
		})
	}
}

// A change of a pod wakes those who wait for that pod, and no others.
func TestChangeWakesItsPodAlone(t *testing.T) {
	f, e := newFake(t)
	var ids []string
	for range 2 {
		c, err := e.Start(bounded(t), newSpec())
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, c.ID)
	}
	w := e.follow()
	for _, id := range ids {
		for p, changed := w.await(id); p == nil; p, changed = w.await(id) {
			<-changed
		}
	}
	// A change before the watch begins has the engine list all pods again.
	for watching := false; !watching; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		watching = len(f.watchers) > 0
		f.mu.Unlock()
	}
	_, one := w.await(ids[0])
	_, other := w.await(ids[1])
	for _, end := range []func(){
		func() { f.change(ids[0], func(p *pod) { p.Status.Reason = "Changed" }) },
		func() { f.drop(ids[0]) },
	} {
		end()
		<-one
		select {
		case <-other:
			t.Error("another pod's change woke it")
		default:
		}
		_, one = w.await(ids[0])
	}
}
