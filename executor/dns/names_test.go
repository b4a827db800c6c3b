package dns_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libdns/libdns"
	wire "github.com/miekg/dns"
	"github.com/ramus-dev/ramus/executor/dns"
	"github.com/ramus-dev/ramus/internal/standin/cloudflaretest"
)

// world is a server with names in a zone, whose records are "NAME TYPE ADDRESS".
type world struct {
	*dns.Names
	t       *testing.T
	records func() []string
	fail    func(down, lose bool)
	zone    dns.Zone
	file    string
	names   map[string][]netip.Addr
	err     error // of the source
	later   time.Duration
}

// reopen is the next process.
func (w *world) reopen() {
	w.Names = &dns.Names{Zone: w.zone, Name: "example.org", File: w.file, Now: func() time.Time { return time.Now().Add(w.later) }, Sources: map[string]dns.Source{
		"nodes": func(context.Context) (map[string][]netip.Addr, error) { return w.names, w.err },
		"none":  func(context.Context) (map[string][]netip.Addr, error) { return nil, nil }}}
}

func (w *world) set(name string, addrs ...string) {
	var list []netip.Addr
	for _, a := range addrs {
		list = append(list, netip.MustParseAddr(a))
	}
	w.names[name] = list
}

// sync is the next look at the sources, at which all names may be tried.
func (w *world) sync() error {
	w.later += time.Hour
	return w.Sync(w.t.Context())
}

func (w *world) has(want ...string) {
	w.t.Helper()
	if got := w.records(); !slices.Equal(got, want) {
		w.t.Fatalf("records %q, want %q", got, want)
	}
}

func worlds(t *testing.T, f func(t *testing.T, w *world)) {
	t.Run("Cloudflare", func(t *testing.T) {
		s := cloudflaretest.New("secret", "example.org")
		t.Cleanup(s.Close)
		origin, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		run(t, f, &world{zone: dns.Cloudflare("secret", origin), records: s.Records,
			fail: func(down, lose bool) { s.Fail(cloudflaretest.Faults{Down: down, Lose: lose}) }})
	})
	t.Run("Update", func(t *testing.T) {
		s := serve(t)
		run(t, f, &world{zone: dns.Update(s.address, "ramus.", secret), records: s.list,
			fail: func(down, lose bool) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.down, s.lose = down, lose
			}})
	})
}

func run(t *testing.T, f func(t *testing.T, w *world), w *world) {
	w.t, w.file, w.names = t, filepath.Join(t.TempDir(), "dns.json"), map[string][]netip.Addr{}
	w.reopen()
	f(t, w)
}

// TestNames sets, changes and removes names, in several processes.
func TestNames(t *testing.T) {
	worlds(t, func(t *testing.T, w *world) {
		w.set("node-a.vm.example.org", "192.0.2.1", "2001:db8::1")
		w.set("ws-run-x.example.org", "192.0.2.7")
		for range 2 { // the second changes nothing
			if err := w.sync(); err != nil {
				t.Fatal(err)
			}
			w.has("node-a.vm.example.org A 192.0.2.1", "node-a.vm.example.org AAAA 2001:db8::1", "ws-run-x.example.org A 192.0.2.7")
		}
		w.reopen()
		w.set("node-a.vm.example.org", "192.0.2.2") // without the other kind
		delete(w.names, "ws-run-x.example.org")
		if err := w.sync(); err != nil {
			t.Fatal(err)
		}
		w.has("node-a.vm.example.org A 192.0.2.2")
		w.err = errors.New("the cluster does not answer")
		w.names = map[string][]netip.Addr{}
		if err := w.sync(); err == nil {
			t.Error("no error of the source")
		}
		w.has("node-a.vm.example.org A 192.0.2.2")
		w.err = nil
		if err := w.sync(); err != nil {
			t.Fatal(err)
		}
		w.has()
	})
}

// TestNamesFail has the zone be down, and lose an answer. The next process leaves nothing.
func TestNamesFail(t *testing.T) {
	worlds(t, func(t *testing.T, w *world) {
		w.set("ws-run-x.example.org", "192.0.2.7")
		w.fail(true, false)
		if err := w.sync(); err == nil || strings.Contains(err.Error(), "secret") {
			t.Fatalf("error %v", err)
		}
		w.fail(false, true)
		if err := w.sync(); err == nil {
			t.Error("an answer that was lost is no error")
		}
		w.has("ws-run-x.example.org A 192.0.2.7")
		w.reopen()
		delete(w.names, "ws-run-x.example.org")
		if err := w.sync(); err != nil {
			t.Fatal(err)
		}
		w.has()
	})
}

