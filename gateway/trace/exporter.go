package trace

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/retry"
)

// Exporter sends the traces of runs. Its exported fields are its options and may be changed until Open. Methods are safe
// for concurrent use. A nil Exporter does nothing.
type Exporter struct {
	// URL is the address of the collector, "http://localhost:4318". /v1/traces is appended unless it has a path.
	URL string
	// Token is the value of the header Header of each request. If it is empty, no such header is sent. The default of
	// Header is Authorization.
	Header, Token string
	// Version is the version of ramus.
	Version string
	// HTTP sends the requests. Nil means a client that follows no redirects and waits at most 10 s.
	HTTP *http.Client
	// RetryEvery is the first pause after a failure. The default is 1 s.
	RetryEvery time.Duration
	Log        *slog.Logger

	target        string
	queue         chan []span
	stop          context.CancelFunc
	ended         chan struct{}
	closing       sync.RWMutex // held for reading while the queue is written, for writing when it is closed
	closed        bool         // guarded by closing
	sent, dropped atomic.Int64
}

const (
	// queueMax bounds the runs that wait to be sent.
	queueMax = 256
	// tryFor bounds the attempts to send a run.
	tryFor = time.Minute
	// answerMax bounds the part of an answer that is read, in bytes.
	answerMax = 64 << 10
)

// Open starts to send. Returns an error if the URL is not one.
func (e *Exporter) Open() error {
	u, err := url.Parse(e.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return fmt.Errorf("cannot send traces to %q: want a URL such as http://localhost:4318", e.URL)
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = "/v1/traces"
	}
	e.target = u.String()
	if e.Log == nil {
		e.Log = slog.New(slog.DiscardHandler)
	}
	if e.HTTP == nil {
		e.HTTP = &http.Client{Timeout: 10 * time.Second,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	e.queue, e.ended = make(chan []span, queueMax), make(chan struct{})
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	go func() {
		defer close(e.ended)
		for spans := range e.queue {
			e.send(ctx, spans)
		}
	}()
	return nil
}

// Close sends what waits until ctx ends, and stops.
func (e *Exporter) Close(ctx context.Context) {
	if e == nil || e.queue == nil {
		return
	}
	e.closing.Lock()
	if !e.closed {
		e.closed = true
		close(e.queue)
	}
	e.closing.Unlock()
	select {
	case <-e.ended:
	case <-ctx.Done():
	}
	e.stop()
	<-e.ended
}

// Counts returns how many spans were sent, and how many were dropped.
func (e *Exporter) Counts() (sent, dropped int64) {
	if e == nil {
		return 0, 0
	}
	return e.sent.Load(), e.dropped.Load()
}

// Ended sends the trace of a run that has ended. It does not wait.
func (e *Exporter) Ended(r record.Run, events []record.Event) {
	if e != nil {
		e.enqueue(runSpans(r, events))
	}
}

// Told sends the last span of a run whose origin knows its end. It does not wait.
func (e *Exporter) Told(r record.Run) {
	if e != nil {
		e.enqueue(toldSpans(r))
	}
}

func (e *Exporter) enqueue(spans []span) {
	if len(spans) == 0 {
		return
	}
	e.closing.RLock()
	defer e.closing.RUnlock()
	if !e.closed {
		select {
		case e.queue <- spans:
			return
		default:
		}
	}
	e.dropped.Add(int64(len(spans)))
}

// send sends spans, and tries again for some time.
func (e *Exporter) send(ctx context.Context, spans []span) {
	body, err := json.Marshal(request{[]resourceSpans{{
		Resource:   resource{[]attribute{str("service.name", "ramus"), str("service.version", e.Version)}},
		ScopeSpans: []scopeSpans{{Scope: scope{"ramus", e.Version}, Spans: spans}},
	}}})
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, tryFor)
		defer cancel()
		err = e.post(ctx, body)
	}
	if err != nil {
		e.dropped.Add(int64(len(spans)))
		e.Log.Warn("a trace was not sent", "spans", len(spans), "err", err)
		return
	}
	e.sent.Add(int64(len(spans)))
}

// errRefused means that the same request would be refused again.
var errRefused = errors.New("the collector refuses it")

func (e *Exporter) post(ctx context.Context, body []byte) error {
	for pause := cmp.Or(e.RetryEvery, time.Second); ; pause *= 2 {
		after, err := e.postOnce(ctx, body)
		if err == nil || errors.Is(err, errRefused) {
			return err
		}
		if retry.Sleep(ctx, max(pause, after)) != nil {
			return err
		}
	}
}

func (e *Exporter) postOnce(ctx context.Context, body []byte) (after time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.target, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "ramus")
	if e.Token != "" {
		r.Header.Set(cmp.Or(e.Header, "Authorization"), e.Token)
	}
	resp, err := e.HTTP.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, answerMax))
	switch {
	case resp.StatusCode < 300:
		return 0, nil
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusBadGateway,
		resp.StatusCode == http.StatusServiceUnavailable,
		resp.StatusCode == http.StatusGatewayTimeout:
		return retry.After(resp.Header.Get("Retry-After"), time.Now(), tryFor),
			fmt.Errorf("the collector answers %s", resp.Status)
	}
	return 0, fmt.Errorf("%w: %s", errRefused, resp.Status)
}
