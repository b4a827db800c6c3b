package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ramus-dev/ramus/gateway/cert"
	"github.com/ramus-dev/ramus/gateway/comment"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/seen"
)

// front has the servers of an installation. They start and stop together.
type front struct {
	i         *installation
	listeners []net.Listener // until the front serves
	servers   []*http.Server
	door      door
	stop      context.CancelFunc
	group     errgroup.Group
}

// listen serves the unix socket and, unless alone, the addresses of the configuration.
func (i *installation) listen(ctx context.Context, alone bool) (_ *front, err error) {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	f := &front{i: i, stop: stop, door: door{data: i.config.Data}}
	defer func() {
		if err != nil {
			stop()
			for _, l := range f.listeners {
				l.Close()
			}
		}
	}()
	socket, err := listenSocket(i.config.Data)
	if err != nil {
		return nil, err
	}
	f.listeners = append(f.listeners, socket)
	i.leader.Begin()
	if alone {
		f.serveSocket(socket)
		return f, nil
	}

	web, plain, ssh, err := f.listenTCP()
	if err != nil {
		return nil, err
	}
	if web != nil {
		if i.certs == nil { // no certificate is for an address of the machine itself
			i.gateway.Loopback = loopbackURL(web.Addr())
		}
		i.git.URL = cmp.Or(i.git.URL, i.gateway.Loopback)
	}
	if err := i.openFronts(ctx, serving); err != nil {
		return nil, err
	}

	if ssh != nil {
		f.group.Go(func() error { return i.git.ServeSSH(serving, ssh) })
		i.log.Info("serving SSH", "address", ssh.Addr().String())
	}
	f.serveSocket(socket)
	i.log.Info("serving", "version", buildVersion(), "engine", i.engine.Name(), "why", i.why, "work_tree",
		i.workTree.name(), "socket", socketPath(i.config.Data))
	if web != nil {
		f.serveWeb(web, plain)
	}
	if r := i.replicas; r != nil {
		s := newHTTPServer(r.front.Inner(i.gateway.Handler(), i.gateway.LocalHandler()), i.log)
		f.serve(s, func() error { return s.Serve(tls.NewListener(r.inner, r.front.TLS())) })
		i.log.Info("serving other replicas", "address", r.inner.Addr().String(), "replica", r.group.Name, "epoch", r.group.Epoch())
	}
	f.group.Go(func() error {
		if err := i.executor.WarmPool(serving); err != nil && serving.Err() == nil {
			i.log.Warn("the pool of containers is not filled", "err", err)
		}
		return nil
	})
	f.group.Go(func() error { i.refreshImages(serving); return nil })
	f.group.Go(func() error { i.resumeTournaments(serving); return nil })
	f.group.Go(func() error { i.watchEpochs(serving); return nil })
	return f, nil
}

// portOf returns the port of an address of the configuration. Returns "" if the address is empty, or its port is chosen when it is used.
func portOf(address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil || port == "0" {
		return ""
	}
	return port
}

// listenTCP listens at the addresses of the configuration. A listener is nil if its key is not set.
func (f *front) listenTCP() (web, plain, ssh net.Listener, err error) {
	c := f.i.config
	redirect := c.RedirectListen
	if f.i.certs == nil {
		redirect = ""
	}
	for _, at := range []struct {
		listener *net.Listener
		addr     string
		key      string
	}{{&web, c.Listen, "listen"}, {&plain, redirect, "redirect_listen"}, {&ssh, c.SSHListen, "ssh_listen"}} {
		if at.addr == "" {
			continue
		}
		l, err := net.Listen("tcp", at.addr)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("cannot listen at the address of %s: %w", at.key, err)
		}
		f.listeners = append(f.listeners, l)
		*at.listener = l
	}
	return web, plain, ssh, nil
}

// openFronts opens the parts that only a server has, and gives them to the gateway. They begin work with people and
// services at once, and some of them go on until serving ends.
func (i *installation) openFronts(ctx, serving context.Context) (err error) {
	i.pushed.TakeUp(ctx)
	if err := i.openEngineer(ctx); err != nil {
		return err
	}
	i.gateway.Engineer = i.engineer
	if i.chat != nil {
		if err := i.openChat(ctx); err != nil {
			return err
		}
	}
	if i.triggers != nil {
		if err := i.openTriggers(ctx); err != nil {
			return err
		}
		i.gateway.Triggers = i.triggers
	}
	if i.gateway.Content, err = contentURL(i.config, i.gateway.Loopback); err != nil {
		return err
	}
	if err := i.openPeople(i.owner); err != nil {
		return err
	}
	i.gateway.People, i.gateway.Seen = i.people, &seen.Store{DB: i.web}
	i.comments.Drafts, i.comments.Account = &comment.Drafts{DB: i.web}, i.people.AccountNow
	if i.privacy != nil {
		i.comments.Veil = i.privacy.Veil
	}
	if err := i.comments.TakeUp(ctx); err != nil {
		return err
	}
	if i.shares != nil {
		if err := i.shares.CountIn(i.web); err != nil {
			return err
		}
	}
	i.mirrors.Open(serving)
	if err := i.webhooks.Open(serving); err != nil {
		return err
	}
	i.nodes.Start()
	i.hostNames.Start()
	return i.teller.Open(serving)
}

