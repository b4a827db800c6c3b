package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/ramus-dev/ramus/tasks/browser"
)

// visitors notes who came.
type visitors struct {
	mu   sync.Mutex // guards seen
	seen []string
}

func (v *visitors) add(who string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen = append(v.seen, who)
}

func (v *visitors) list() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]string(nil), v.seen...)
}

// listenBoth listens at an address by TCP and UDP. Of port 0 it tries some: what is
// free for the one may be somebody's for the other.
func listenBoth(t *testing.T, address string) (net.Listener, net.PacketConn) {
	t.Helper()
	for n := 0; ; n++ {
		tcp, err := net.Listen("tcp", address)
		if err != nil {
			t.Skipf("cannot run here: %v", err)
		}
		udp, err := net.ListenPacket("udp", tcp.Addr().String())
		if err == nil {
			return tcp, udp
		}
		tcp.Close()
		if n == 20 {
			t.Skipf("cannot run here: %v", err)
		}
	}
}

// outside serves at an address and notes every connection, by TCP and UDP.
func outside(t *testing.T, address string) (host string, v *visitors) {
	t.Helper()
	v = new(visitors)
	tcp, udp := listenBoth(t, address)
	s := &httptest.Server{Listener: tcp,
		Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Access-Control-Allow-Origin", "*")
		}), ConnState: func(c net.Conn, state http.ConnState) {
			if state == http.StateNew {
				v.add("tcp from " + c.RemoteAddr().String())
			}
		}}}
	s.Start()
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 1500)
		for {
			_, from, err := udp.ReadFrom(b)
			if err != nil {
				return
			}
			v.add("udp from " + from.String())
		}
	}()
	t.Cleanup(func() {
		udp.Close()
		<-done
		s.CloseClientConnections()
		s.Close()
	})
	return tcp.Addr().String(), v
}

// ownAddress is an address of this machine that is not loopback: what is sent there
// leaves the browser's walls, and no more.
func ownAddress(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Skipf("cannot run here: %v", err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	t.Skip("cannot run here: no address but loopback")
	return ""
}

// escape tries every way out that a page has, to HOST.
const escape = `<link rel=dns-prefetch href="//HOST"><link rel=preconnect href="http://HOST"><link rel=prefetch href="http://HOST/prefetch">
<img src="http://HOST/img"><iframe src="http://HOST/frame"></iframe><script src="http://HOST/script"></script>
<a id=ping href="#x" ping="http://HOST/ping">x</a><video src="http://HOST/video"></video>
<script>
const tries=[()=>fetch('http://HOST/fetch'),()=>fetch('http://HOST/nocors',{mode:'no-cors'}),()=>fetch('/to?http://HOST/redirect'),
()=>navigator.sendBeacon('http://HOST/beacon','x'),()=>new WebSocket('ws://HOST/ws'),()=>new EventSource('http://HOST/events'),
()=>new WebTransport('https://HOST/wt'),()=>document.getElementById('ping').click(),
()=>new Worker(URL.createObjectURL(new Blob(["fetch('http://HOST/worker');try{importScripts('http://HOST/import')}catch(e){}"]))),
()=>navigator.serviceWorker.register('/sw.js'),
()=>{const p=new RTCPeerConnection({iceServers:[{urls:['stun:HOST']},{urls:['turn:HOST?transport=tcp'],username:'a',credential:'b'}]});
p.createDataChannel('x');p.createOffer().then(o=>p.setLocalDescription(o))}];
for(const t of tries){try{const r=t();if(r&&r.catch)r.catch(()=>{})}catch(e){}}
window.open('http://HOST/popup');
</script><button onclick="location='http://HOST/navigate'">go</button>`

func TestNoWayOut(t *testing.T) {
	t.Parallel()
	own := ownAddress(t)
	for name, address := range map[string]string{
		"other machine":  own + ":0",
		"other loopback": "127.0.0.2:0",
		"door":           "127.0.0.1:" + doorPort,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, v := outside(t, address)
			s := site(t, map[string]any{
				"/": strings.ReplaceAll(escape, "HOST", host),
				"/to": func(w http.ResponseWriter, r *http.Request) {
					http.Redirect(w, r, r.URL.RawQuery, http.StatusFound)
				},
				"/sw.js": func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "text/javascript")
					io.WriteString(w, "fetch('http://"+host+"/sw').catch(()=>{})")
				},
			})
			o := look(t, browser.Job{Spec: spec(s, "/", browser.Step{Do: "click", Target: "button"})})
			o.want(t, browser.Fail, "refused")
			if seen := v.list(); len(seen) > 0 {
				t.Errorf("the page reached %s: %v", host, seen)
			}
			requests := 0
			for _, e := range o.Views[0].Network {
				if strings.HasPrefix(e.URL, "http://"+host) {
					requests++
					if !strings.HasPrefix(e.Failure, "refused") {
						t.Errorf("%+v", e)
					}
				}
			}
			if requests < 5 {
				t.Errorf("the page tried only %d times: %+v", requests, o.Views[0].Network)
			}
		})
	}
	t.Run("names of the door", func(t *testing.T) {
		t.Parallel()
		page := ""
		targets := []string{"[::ffff:127.0.0.1]", "0.0.0.0", "localhost", "x.localhost", "2130706433", "[::1]"}
		for _, target := range targets {
			page += `<img src="http://` + target + ":" + doorPort + `/">`
		}
		o := look(t, browser.Job{Spec: spec(site(t, map[string]any{"/": page}), "/")})
		o.want(t, browser.Fail, "refused")
		for _, e := range o.Views[0].Network {
			if !strings.HasPrefix(e.Failure, "refused") {
				t.Errorf("%+v", e)
			}
		}
		if n := len(o.Views[0].Network); n != len(targets) {
			t.Errorf("%d of %d were tried", n, len(targets))
		}
	})
}

