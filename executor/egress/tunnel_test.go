package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
)

// connect opens a tunnel to address through the proxy at door, and returns the status of the answer.
func connect(t *testing.T, door, address string) (*net.TCPConn, *bufio.Reader, int) {
	t.Helper()
	c, err := net.Dial("tcp", door)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", address)
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn), r, resp.StatusCode
}

// listen answers each connection by serve until the test ends.
func listen(t *testing.T, serve func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				serve(c.(*net.TCPConn))
			})
		}
	})
	return l.Addr().String()
}

// TestTunnel sends bytes in both directions, and ends the directions one after the other.
func TestTunnel(t *testing.T) {
	heard := make(chan string, 1)
	service := listen(t, func(c *net.TCPConn) {
		text, _ := io.ReadAll(c) // until the client has ended its direction
		heard <- string(text)
		_, _ = io.WriteString(c, "answer")
	})
	p := &Proxy{Allow: []string{service}, Tell: func(record.Event) {}}
	proxy := httptest.NewServer(p)
	defer proxy.Close()

	c, r, status := connect(t, proxy.Listener.Addr().String(), service)
	if status != http.StatusOK {
		t.Fatal(status)
	}
	long := strings.Repeat("x", 100<<10) + "end"
	if _, err := io.WriteString(c, long); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := <-heard; got != long {
		t.Errorf("the service heard %d bytes of %d", len(got), len(long))
	}
	if answer, err := io.ReadAll(r); err != nil || string(answer) != "answer" {
		t.Errorf("%q, %v", answer, err)
	}
}

// TestTunnelOfGoneService ends a tunnel whose service closes the connection.
func TestTunnelOfGoneService(t *testing.T) {
	service := listen(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, "bye") })
	proxy := httptest.NewServer(&Proxy{Allow: []string{service}, Tell: func(record.Event) {}})
	defer proxy.Close()

	_, r, status := connect(t, proxy.Listener.Addr().String(), service)
	if text, err := io.ReadAll(r); status != http.StatusOK || err != nil || string(text) != "bye" {
		t.Errorf("%d, %q, %v", status, text, err)
	}
}

// TestTunnelsAtOnce refuses a tunnel beyond the bound, and accepts one when another has ended.
func TestTunnelsAtOnce(t *testing.T) {
	service := listen(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	p := &Proxy{Allow: []string{service}, Tell: func(record.Event) {}}
	proxy := httptest.NewServer(p)
	defer proxy.Close()
	door := proxy.Listener.Addr().String()

	var tunnels []*net.TCPConn
	for i := range egressTunnel {
		c, _, status := connect(t, door, service)
		if status != http.StatusOK {
			t.Fatalf("tunnel %d: %d", i, status)
		}
		tunnels = append(tunnels, c)
	}
	if _, _, status := connect(t, door, service); status != http.StatusServiceUnavailable {
		t.Errorf("one tunnel too many: %d", status)
	}

	for _, c := range tunnels {
		c.Close()
	}
	open := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.open
	}
	for deadline := time.Now().Add(20 * time.Second); open() > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if n := open(); n != 0 {
		t.Errorf("%d tunnels are open", n)
	}
	if _, _, status := connect(t, door, service); status != http.StatusOK {
		t.Errorf("a tunnel after all have ended: %d", status)
	}
}

// TestNotes reports each host once for each run and verdict, and bounds how many.
func TestNotes(t *testing.T) {
	var events []record.Event
	run := "one"
	p := &Proxy{Tell: func(e record.Event) { events = append(events, e) }, Run: func() string { return run }}
	count := func(want int, when string) {
		t.Helper()
		if len(events) != want {
			t.Errorf("%s: %d events, want %d", when, len(events), want)
		}
	}

	p.note("a.example.org", "443", "allowed")
	p.note("a.example.org", "443", "allowed")
	count(1, "the same host twice")
	if e := events[0]; e.Type != record.EventEgress || e.Message != "a.example.org:443" || e.Reason != "allowed" {
		t.Errorf("%+v", e)
	}
	p.note("a.example.org", "443", record.EgressRefused)
	count(2, "another verdict")
	p.note("a.example.org", "80", "allowed")
	count(3, "another port")
	run = "two"
	p.note("a.example.org", "443", "allowed")
	p.note("a.example.org", "443", "allowed")
	count(4, "another run")

	for i := range 2 * egressNotes {
		p.note(fmt.Sprintf("h%d.example.org", i), "443", "allowed")
	}
	count(3+egressNotes, "many hosts")
}

// TestForward passes on requests and answers unchanged, apart from the headers of one connection.
func TestForward(t *testing.T) {
	seen := make(chan *http.Request, 1)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Clone(context.Background())
		w.Header().Set("X-Answer", "yes")
		w.Header().Set("Keep-Alive", "timeout=5")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "text")
	}))
	defer site.Close()
	service := site.Listener.Addr().String()
	p := &Proxy{Allow: []string{service}, Tell: func(record.Event) {}}

	r := httptest.NewRequest("GET", "http://"+service+"/path?q=1", nil)
	for name, value := range map[string]string{"X-Mine": "1", "X-Hop": "1", "Connection": "X-Hop, close",
		"Proxy-Authorization": "secret", "Te": "trailers"} {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	got := <-seen
	if got.RequestURI != "/path?q=1" || got.Header.Get("X-Mine") != "1" {
		t.Errorf("%s, %v", got.RequestURI, got.Header)
	}
	for _, name := range []string{"X-Hop", "Proxy-Authorization", "Te", "Accept-Encoding"} {
		if value := got.Header.Get(name); value != "" {
			t.Errorf("the service got %s: %s", name, value)
		}
	}
	if !got.Close {
		t.Error("the connection to the service stays open")
	}
	if w.Code != http.StatusTeapot || w.Body.String() != "text" || w.Header().Get("X-Answer") != "yes" ||
		w.Header().Get("Keep-Alive") != "" {
		t.Errorf("%d, %q, %v", w.Code, w.Body, w.Header())
	}
}

// TestHosts distinguishes hosts from other text.
func TestHosts(t *testing.T) {
	long := strings.Repeat("a", 253)
	for target, want := range map[string]string{
		"Example.Org":      "example.org:80",
		"example.org.:443": "example.org:443",
		long:               long + ":80",
		long + "a":         "",
		"a b":              "",
		"":                 "",
		".":                "",
		"a@b":              "",
		"[::1]:8080":       "::1:8080",
	} {
		r := &http.Request{Method: http.MethodConnect, Host: target, URL: new(url.URL)}
		host, port, err := splitHostPort(r)
		if got := host + ":" + port; err == nil && got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v", target, got, err)
		}
	}
	if !matches([]string{"a.example.org:99", "a.example.org"}, "a.example.org", "80") {
		t.Error("an entry with another port hides the next one")
	}
	for entry, host := range map[string]string{"*.example.org": ".example.org", "example.org": "*.example.org", "*.": "."} {
		if matches([]string{entry}, host, "80") {
			t.Errorf("%s means %s", entry, host)
		}
	}
}

// TestDialRefuses dials nothing for a request that has ended, and no address without a port.
func TestDialRefuses(t *testing.T) {
	p := &Proxy{Allow: []string{"a.example.org"}, Tell: func(record.Event) {}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.dial(ctx, "tcp", "a.example.org:80"); !errors.Is(err, context.Canceled) {
		t.Errorf("a name is looked up although the request has ended: %v", err)
	}
	if _, err := p.dial(t.Context(), "tcp", "no port"); err == nil {
		t.Error("an address without a port is dialled")
	}
}
