package replica

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/ramus-dev/ramus/executor/ownership"
	"github.com/ramus-dev/ramus/gateway/gather"
)

// places remembers where callers, runs, tournaments and shared links were found.
type places struct {
	looks *rate.Limiter // of questions to the cluster
	asks  *rate.Limiter // of questions to all other replicas

	mu     sync.Mutex // guards the fields below
	found  map[gather.Work]place
	missed map[gather.Work]time.Time // work that no replica has, and when the replicas were asked
	looked map[string]time.Time      // repositories for which the cluster was asked
}

type place struct {
	repo  string
	until time.Time
}

const (
	// foundFor is how long a place is remembered. A repository that moves takes its work along, so places stay true.
	foundFor = time.Minute
	// lookAfter is the time between two questions to the cluster for one repository.
	lookAfter = time.Second
	// missedFor is how long an absence is remembered. It is short, because the next request may make the caller.
	missedFor = 300 * time.Millisecond
	// looksMost and asksMost bound the questions in a second for names that strangers may have invented. Ten times as many
	// may come at once.
	looksMost, asksMost = 10, 20
	// placesMax bounds the number of remembered places.
	placesMax = 10_000
	// findWait bounds the wait for the answers of other replicas.
	findWait = 2 * time.Second
)

func (p *places) init() {
	p.found, p.missed, p.looked = map[gather.Work]place{}, map[gather.Work]time.Time{}, map[string]time.Time{}
	p.looks, p.asks = rate.NewLimiter(looksMost, 10*looksMost), rate.NewLimiter(asksMost, 10*asksMost)
}

// mayLook reports whether the cluster may be asked again for a repository that nobody seems to own.
func (p *places) mayLook(repo string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Sub(p.looked[repo]) < lookAfter || !p.looks.Allow() {
		return false
	}
	if len(p.looked) >= placesMax {
		clear(p.looked)
	}
	p.looked[repo] = now
	return true
}

// find returns the repository of work. This replica is asked first. Returns "" if no replica has it.
func (p *places) find(ctx context.Context, f *Front, w gather.Work) string {
	if repo := f.local(ctx, w); repo != "" {
		return repo
	}
	p.mu.Lock()
	known, ok := p.found[w]
	missed := time.Since(p.missed[w]) < missedFor
	p.mu.Unlock()
	if ok && time.Now().Before(known.until) {
		return known.repo
	}
	if missed || !p.asks.Allow() {
		return ""
	}
	repo := f.askAll(ctx, w)
	p.mu.Lock()
	defer p.mu.Unlock()
	if repo == "" {
		if len(p.missed) >= placesMax {
			clear(p.missed)
		}
		p.missed[w] = time.Now()
		return ""
	}
	if len(p.found) >= placesMax {
		clear(p.found)
	}
	p.found[w] = place{repo, time.Now().Add(foundFor)}
	return repo
}

// forgetMissed has the next question for each absent caller be asked again, because a request may have made it.
func (p *places) forgetMissed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.missed)
}

// local returns the repository of work of this replica.
func (f *Front) local(ctx context.Context, w gather.Work) string {
	switch {
	case w.Run != "":
		if r, err := f.Executor.Run(ctx, w.Run); err == nil {
			return r.Repo
		}
		return ""
	case w.Tournament != "":
		if f.Tournament == nil {
			return ""
		}
		return f.Tournament(ctx, w.Tournament)
	case w.Link != "":
		if f.Link == nil {
			return ""
		}
		return f.Link(w.Link)
	}
	if st, err := f.Executor.Named(w.Caller); err == nil {
		return st.Repo
	}
	return ""
}

// askAll asks all other replicas at once. It returns the first answer.
func (f *Front) askAll(ctx context.Context, w gather.Work) string {
	ctx, cancel := context.WithTimeout(ctx, findWait)
	peers := f.Group.Replicas()
	answers := make(chan string, len(peers))
	asked := 0
	var asking sync.WaitGroup
	defer asking.Wait() // after cancel
	defer cancel()
	for _, peer := range peers {
		if peer.Self || peer.URL == "" {
			continue
		}
		asked++
		asking.Go(func() {
			var a found
			_ = f.ask(ctx, peer, http.MethodGet, "/replica/find?"+url.Values{"caller": {w.Caller}, "run": {w.Run},
				"tournament": {w.Tournament}, "link": {w.Link}}.Encode(), nil, &a)
			answers <- a.Repo
		})
	}
	for range asked {
		if repo := <-answers; repo != "" {
			return repo
		}
	}
	return ""
}

// found is the answer to a question for work.
type found struct {
	Repo string `json:"repo"`
}

// answerMax bounds an answer of another replica, in bytes.
const answerMax = 64 << 20

// ask sends a request of this replica itself to another one.
func (f *Front) ask(ctx context.Context, to ownership.Replica, method, path string, body io.Reader, answer any) error {
	r, err := http.NewRequestWithContext(ctx, method, to.URL+path, body)
	if err != nil {
		return err
	}
	r.Header.Set(headerFrom, f.Group.Name)
	r.Header.Set(headerTo, to.Name)
	resp, err := f.base.RoundTrip(r)
	if err != nil {
		return fmt.Errorf("the replica %s does not answer: %w", to.Name, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, answerMax))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the replica %s answers %d: %.500s", to.Name, resp.StatusCode, b)
	}
	if err == nil && answer != nil {
		err = json.Unmarshal(b, answer)
	}
	return err
}
