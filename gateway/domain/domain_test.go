package domain

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
)

func parse(t testing.TB, text string) *Domain {
	t.Helper()
	d, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func caller(t testing.TB, id string) record.Caller {
	t.Helper()
	c, err := record.RunCaller(id)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"ramus.example.org":              "https://app.ramus.example.org",
		"Ramus.EXAMPLE.org":              "https://app.ramus.example.org",
		"https://ramus.example.org/":     "https://app.ramus.example.org",
		"https://ramus.example.org:443":  "https://app.ramus.example.org",
		"https://ramus.example.org:8443": "https://app.ramus.example.org:8443",
		"ramus.example.org:8443":         "https://app.ramus.example.org:8443",
		"xn--bcher-kva.example":          "https://app.xn--bcher-kva.example",
		"http://localhost:8080":          "http://app.localhost:8080",
		"http://localhost:80":            "http://app.localhost",
		"http://a.localhost":             "http://app.a.localhost",
		"https://localhost:8443":         "https://app.localhost:8443",
		"ZOO.example.org":                "https://app.zoo.example.org",
		strings.Repeat("a", 63) + ".b":   "https://app." + strings.Repeat("a", 63) + ".b",
	} {
		if got := parse(t, text).Pages(); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	for text, says := range map[string]string{
		"":                             "no name",
		"https://":                     "no name",
		"ftp://example.org":            "scheme",
		"http://example.org":           "https alone",
		"http://notlocalhost":          "https alone",
		"*.example.org":                "wildcard",
		"https://*.example.org":        "wildcard",
		"192.0.2.1":                    "an address",
		"[2001:db8::1]":                "an address",
		"https://[::1]:8080":           "an address",
		"https://u@example.org":        "more than",
		"example.org/x":                "more than",
		"https://example.org?x":        "more than",
		"https://example.org#x":        "more than",
		"example.org.":                 "1 to 63",
		"example..org":                 "1 to 63",
		".example.org":                 "1 to 63",
		"bücher.example":               "xn--",
		"exam_ple.org":                 "other than letters",
		"-a.example.org":               "hyphen",
		"a-.example.org":               "hyphen",
		"example":                      "no dot",
		"https://example.org:0":        "port",
		"https://example.org:65536":    "port",
		"https://example.org:0443":     "port",
		strings.Repeat("a.", 100):      "bytes",
		strings.Repeat("a", 64) + ".b": "1 to 63",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

func TestFind(t *testing.T) {
	d := parse(t, "https://ramus.example.org:8443")
	for host, want := range map[string]Part{
		"app.ramus.example.org:8443":                               Pages,
		"app.ramus.example.org":                                    Pages, // a proxy may leave the port out
		"app.ramus.example.org:":                                   Pages,
		"APP.Ramus.Example.ORG:8443":                               Pages,
		"app.ramus.example.org.:8443":                              Pages,
		"api.ramus.example.org:8443":                               API,
		"content.ramus.example.org:8443":                           Content,
		"ws-run-otter.ramus.example.org:8443":                      Workspace,
		"WS-Run-Otter.ramus.example.org:8443":                      Workspace,
		"ws-conv-a-b.ramus.example.org:8443":                       Workspace,
		"ws-run-otter--8080.ramus.example.org:8443":                Port,
		"ws-run-otter--65535.ramus.example.org":                    Port,
		"ws-run-otter--0.ramus.example.org":                        Nothing,
		"ws-run-otter--65536.ramus.example.org":                    Nothing,
		"ws-run-otter--08080.ramus.example.org":                    Nothing,
		"ws-run-otter--x.ramus.example.org":                        Nothing,
		"ws-run-otter--.ramus.example.org":                         Nothing,
		"ws-run-otter--1--2.ramus.example.org":                     Nothing,
		"ws-otter.ramus.example.org":                               Nothing,
		"ws-run-.ramus.example.org":                                Nothing,
		"ws-.ramus.example.org":                                    Nothing,
		"ws-shell-otter.ramus.example.org":                         Nothing,
		"wsx-otter--8080.ramus.example.org":                        Nothing,
		"x.ws-run-otter.ramus.example.org":                         Nothing,
		"x.app.ramus.example.org":                                  Nothing,
		"www.ramus.example.org":                                    Nothing,
		"ramus.example.org":                                        Nothing,
		"ramus.example.org:8443":                                   Nothing,
		".ramus.example.org":                                       Nothing,
		"app.ramus.example.org:443":                                Nothing,
		"app.ramus.example.org:08443":                              Nothing,
		"app.ramus.example.org:8443:8443":                          Nothing,
		"app.ramus.example.org..":                                  Nothing,
		"app.ramus.example.org.evil.example":                       Nothing,
		"evil.example":                                             Nothing,
		"appXramus.example.org":                                    Nothing,
		"app.ramus.example.org@evil.example":                       Nothing,
		"evil.example@app.ramus.example.org":                       Nothing,
		"app.ramus.exam\u212ale.org":                               Nothing,
		"127.0.0.1:8443":                                           Nothing,
		"[::1]:8443":                                               Nothing,
		"::1":                                                      Nothing,
		"[app.ramus.example.org]:8443":                             Nothing,
		"":                                                         Nothing,
		":8443":                                                    Nothing,
		"app.ramus.example.org, evil.example":                      Nothing,
		strings.Repeat("a", 300) + ".ramus.example.org":            Nothing,
		"ws-run-" + strings.Repeat("a", 57) + ".ramus.example.org": Nothing, // longer than a label
	} {
		if got := d.Find(host); got.Part != want {
			t.Errorf("%q: %+v, want %d", host, got, want)
		}
	}
	if p := d.Find("WS-conv-a-b.ramus.example.org"); p.Caller.String() != "conv:a-b" {
		t.Errorf("%+v", p)
	}
	d.NoWorkspaces = true
	for _, host := range []string{"ws-run-otter.ramus.example.org", "ws-run-otter--8080.ramus.example.org"} {
		if p := d.Find(host); p != (Place{}) {
			t.Errorf("without workspaces: %q is %+v", host, p)
		}
	}
	if got := d.Workspace(caller(t, "otter")); got != "" {
		t.Errorf("without workspaces: %q", got)
	}
}

// TestLabels checks that each caller and port has a host of its own, which is found again.
func TestLabels(t *testing.T) {
	d := parse(t, "https://ramus.example.org")
	seen := map[string]bool{}
	for _, id := range []string{"a", "fancy-mallard", strings.Repeat("a", 56), strings.Repeat("a", 57),
		strings.Repeat("a", 80),
		strings.Repeat("a", 79) + "b", strings.Repeat("a-b", 26)} {
		c := caller(t, id)
		if at := d.Workspace(c); at != "" {
			u, err := url.Parse(at)
			if err != nil {
				t.Fatal(err)
			}
			if p := d.Find(u.Host); p.Part != Workspace || p.Caller != c || seen[at] {
				t.Errorf("%s: %q is %+v", id, at, p)
			}
			seen[at] = true
		} else if len("ws-"+c.Slug()) <= 63 {
			t.Errorf("%s has no host", id)
		}
		for _, port := range []int{1, 5173, 65535} {
			label := d.PortLabel(c, port)
			u, err := url.Parse(d.PortURL(label))
			if err != nil || len(label) > 63 || seen[label] {
				t.Fatalf("%s %d: %q, %v", id, port, label, err)
			}
			if p := d.Find(u.Host); p.Part != Port || p.Label != label {
				t.Errorf("%s %d: %q is %+v", id, port, label, p)
			}
			seen[label] = true
		}
	}
}

// TestLongest finds the longest host of the longest domain, with a dot at its end and without one.
func TestLongest(t *testing.T) {
	name := strings.Repeat(strings.Repeat("a", 62)+".", 3)[:maxOwn]
	name = name[:maxOwn-1] + "a"
	d := parse(t, name)
	host := "ws-run-" + strings.Repeat("b", 56) + "." + name
	if len(host) != 253 {
		t.Fatalf("the host has %d bytes", len(host))
	}
	for _, host := range []string{host, host + ".", host + ".:443"} {
		if p := d.Find(host); p.Part != Workspace || p.Caller != caller(t, strings.Repeat("b", 56)) {
			t.Errorf("%q: %+v", host, p)
		}
	}
	if _, err := Parse(name + "a"); err == nil {
		t.Error("a domain has no room for labels")
	}
}

// FuzzFind checks that a host has one canonical form, and that only hosts of the domain have a place.
func FuzzFind(f *testing.F) {
	d := parse(f, "https://ramus.example.org:8443")
	for _, seed := range []string{"app.ramus.example.org", "API.ramus.example.org.:8443",
		"ws-run-a--80.ramus.example.org",
		"wsx-" + strings.Repeat("a", 32) + "--80.ramus.example.org", "[::1]:80", "a:b:c", "ws-.ramus.example.org",
		"\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, host string) {
		p := d.Find(host)
		if p.Part == Nothing {
			if p != (Place{}) {
				t.Errorf("%q: %+v", host, p)
			}
			return
		}
		own := d.host(p.Label)
		if again := d.Find(own); again != p {
			t.Errorf("%q is %+v, and %q is %+v", host, p, own, again)
		}
		if !strings.EqualFold(strings.TrimSuffix(strings.Split(host, ":")[0], "."), p.Label+".ramus.example.org") {
			t.Errorf("%q has the place %+v", host, p)
		}
		if u, err := url.Parse(d.PortURL(p.Label)); err != nil || u.Host != own {
			t.Errorf("%q: %v, %v", own, u, err)
		}
	})
}

func TestCheckACME(t *testing.T) {
	d := parse(t, "ramus.example.org")
	if err := d.CheckACME([]string{"APP.ramus.example.org", "api.ramus.example.org", "content.ramus.example.org",
		"www.example.org"}); err != nil {
		t.Error(err)
	}
	if err := d.CheckACME([]string{"app.ramus.example.org"}); err == nil ||
		!strings.Contains(err.Error(), "api.ramus.example.org") {
		t.Error(err)
	}
}

// TestOnlyOwn leads requests without TLS to the same host, and to no other.
func TestOnlyOwn(t *testing.T) {
	d := parse(t, "https://ramus.example.org:8443")
	lead := d.OnlyOwn(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://"+r.Host+":"+d.Port()+"/", http.StatusPermanentRedirect)
	}))
	for host, want := range map[string]string{
		"app.ramus.example.org":             "https://app.ramus.example.org:8443/",
		"WS-run-a.Ramus.example.org.:80":    "https://ws-run-a.ramus.example.org:8443/",
		"ws-run-a--80.ramus.example.org:80": "https://ws-run-a--80.ramus.example.org:8443/",
		"evil.example":                      "", "ramus.example.org": "", "www.ramus.example.org": "", "127.0.0.1": "",
		"[::1]:80": "",
	} {
		r := httptest.NewRequest("GET", "http://host/", nil)
		r.Host = host
		r.Header.Set("X-Forwarded-Host", "app.ramus.example.org")
		w := httptest.NewRecorder()
		lead.ServeHTTP(w, r)
		if got := w.Header().Get("Location"); got != want || want == "" && w.Code != http.StatusNotFound {
			t.Errorf("%q: %d, %q, want %q", host, w.Code, got, want)
		}
	}
}
