package egress

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
)

// TestEgressToPrivateAddresses refuses an allowed name whose address is not public, in
// every notation of the address.
func TestEgressToPrivateAddresses(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		io.WriteString(w, "reached")
	}))
	defer site.Close()
	_, port, err := net.SplitHostPort(site.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	var leads netip.Addr
	e := &Proxy{
		Allow:   []string{"evil.example.org:" + port, "inside.example.org:" + port},
		Private: []string{"inside.example.org:" + port},
		Tell:    func(record.Event) {},
		LookUp:  func(context.Context, string, string) ([]netip.Addr, error) { return []netip.Addr{leads}, nil },
	}
	proxy := httptest.NewServer(e)
	defer proxy.Close()
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(at), DisableKeepAlives: true}}
	forward := func(host string) (int, string) {
		resp, err := client.Get("http://" + host + ":" + port + "/")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	tunnel := func(host string) (int, string) {
		c, err := net.Dial("tcp", at.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "CONNECT %s:%s HTTP/1.1\r\nHost: %[1]s:%[2]s\r\n\r\n", host, port)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == 200 {
			return 200, ""
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	for _, address := range []string{"127.0.0.1", "10.0.0.1", "100.64.0.1", "169.254.169.254", "198.18.0.1",
		"::ffff:127.0.0.1",
		"64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::a00:1", "2002:a00:1::1", "2001::1", "fd00::1", "::1"} {
		leads = netip.MustParseAddr(address)
		for way, try := range map[string]func(string) (int, string){"GET": forward, "CONNECT": tunnel} {
			if status, body := try("evil.example.org"); status != 502 || !strings.Contains(body, "not public") ||
				!strings.Contains(body, "private: true") {
				t.Errorf("%s to %s: %d %s", way, address, status, body)
			}
		}
	}
	leads = netip.MustParseAddr("127.0.0.1")
	if status, body := forward("inside.example.org"); status != 200 || body != "reached" {
		t.Errorf("a host that may be private: %d %s", status, body)
	}
	if status, _ := tunnel("inside.example.org"); status != 200 {
		t.Errorf("a tunnel to a host that may be private: %d", status)
	}
	e.Allow = append(e.Allow, "127.0.0.1:"+port)
	if status, body := forward("127.0.0.1"); status != 200 || body != "reached" {
		t.Errorf("an entry that is an address: %d %s", status, body)
	}
	leads = netip.Addr{}
	if status, body := forward("evil.example.org"); status != 502 {
		t.Errorf("an address that is none: %d %s", status, body)
	}
}

func TestEgressEntries(t *testing.T) {
	for _, x := range []struct {
		entry, host, port string
		want              bool
	}{
		{"a.example.org", "a.example.org", "443", true}, {"a.example.org", "a.example.org", "8443", false},
		{"a.example.org:8443", "a.example.org", "8443", true},
		{"*.example.org", "b.example.org", "80", true}, {"*.example.org", "example.org", "80", false},
		{"*.example.org:99", "b.example.org", "99", true},
		{"::1", "::1", "80", true}, {"[::1]:8080", "::1", "8080", true}, {"[::1]:8080", "::1", "80", false},
		{"A.example.org", "a.example.org", "80", true},
	} {
		if got := matches([]string{x.entry}, x.host, x.port); got != x.want {
			t.Errorf("%s for %s port %s: %t", x.entry, x.host, x.port, got)
		}
	}
}