// refusing refuses one name.
type refusing struct {
	dns.Zone
	tries int
}

func (r *refusing) SetRecords(ctx context.Context, zone string, records []libdns.Record) ([]libdns.Record, error) {
	if records[0].RR().Name == "bad" {
		r.tries++
		return nil, errors.New("no such name is allowed")
	}
	return r.Zone.SetRecords(ctx, zone, records)
}

// TestBadName sets all other names while the zone refuses one, and tries that one rarely.
func TestBadName(t *testing.T) {
	worlds(t, func(t *testing.T, w *world) {
		zone := &refusing{Zone: w.zone}
		w.zone = zone
		w.reopen()
		w.names = map[string][]netip.Addr{"bad.example.org": {netip.MustParseAddr("192.0.2.1")}}
		if err := w.sync(); err == nil {
			t.Error("a name that is refused is no error")
		}
		for i := range 3 { // at once
			w.set(fmt.Sprintf("n%d.example.org", i), "192.0.2.2")
			if err := w.Sync(t.Context()); err != nil {
				t.Error(err)
			}
		}
		w.has("n0.example.org A 192.0.2.2", "n1.example.org A 192.0.2.2", "n2.example.org A 192.0.2.2")
		if zone.tries != 1 {
			t.Errorf("the bad name was tried %d times at once", zone.tries)
		}
		if err := w.sync(); err == nil || zone.tries != 2 {
			t.Errorf("%d tries after an hour: %v", zone.tries, err)
		}
	})
}

// secret is that of the TSIG, in base64.
const secret = "c2VjcmV0LXNlY3JldC1zZWNyZXQ="

// server is a name server that takes updates of one zone.
type server struct {
	address string
	mu      sync.Mutex // guards all below
	rrs     []wire.RR
	down    bool
	lose    bool
}

func serve(t *testing.T) *server {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{address: l.Addr().String()}
	d := &wire.Server{Listener: l, TsigSecret: map[string]string{"ramus.": secret}, Handler: wire.HandlerFunc(s.update),
		MsgAcceptFunc: func(wire.Header) wire.MsgAcceptAction { return wire.MsgAccept }}
	go func() { _ = d.ActivateAndServe() }()
	t.Cleanup(func() { _ = d.Shutdown() })
	return s
}

func (s *server) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, rr := range s.rrs {
		h := rr.Header()
		all = append(all, strings.TrimSuffix(h.Name, ".")+" "+wire.TypeToString[h.Rrtype]+" "+
			strings.TrimPrefix(rr.String(), h.String()))
	}
	slices.Sort(all)
	return all
}

// update is RFC 2136, section 3.4.2.
func (s *server) update(w wire.ResponseWriter, r *wire.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := new(wire.Msg)
	m.SetReply(r)
	switch {
	case s.down:
		m.Rcode = wire.RcodeServerFailure
	case r.IsTsig() == nil || w.TsigStatus() != nil:
		m.Rcode = wire.RcodeNotAuth
	case r.Opcode != wire.OpcodeUpdate || r.Question[0].Name != "example.org.":
		m.Rcode = wire.RcodeNotZone
	default:
		for _, rr := range r.Ns {
			h := rr.Header()
			same := func(x wire.RR) bool { return x.Header().Name == h.Name && x.Header().Rrtype == h.Rrtype }
			switch h.Class {
			case wire.ClassANY:
				s.rrs = slices.DeleteFunc(s.rrs, same)
			case wire.ClassNONE:
				s.rrs = slices.DeleteFunc(s.rrs, func(x wire.RR) bool {
					return same(x) && strings.TrimPrefix(x.String(), x.Header().String()) == strings.TrimPrefix(rr.String(), h.String())
				})
			default:
				s.rrs = append(s.rrs, rr)
			}
		}
		if s.lose {
			s.lose = false
			m.Rcode = wire.RcodeServerFailure
		}
	}
	if r.IsTsig() != nil && w.TsigStatus() == nil {
		m.SetTsig("ramus.", wire.HmacSHA256, 300, int64(r.IsTsig().TimeSigned))
	}
	_ = w.WriteMsg(m)
}