// serveSocket serves the unix socket, by which the owner of the data folder may do everything.
func (f *front) serveSocket(l net.Listener) {
	s := newHTTPServer(f.i.gateway.LocalHandler(), f.i.log)
	s.ConnState = f.door.changed
	f.serve(s, func() error { return s.Serve(l) })
}

// serveWeb serves the HTTP interface at web, with TLS if the configuration has certificates. If plain is not nil, it
// leads clients without TLS to web.
func (f *front) serveWeb(web, plain net.Listener) {
	handler, certs := f.i.gateway.Handler(), f.i.certs
	if certs == nil {
		s := newHTTPServer(handler, f.i.log)
		f.serve(s, func() error { return s.Serve(web) })
	} else {
		s := newHTTPServer(cert.Strict(handler), f.i.log)
		s.TLSConfig = certs.Config()
		f.serve(s, func() error { return s.ServeTLS(web, "", "") })
	}
	f.i.log.Info("serving HTTP", "address", web.Addr().String(), "tls", certs != nil)
	if plain != nil {
		_, port, _ := net.SplitHostPort(web.Addr().String())
		s := newHTTPServer(certs.Challenge(f.i.leadToTLS(port)), f.i.log)
		f.serve(s, func() error { return s.Serve(plain) })
		f.i.log.Info("leading to TLS", "address", plain.Addr().String())
	}
}

// leadToTLS returns the handler of requests without TLS. Previews and content may have other domains. port is that of
// the listener with TLS.
func (i *installation) leadToTLS(port string) http.Handler {
	lead := cert.Redirect(i.config.URL, port)
	if d := i.domain; d != nil {
		lead = d.OnlyOwn(cert.Redirect("", d.Port()))
	}
	content, err := url.Parse(i.gateway.Content)
	return cert.RedirectOthers(func(host string) string {
		name := strings.TrimSuffix(route.HostName(host), ".")
		if err == nil && content.Scheme == "https" && strings.EqualFold(name, content.Hostname()) {
			return i.gateway.Content
		}
		return i.gateway.Preview.WithTLS(host)
	}, lead)
}

// serve has a goroutine of the group answer the requests of a server.
func (f *front) serve(s *http.Server, answer func() error) {
	f.servers = append(f.servers, s)
	f.group.Go(func() error {
		if err := answer(); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
}

// shutdown ends streams, waits until ctx ends for requests that clients still follow, and stops.
func (f *front) shutdown(ctx context.Context) error {
	f.i.gateway.Drain()
	f.stop()
	if err := f.door.close(ctx); err != nil {
		f.i.log.Debug("the last client may not have been answered", "err", err)
	}
	var errs []error
	for _, s := range f.servers {
		if err := s.Shutdown(ctx); err != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(append(errs, f.group.Wait())...)
}

// newHTTPServer returns an http.Server with the bounds for every client.
func newHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: readRest(h), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// Bounds of the rest of a request that is read after its answer.
const (
	restBytes = 256 << 10
	restTime  = 5 * time.Second
)

// readRest reads the rest of a short request by HTTP/2 that h has answered early, as net/http itself does for HTTP/1.
// Otherwise the server resets the stream, and some clients, such as curl 7.88, lose the answer.
func readRest(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := r.Body
		h.ServeHTTP(w, r)
		if r.ProtoMajor != 2 || r.ContentLength <= 0 || r.ContentLength > restBytes {
			return
		}
		if http.NewResponseController(w).SetReadDeadline(time.Now().Add(restTime)) == nil {
			_, _ = io.CopyN(io.Discard, body, restBytes) // the client may have gone
		}
	})
}

// loopbackURL returns the URL at which this machine reaches a server that listens at addr. Returns "" if other machines
// may reach it too, because they need the URL of the configuration.
func loopbackURL(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		return "http://" + tcp.String()
	}
	return ""
}
