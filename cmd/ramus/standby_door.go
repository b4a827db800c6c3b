package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/executor/standby"
	"github.com/ramus-dev/ramus/gateway/cert"
	"github.com/ramus-dev/ramus/gateway/route"
)

// standbyDoor answers the clients of a stand-by.
type standbyDoor struct {
	follower *standby.Follower
	stop     context.CancelFunc // ends following
	stopped  chan struct{}      // closed when following has ended
	promote  func(ctx context.Context) (standby.Epoch, error)

	asked, done atomic.Bool
	answered    chan struct{} // closed when the request to promote is answered
}

// open listens at the unix socket and at the address of the configuration.
func (d *standbyDoor) open(c Config, log *slog.Logger) (stop func(), err error) {
	socket, err := listenSocket(c.Data)
	if err != nil {
		return nil, err
	}
	own := http.NewServeMux()
	own.HandleFunc("GET /api/standby", func(w http.ResponseWriter, _ *http.Request) {
		writeJSONTo(w, http.StatusOK, "application/json", d.follower.Status())
	})
	own.HandleFunc("POST /api/standby/promote", d.servePromote)
	own.HandleFunc("/", d.serveRest)
	servers := []*http.Server{newHTTPServer(own, log)}
	listeners := []net.Listener{socket}
	if c.Listen != "" {
		web, err := net.Listen("tcp", c.Listen)
		if err != nil {
			socket.Close()
			return nil, fmt.Errorf("cannot listen at the address of listen: %w", err)
		}
		s := newHTTPServer(http.HandlerFunc(d.serveRest), log)
		certs, err := newCertificates(c, &secrets{}, log)
		if err != nil {
			socket.Close()
			web.Close()
			return nil, err
		}
		if certs != nil {
			s.Handler, s.TLSConfig = cert.Strict(s.Handler), certs.Config()
		}
		servers, listeners = append(servers, s), append(listeners, web)
		log.Info("serving HTTP", "address", web.Addr().String(), "tls", certs != nil)
	}
	var work sync.WaitGroup
	for i, s := range servers {
		work.Go(func() {
			if s.TLSConfig != nil {
				_ = s.ServeTLS(listeners[i], "", "")
				return
			}
			_ = s.Serve(listeners[i])
		})
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		for _, s := range servers {
			if s.Shutdown(ctx) != nil {
				s.Close()
			}
		}
		work.Wait()
	}, nil
}

// serveRest answers /health, and refuses everything else.
func (d *standbyDoor) serveRest(w http.ResponseWriter, r *http.Request) {
	st := d.follower.Status()
	if r.URL.Path == "/health" {
		writeJSONTo(w, http.StatusOK, "application/json", healthOf(st))
		return
	}
	w.Header().Set("Retry-After", "5")
	writeJSONTo(w, http.StatusServiceUnavailable, "application/problem+json", &route.Problem{
		Type: "about:blank", Title: http.StatusText(http.StatusServiceUnavailable), Status: http.StatusServiceUnavailable,
		Kind: route.KindUnavailable, RetryAfter: 5, Detail: "this is a stand-by, which follows another server",
		Hint: "`ramus promote` makes it the server"})
}

// servePromote ends following and makes the data folder that of a server.
func (d *standbyDoor) servePromote(w http.ResponseWriter, r *http.Request) {
	if !d.asked.CompareAndSwap(false, true) {
		writeJSONTo(w, http.StatusConflict, "application/problem+json",
			&route.Problem{Type: "about:blank", Status: http.StatusConflict, Kind: route.KindConflict,
				Detail: "it is being promoted already"})
		return
	}
	defer close(d.answered)
	d.stop()
	<-d.stopped
	epoch, err := d.promote(context.WithoutCancel(r.Context()))
	if err != nil {
		writeJSONTo(w, http.StatusInternalServerError, "application/problem+json",
			&route.Problem{Type: "about:blank", Status: http.StatusInternalServerError, Kind: route.KindInternal,
				Detail: err.Error()})
		return
	}
	d.done.Store(true)
	writeJSONTo(w, http.StatusOK, "application/json", epoch)
}
