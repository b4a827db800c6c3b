package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/executor/standby"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/cert"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// closedDoor answers the clients of a stand-by or of a server whose place another one took. It tells its state, and
// refuses everything else.
type closedDoor struct {
	status func() standby.Status
	// refusal is the answer to everything else. Its Detail and Hint are set.
	refusal func() route.Problem
	// local has the further routes of the unix socket, and web those of the address of the configuration.
	local, web map[string]http.HandlerFunc
}

// open listens at the unix socket and at the address of the configuration.
func (d *closedDoor) open(c Config, log *slog.Logger) (stop func(), err error) {
	socket, err := listenSocket(c.Data)
	if err != nil {
		return nil, err
	}
	own := d.mux(d.local)
	own.HandleFunc("GET /api/standby", func(w http.ResponseWriter, _ *http.Request) { writeState(w, d.status()) })
	servers := []*http.Server{newHTTPServer(own, log)}
	listeners := []net.Listener{socket}
	if c.Listen != "" {
		web, err := net.Listen("tcp", c.Listen)
		if err != nil {
			socket.Close()
			return nil, fmt.Errorf("cannot listen at the address of listen: %w", err)
		}
		s := newHTTPServer(d.mux(d.web), log)
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

func (d *closedDoor) mux(more map[string]http.HandlerFunc) *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, handle := range more {
		mux.HandleFunc(pattern, handle)
	}
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		st := d.status()
		h := gateway.Health{Status: gateway.HealthOK, Version: buildVersion(), Epoch: st.Epoch, Role: st.Role, Lag: st.Lag}
		if st.Fence != nil {
			h.Epoch, h.EpochID = st.Fence.Epoch, st.Fence.ID
		}
		writeState(w, h)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		p := d.refusal()
		p.Status, p.Kind, p.RetryAfter = http.StatusServiceUnavailable, route.KindUnavailable, retryAfter
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
		if strings.HasPrefix(r.UserAgent(), "git/") { // which shows such texts to people
			http.Error(w, p.Detail+"\n"+p.Hint, p.Status)
			return
		}
		writeProblem(w, p)
	})
	return mux
}

// retryAfter is when clients of a closed door may ask again, in seconds.
const retryAfter = 5

func writeState(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}

func writeProblem(w http.ResponseWriter, p route.Problem) {
	p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client may be gone
}

// standbyDoor is the door of a stand-by.
type standbyDoor struct {
	follower *standby.Follower
	stop     context.CancelFunc // ends following
	stopped  chan struct{}      // closed when following has ended
	promote  func(ctx context.Context) (standby.Epoch, error)

	asked, done atomic.Bool
	answered    chan struct{} // closed when the request to promote is answered
}

func (d *standbyDoor) open(c Config, log *slog.Logger) (stop func(), err error) {
	door := &closedDoor{status: d.follower.Status,
		refusal: func() route.Problem {
			return route.Problem{Detail: "this is a stand-by, which follows " + d.follower.Source.Of,
				Hint: "`ramus promote` makes it the server"}
		},
		local: map[string]http.HandlerFunc{"POST /api/standby/promote": d.servePromote}}
	return door.open(c, log)
}

// servePromote ends following and makes the data folder that of a server.
func (d *standbyDoor) servePromote(w http.ResponseWriter, r *http.Request) {
	if !d.asked.CompareAndSwap(false, true) {
		writeProblem(w, route.Problem{Status: http.StatusConflict, Kind: route.KindConflict,
			Detail: "cannot promote: it is being promoted already"})
		return
	}
	defer close(d.answered)
	d.stop()
	<-d.stopped
	epoch, err := d.promote(context.WithoutCancel(r.Context()))
	if err != nil {
		writeProblem(w, route.Problem{Status: http.StatusInternalServerError, Kind: route.KindInternal, Detail: err.Error()})
		return
	}
	d.done.Store(true)
	writeState(w, epoch)
}

// serveFenced answers for a server whose place another one took, until ctx ends. It returns the fence.
func serveFenced(ctx context.Context, c Config, lock io.Closer, log *slog.Logger) (err error) {
	defer func() { err = errors.Join(err, lock.Close()) }()
	fence, err := standby.ReadFence(c.Data)
	if err != nil {
		return err
	}
	git, err := newGit(c, filepath.Join(c.Data, "keys"), &secrets{}, log)
	if err != nil {
		return err
	}
	if err := git.Open(ctx); err != nil {
		return fmt.Errorf("cannot open the repositories: %w", err)
	}
	defer func() { err = errors.Join(err, git.Close()) }()
	d := &fencedDoor{data: c.Data, git: git, fence: fence}
	door := &closedDoor{status: d.status,
		refusal: func() route.Problem {
			return route.Problem{Detail: d.status().Fence.Error(), Hint: "use the other server, or give both addresses in RAMUS_URL"}
		},
		web: map[string]http.HandlerFunc{"POST /api/standby/fence": d.serveFence}}
	stop, err := door.open(c, log)
	if err != nil {
		return err
	}
	defer stop()
	log.Error("refusing all work", "why", fence.Error())
	if err := d.refuseSSH(ctx, c.SSHListen, log); err != nil {
		return err
	}
	<-ctx.Done()
	return placeStatus(d.status().Fence)
}

// refuseSSH answers clients of SSH until ctx ends, if there is an address for SSH.
func (d *fencedDoor) refuseSSH(ctx context.Context, addr string, log *slog.Logger) error {
	if addr == "" {
		return nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("cannot listen at the address of ssh_listen: %w", err)
	}
	log.Info("serving SSH", "address", l.Addr().String())
	return d.git.RefuseSSH(ctx, l, func() string { return d.status().Fence.Error() })
}

// fencedDoor is the door of a server whose place another one took.
type fencedDoor struct {
	data string
	git  *gitd.Server

	mu    sync.Mutex // guards the field below and the file
	fence *standby.Fence
}

func (d *fencedDoor) status() standby.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	return standby.Status{Role: standby.RoleFenced, Epoch: d.fence.Epoch, Fence: d.fence}
}

// serveFence takes the fence of another server, so that of two that were promoted at once both learn of the higher one.
func (d *fencedDoor) serveFence(w http.ResponseWriter, r *http.Request) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	grant, err := d.git.Verify(token)
	if err != nil || !grant.Has(gitd.ScopeAdmin) || grant.Repo != "*" {
		writeProblem(w, route.Problem{Status: http.StatusForbidden, Kind: route.KindDenied,
			Detail: "cannot end this server: it needs a token with the scope admin"})
		return
	}
	var f standby.Fence
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxFence)).Decode(&f); err != nil {
		writeProblem(w, route.Problem{Status: http.StatusBadRequest, Kind: route.KindInvalid, Detail: err.Error()})
		return
	}
	d.mu.Lock()
	is, err := standby.RaiseFence(d.data, f)
	if err == nil {
		d.fence = is
	}
	d.mu.Unlock()
	if err != nil {
		writeProblem(w, route.Problem{Status: http.StatusInternalServerError, Kind: route.KindInternal, Detail: err.Error()})
		return
	}
	writeState(w, d.status())
}

// maxFence bounds a fence in a request, in bytes.
const maxFence = 4 << 10