// TestProxy: all but local addresses go to the proxy by name, local ones do not; a proxy at the
// door's own port serves, while the door stays shut to pages.
func TestProxy(t *testing.T) {
	t.Parallel()
	asked := new(visitors)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httptest.Server{Listener: listener,
		Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.add(r.Method + " " + r.RequestURI)
			if r.Method == http.MethodConnect {
				http.Error(w, "no", http.StatusForbidden)
				return
			}
			w.Header().Set("Access-Control-Allow-Origin", "*")
			io.WriteString(w, "hello from afar")
		})}}
	proxy.Start()
	t.Cleanup(proxy.Close)
	s := site(t, map[string]any{"/": `<p id=x></p><script>fetch('http://far.example/a').then(r=>r.text()).then(t=>{document.getElementById('x').textContent=t})
fetch('https://far.example/b').catch(()=>{});fetch('/c').catch(()=>{})</script>`})
	sp := spec(s, "/", browser.Step{Do: "expect_text", Target: "#x", Value: "hello from afar"})
	sp.Allow.Requests = []string{"^https://far.example/"}
	o := look(t, browser.Job{Spec: sp, Proxy: proxy.URL})
	o.want(t, browser.Pass)
	list := strings.Join(asked.list(), ", ")
	if !strings.Contains(list, "GET http://far.example/a") || !strings.Contains(list, "CONNECT far.example:443") ||
		strings.Contains(list, "127.0.0.1") {
		t.Errorf("the proxy was asked for %s", list)
	}
	u, _ := url.Parse("http://127.0.0.1:" + doorPort)
	rules := strings.Join(networkArgs(u), " ")
	if alias, door := strings.Index(rules, "MAP "+egressAlias+" 127.0.0.1"),
		strings.Index(rules, "MAP *:"+doorPort+" ~NOTFOUND"); alias < 0 || door < alias {
		t.Errorf("the proxy's name is not resolved before the door is shut: %s", rules)
	}
}

// TestState: a session reaches the page; of the evidence only what the browser sent itself
// has its cookie (and is redacted later), and nothing has what was stored.
func TestState(t *testing.T) {
	t.Parallel()
	s := site(t, map[string]any{"/": func(w http.ResponseWriter, r *http.Request) {
		who := "nobody"
		if c, err := r.Cookie("session"); err == nil && c.Value == "cookie-secret-value" {
			who = "ada"
		}
		io.WriteString(w, `<!doctype html><p id=who>`+who+`</p><p id=stored></p><script>
document.getElementById('stored').textContent=(localStorage.getItem('token')||'').length==20?'stored':'none'</script>`)
	}})
	state, _ := json.Marshal(map[string]any{
		"cookies": []any{map[string]any{"name": "session", "value": "cookie-secret-value", "domain": "127.0.0.1",
			"path": "/", "expires": -1,
			"httpOnly": true, "secure": false, "sameSite": "Lax"}},
		"origins": []any{map[string]any{"origin": s.URL,
			"localStorage": []any{map[string]any{"name": "token", "value": "storage-secret-value"}}}},
	})
	o := look(t, browser.Job{State: state, Spec: spec(s, "/",
		browser.Step{Do: "expect_text", Target: "#who", Value: "ada"},
		browser.Step{Do: "expect_text", Target: "#stored", Value: "stored"})})
	o.want(t, browser.Pass)
	search := func(name string, text []byte) {
		if bytes.Contains(text, []byte("storage-secret-value")) {
			t.Errorf("%s has what was stored", name)
		}
		if bytes.Contains(text, []byte("cookie-secret-value")) && !strings.HasSuffix(name, "network.har") &&
			!strings.HasSuffix(name, ".network") {
			t.Errorf("%s has the cookie", name)
		}
	}
	for name, text := range o.files {
		search(name, text)
		if !strings.HasSuffix(name, ".zip") {
			continue
		}
		z, err := zip.NewReader(bytes.NewReader(text), int64(len(text)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range z.File {
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			inner, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			r.Close()
			search(name+"/"+f.Name, inner)
		}
	}
	if strings.Contains(o.said, "secret-value") {
		t.Error("stderr has a secret")
	}
}
