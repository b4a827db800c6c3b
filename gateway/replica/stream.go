package replica

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/ownership"
	"github.com/ramus-dev/ramus/gateway/route"
)

const (
	// streamBeat is the time between two lines of a stream at most. A stream without a line for three times as long is dead.
	streamBeat = 5 * time.Second
	// streamAgain is the time until a stream that broke is opened again, and until new replicas are looked for.
	streamAgain = 2 * time.Second
	// lineMax bounds a line of a stream, in bytes.
	lineMax = 4 << 20
)

// following is a stream of all other replicas.
type following struct {
	who      route.Who
	question string
	body     []byte
	each     func(line []byte)
	lost     func()
}

// Follow has all other replicas send lines, and calls each with them, until ctx ends. It calls lost when a stream breaks, and when one begins
// after that. It is [gather.Others].
func (f *Front) Follow(ctx context.Context, who route.Who, question string, body []byte, each func(line []byte), lost func()) {
	s := following{who, question, body, each, lost}
	followed := map[string]bool{}
	var work sync.WaitGroup
	defer work.Wait()
	for {
		for _, peer := range f.peers() {
			if !followed[peer.Name] {
				followed[peer.Name] = true
				work.Go(func() { f.followPeer(ctx, peer.Name, s) })
			}
		}
		if !pause(ctx, streamAgain) {
			return
		}
	}
}

// pause waits. It returns false if ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// followPeer follows one replica, over one stream after another.
func (f *Front) followPeer(ctx context.Context, name string, s following) {
	broke := false
	for {
		if peer, ok := f.Group.Named(name); ok && peer.URL != "" {
			begun, err := f.stream(ctx, peer, s, broke)
			if ctx.Err() != nil {
				return
			}
			f.Log.Debug("the stream of a replica ends", "replica", name, "question", s.question, "err", err)
			if begun {
				s.lost()
			}
		}
		broke = true
		if !pause(ctx, streamAgain) {
			return
		}
	}
}

// stream follows one stream. It reports whether the stream had a line. again is true if there was another stream before.
func (f *Front) stream(ctx context.Context, peer ownership.Replica, s following, again bool) (begun bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dead := time.AfterFunc(3*streamBeat, cancel)
	defer dead.Stop()
	b, err := json.Marshal(asked{s.who, s.who.Account, s.body})
	if err != nil {
		return false, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost,
		peer.URL+"/replica/stream?"+url.Values{"name": {s.question}}.Encode(), bytes.NewReader(b))
	if err != nil {
		return false, err
	}
	r.Header.Set(headerFrom, f.Group.Name)
	r.Header.Set(headerTo, peer.Name)
	resp, err := f.base.RoundTrip(r)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return false, fmt.Errorf("the replica %s answers %d", peer.Name, resp.StatusCode)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, lineMax)
	for lines.Scan() {
		dead.Reset(3 * streamBeat)
		if !begun && again {
			s.lost()
		}
		begun = true
		if len(lines.Bytes()) > 0 { // an empty line is a beat
			s.each(lines.Bytes())
		}
	}
	return begun, lines.Err()
}

func (f *Front) serveStream(w http.ResponseWriter, r *http.Request) {
	q, err := f.readAsked(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(f.closing, cancel)()
	rc := http.NewResponseController(w)
	var mu sync.Mutex // one line at a time
	write := func(line []byte) error {
		mu.Lock()
		defer mu.Unlock()
		if err := rc.SetWriteDeadline(time.Now().Add(2 * streamBeat)); err != nil {
			return err
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
		return rc.Flush()
	}
	var beating sync.WaitGroup
	defer beating.Wait()
	defer cancel()
	beating.Go(func() {
		for ok := true; ok; ok = pause(ctx, streamBeat) {
			if write(nil) != nil {
				cancel()
				return
			}
		}
	})
	err = f.Desk.Stream(ctx, q.Who, r.URL.Query().Get("name"), q.Body, func(v any) error {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return write(b)
	})
	if err != nil && ctx.Err() == nil {
		f.Log.Info("a stream for another replica ends", "from", r.Header.Get(headerFrom), "err", err)
	}
}
