package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/preview"
	"github.com/ramus-dev/ramus/gitd"
)

// application returns a hostile application, like one in a container.
func application(t *testing.T) *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		for _, line := range []string{"a=1; Domain=example.org; Path=/", "ramus-preview=mine; Path=/",
			"b=2; domain=.preview.example.org; HttpOnly"} {
			h.Add("Set-Cookie", line)
		}
		h.Set("Strict-Transport-Security", "max-age=1; includeSubDomains")
		h.Set("Clear-Site-Data", `"*"`)
		h.Set("X-Accel-Redirect", "/etc/passwd")
		h.Set("Cache-Control", "public, s-maxage=9, max-age=5, immutable")
		h.Set("Content-Security-Policy", "img-src 'self'")
		h.Set("WWW-Authenticate", `Basic realm="the password of ramus"`)
		h.Set("Service-Worker-Allowed", "/")
		body, _ := io.ReadAll(r.Body)
		_ = json.NewEncoder(w).Encode(map[string]any{"method": r.Method, "uri": r.RequestURI, "host": r.Host,
			"header": r.Header, "body": string(body)})
	})
	mux.HandleFunc("/to/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", strings.TrimPrefix(r.URL.RawQuery, "to="))
		w.WriteHeader(http.StatusFound)
	})
	mux.HandleFunc("/early", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Accel-Redirect", "/etc/passwd")
		w.Header().Add("Set-Cookie", "ramus-preview=mine; Path=/")
		w.WriteHeader(http.StatusEarlyHints)
		fmt.Fprint(w, "final")
	})
	mux.HandleFunc("/duplex", func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if err := rc.EnableFullDuplex(); err != nil {
			return
		}
		for b := make([]byte, 100); ; {
			n, err := r.Body.Read(b)
			_, _ = w.Write(b[:n])
			_ = rc.Flush()
			if err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: first\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/ws", func(w http.ResponseWriter, r *http.Request) {
		// Development servers accept only their own pages too.
		u := websocket.Upgrader{CheckOrigin: func(r *http.Request) bool { return r.Header.Get("Origin") == "http://"+r.Host }}
		conn, err := u.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		for {
			kind, b, err := conn.ReadMessage()
			if err != nil {
				return
			}
			if err := conn.WriteMessage(kind, append([]byte("echo "), b...)); err != nil {
				return
			}
		}
	})
	// The mux would clean the path, so POST requests go to its root.
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" && r.URL.Path != "/duplex" {
			r.URL.Path = "/"
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(app.Close)
	return app
}

// viewer is a browser that looks at a preview. It connects to the server for every host and keeps cookies.
type viewer struct {
	*http.Client
	t      *testing.T
	r      *rooms
	app    *httptest.Server
	caller record.Caller
}

func openViewer(t *testing.T, origin string, change ...func(*gateway.Server)) *viewer {
	t.Helper()
	b := &viewer{t: t}
	b.r = open(t, false, func(s *gateway.Server) {
		s.URL = "http://ramus.example.org"
		if origin != "" {
			o, err := preview.ParseOrigin(origin, s.URL)
			if err != nil {
				t.Fatal(err)
			}
			s.Preview = o
		}
		for _, f := range change {
			f(s)
		}
	})
	b.r.repo(t, "app")
	var err error
	if b.caller, err = record.RunCaller("subject"); err != nil {
		t.Fatal(err)
	}
	// The run fails, because there are no containers. The caller exists from then on.
	run, err := b.r.local.Submit(t.Context(),
		record.Request{Caller: b.caller, Repo: "app", Command: &record.Command{Shell: "true"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.r.Executor.Settled(t.Context(), run.Caller, run.ID); err != nil {
		t.Fatal(err)
	}
	b.app = application(t)
	gateway.DialInside(b.r.Server, func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != "run-subject:5173" {
			return nil, fmt.Errorf("%w: %w", executor.ErrNoPort, errors.New(address))
		}
		return new(net.Dialer).DialContext(ctx, network, b.app.Listener.Addr().String())
	})
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: b.dial}
	t.Cleanup(transport.CloseIdleConnections)
	b.Client = &http.Client{Jar: jar, Transport: transport}
	return b
}

func (b *viewer) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, b.r.web.Listener.Addr().String())
}

// link returns the signed link of a port.
func (b *viewer) link(port int) string {
	return b.r.URL + b.r.Links.Sign(fmt.Sprintf("/preview/%s/%d/", b.caller, port))
}

// seen is a request as the application received it.
type seen struct {
	Method, URI, Host, Body string
	Header                  http.Header
}

func (b *viewer) do(method, address string, header http.Header, body string) (*http.Response, seen) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	for k, v := range header {
		r.Header[k] = v
	}
	resp, err := b.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	var s seen
	if resp.StatusCode == 200 {
		if err := json.Unmarshal(text, &s); err != nil {
			b.t.Fatalf("%s %s: %v: %s", method, address, err, text)
		}
	} else {
		s.Body = string(text)
	}
	return resp, s
}

const ownOrigin = "http://p5173-run-subject.preview.example.org"

func TestPreviewOwnOrigin(t *testing.T) {
	t.Parallel()
	b := openViewer(t, "http://{label}.preview.example.org")
	if resp, s := b.do("GET", ownOrigin+"/", nil, ""); resp.StatusCode != 403 || !strings.Contains(s.Body, "by its link alone") {
		t.Errorf("without a link: %d %s", resp.StatusCode, s.Body)
	}
	resp, s := b.do("GET", b.link(5173), nil, "")
	if resp.StatusCode != 200 || resp.Request.URL.String() != ownOrigin+"/" {
		t.Fatalf("the link leads to %s: %d %s", resp.Request.URL, resp.StatusCode, s.Body)
	}
	if s.Host != "localhost:5173" || s.Header.Get("Cookie") != "" {
		t.Errorf("the application saw %+v", s)
	}
	// The headers of the application affect only its own host.
	for name, want := range map[string]string{"Strict-Transport-Security": "", "Clear-Site-Data": "",
		"X-Accel-Redirect": "", "X-Accel-Buffering": "no",
		"Cache-Control": "private, max-age=5, immutable", "Content-Security-Policy": "img-src 'self'",
		"X-Robots-Tag":         "noindex, nofollow",
		"Origin-Agent-Cluster": "?1", "Service-Worker-Allowed": "/", "X-Content-Type-Options": ""} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := resp.Header.Values("Set-Cookie"); len(got) != 2 || got[0] != "a=1; Path=/" || got[1] != "b=2; HttpOnly" {
		t.Errorf("cookies: %q", got)
	}
	// Informational answers are dropped.
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		t.Errorf("an answer before the answer: %d %v", code, h)
		return nil
	}}
	r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), "GET", ownOrigin+"/early", nil)
	if err != nil {
		t.Fatal(err)
	}
	early, err := b.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(early.Body)
	if err := errors.Join(err, early.Body.Close()); err != nil || string(text) != "final" ||
		early.Header.Get("X-Accel-Redirect") != "" || len(early.Cookies()) != 0 {
		t.Errorf("%q %v, %v", text, early.Header, err)
	}
	// The request looks to the application like one to a server on the loopback interface.
	token := b.r.token(t, gitd.Grant{Subject: "x", Repo: "*", Scopes: []string{"admin"}})
	resp, s = b.do("POST", ownOrigin+"/a%2Fb//c/../d?x=1;2",
		http.Header{"Origin": {ownOrigin}, "Referer": {ownOrigin + "/page?q"}, "Sec-Fetch-Site": {"same-origin"},
			"Authorization": {"Bearer " + token}, "X-Forwarded-For": {"192.0.2.1"}, "Forwarded": {"for=192.0.2.1"}}, "said")
	want := seen{"POST", "/a%2Fb//c/../d?x=1;2", "localhost:5173", "said", s.Header}
	if resp.StatusCode != 200 || fmt.Sprint(s) != fmt.Sprint(want) {
		t.Errorf("%d %+v", resp.StatusCode, s)
	}
	for name, want := range map[string]string{"Origin": "http://localhost:5173",
		"Referer": "http://localhost:5173/page?q", "Authorization": "", "Cookie": "a=1; b=2",
		"X-Forwarded-For": "", "Forwarded": "", "X-Forwarded-Proto": "http",
		"X-Forwarded-Host": "p5173-run-subject.preview.example.org"} {
		if got := s.Header.Get(name); got != want {
			t.Errorf("%s reaches the application as %q, want %q", name, got, want)
		}
	}
	if _, s = b.do("GET", ownOrigin+"/",
		http.Header{"Authorization": {"Bearer its-own"},
			"Referer": {"http://ramus.example.org/evidence/x?signature=s"}},
		""); s.Header.Get("Authorization") != "Bearer its-own" || s.Header.Get("Referer") != "" {
		t.Errorf("the application saw %+v", s)
	}
	// The host serves nothing of ramus, and no other host serves the application.
	if _, s := b.do("GET", ownOrigin+"/health", nil, ""); s.URI != "/health" {
		t.Errorf("/health: %+v", s)
	}
	if resp, _ := b.do("GET", ownOrigin+"/.ramus/x", nil, ""); resp.StatusCode != 404 {
		t.Errorf("/.ramus/x: %d", resp.StatusCode)
	}
	for _, host := range []string{"p5174-run-subject", "p5173-run-other", "x"} {
		if resp, _ := b.do("GET", "http://"+host+".preview.example.org/", nil, ""); resp.StatusCode != 403 {
			t.Errorf("%s: %d", host, resp.StatusCode)
		}
	}
	if resp, _ := b.do("GET", "http://a."+strings.TrimPrefix(ownOrigin, "http://")+"/", nil, ""); resp.StatusCode != 404 {
		t.Errorf("a host below it: %d", resp.StatusCode)
	}
}

// TestPreviewFromElsewhere checks that pages of other origins cannot use a browser that has access.
func TestPreviewFromElsewhere(t *testing.T) {
	t.Parallel()
	b := openViewer(t, "http://{label}.preview.example.org")
	b.do("GET", b.link(5173), nil, "")
	sibling := "http://p1-run-evil.preview.example.org"
	for _, x := range []struct {
		method                   string
		site, mode, dest, origin string
		status                   int
	}{
		{"GET", "", "", "", "", 200}, // an old browser
		{"GET", "none", "navigate", "document", "", 200},
		{"GET", "cross-site", "navigate", "document", "", 200},
		{"GET", "same-site", "navigate", "document", "", 200},
		{"GET", "same-site", "navigate", "iframe", "", 403},
		{"GET", "same-site", "no-cors", "image", "", 403},
		{"GET", "same-site", "cors", "empty", sibling, 403},
		{"GET", "same-site", "no-cors", "script", "", 403},
		{"POST", "same-site", "navigate", "document", sibling, 403},
		{"POST", "cross-site", "navigate", "document", "null", 403},
		{"POST", "same-origin", "navigate", "document", "null", 200}, // from a page without referrers
		{"POST", "same-origin", "cors", "empty", ownOrigin, 200},
		{"POST", "", "", "", sibling, 403},
		{"POST", "", "", "", "null", 403},
	} {
		h := http.Header{}
		for name, v := range map[string]string{"Sec-Fetch-Site": x.site, "Sec-Fetch-Mode": x.mode,
			"Sec-Fetch-Dest": x.dest, "Origin": x.origin} {
			if v != "" {
				h.Set(name, v)
			}
		}
		if resp, _ := b.do(x.method, ownOrigin+"/", h, ""); resp.StatusCode != x.status {
			t.Errorf("%+v: %d", x, resp.StatusCode)
		}
	}
}

// TestPreviewCode checks that a code is valid once, for its own host and for a minute.
func TestPreviewCode(t *testing.T) {
	t.Parallel()
	now := time.Now()
	b := openViewer(t, "http://{label}.preview.example.org", func(s *gateway.Server) {
		s.Now = func() time.Time { return now }
	})
	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	follow := func() string {
		resp, s := b.do("GET", b.link(5173), nil, "")
		if resp.StatusCode != 303 || resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("Referrer-Policy") != "no-referrer" {
			t.Fatalf("%d %v %s", resp.StatusCode, resp.Header, s.Body)
		}
		return resp.Header.Get("Location")
	}
	jar := b.Jar
	b.Jar = nil
	to := follow()
	if other := strings.Replace(to, "p5173-", "p5174-", 1); true {
		if resp, _ := b.do("GET", other, nil, ""); resp.StatusCode != 403 || resp.Header.Get("Set-Cookie") != "" {
			t.Errorf("at another host: %d", resp.StatusCode)
		}
	}
	if resp, _ := b.do("GET", to, nil, ""); resp.StatusCode != 403 {
		t.Errorf("what was tried elsewhere is still good: %d", resp.StatusCode)
	}
	to = follow()
	resp, _ := b.do("GET", to, nil, "")
	cookie := resp.Header.Get("Set-Cookie")
	if resp.StatusCode != 303 || resp.Header.Get("Location") != "/" ||
		!strings.HasPrefix(cookie, "ramus-preview=run:subject/5173/") ||
		!strings.Contains(cookie, "; HttpOnly; SameSite=Lax") || strings.Contains(cookie, "Domain") {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	if resp, _ := b.do("GET", to, nil, ""); resp.StatusCode != 403 {
		t.Errorf("a second time: %d", resp.StatusCode)
	}
	to = follow()
	now = now.Add(time.Minute)
	if resp, _ := b.do("GET", to, nil, ""); resp.StatusCode != 403 {
		t.Errorf("a minute later: %d", resp.StatusCode)
	}
	// A browser that has access already may open an old link, for example with the back button.
	b.Jar = jar
	to = follow()
	for range 2 {
		if resp, _ := b.do("GET", to, nil, ""); resp.StatusCode != 303 {
			t.Errorf("who is let in: %d", resp.StatusCode)
		}
	}
}

func TestPreviewCookieIsSecure(t *testing.T) {
	t.Parallel()
	b := openViewer(t, "https://{label}.preview.example.org")
	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, _ := b.do("GET", b.link(5173), nil, "")
	to := resp.Header.Get("Location")
	if !strings.HasPrefix(to, "https://p5173-run-subject.preview.example.org/.ramus/open?code=") {
		t.Fatal(to)
	}
	resp, _ = b.do("GET", strings.Replace(to, "https:", "http:", 1), nil, "") // a proxy terminates TLS
	if got := resp.Header.Get("Set-Cookie"); !strings.HasPrefix(got, "__Host-ramus-preview=") ||
		!strings.Contains(got, "; Path=/;") || !strings.Contains(got, "; Secure") || strings.Contains(got, "Domain") {
		t.Error(got)
	}
}

// TestPreviewAnswersEarly reads an answer that begins before the request has ended.
func TestPreviewAnswersEarly(t *testing.T) {
	t.Parallel()
	b := openViewer(t, "http://{label}.localhost:8080")
	page, s := b.do("GET", b.link(5173), nil, "")
	if page.StatusCode != http.StatusOK {
		t.Fatalf("the page: %s %s", page.Status, s.Body)
	}

	body, more := io.Pipe()
	defer more.Close()
	go func() { _, _ = io.WriteString(more, "first") }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", page.Request.URL.Scheme+"://"+page.Request.URL.Host+"/duplex", body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := b.Do(req)
	if err != nil {
		t.Fatalf("no answer before the request ends: %v", err)
	}
	defer resp.Body.Close()
	go func() {
		_, _ = io.WriteString(more, " second")
		more.Close()
	}()
	got, err := io.ReadAll(resp.Body)
	if err != nil || string(got) != "first second" {
		t.Fatalf("%d, %q, %v", resp.StatusCode, got, err)
	}
}

func TestPreviewSandboxed(t *testing.T) {
	t.Parallel()
	b := openViewer(t, "")
	resp, s := b.do("GET", b.link(5173), nil, "")
	base := resp.Request.URL.String()
	if resp.StatusCode != 200 || !strings.HasPrefix(base, "http://ramus.example.org/preview/run:subject/5173/") ||
		s.URI != "/" || s.Host != "localhost:5173" {
		t.Fatalf("%s: %d %+v", base, resp.StatusCode, s)
	}
	if got := resp.Header.Values("Content-Security-Policy"); len(got) != 2 ||
		got[1] != "sandbox allow-scripts allow-forms allow-popups allow-modals" {
		t.Errorf("policy: %q", got)
	}
	for name, want := range map[string]string{"Set-Cookie": "", "WWW-Authenticate": "", "Service-Worker-Allowed": "",
		"Access-Control-Allow-Origin": "*",
		"Referrer-Policy":             "no-referrer", "Cache-Control": "private, max-age=5, immutable"} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	resp, s = b.do("POST", base+"a%2Fb/c?x=1", http.Header{"Origin": {"null"}, "Cookie": {"ramus-sign-in=s"},
		"Authorization": {"Bearer t"}, "Referer": {base}}, "said")
	if resp.StatusCode != 200 || s.URI != "/a%2Fb/c?x=1" || s.Body != "said" ||
		s.Header.Get("Origin") != "http://localhost:5173" ||
		s.Header.Get("Cookie")+s.Header.Get("Authorization")+s.Header.Get("Referer") != "" {
		t.Errorf("%d %+v", resp.StatusCode, s)
	}
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for to, want := range map[string]string{"/next?a": u.Path + "next?a", "http://localhost:5173/x": u.Path + "x",
		"http://localhost:5173": u.Path,
		"next":                  "next", "https://example.org/y": "https://example.org/y",
		"//example.org/y": "//example.org/y"} {
		resp, _ := b.do("GET", base+"to/?to="+to, nil, "")
		if got := resp.Header.Get("Location"); strings.ReplaceAll(got, "%3A", ":") != want {
			t.Errorf("a redirect to %s leads to %s, want %s", to, got, want)
		}
	}
	if resp, _ := b.do("OPTIONS", base+"x",
		http.Header{"Origin": {"null"}, "Access-Control-Request-Method": {"PUT"},
			"Access-Control-Request-Headers": {"x-y"}}, ""); resp.StatusCode != 204 ||
		resp.Header.Get("Access-Control-Allow-Headers") != "x-y" {
		t.Errorf("preflight: %d %v", resp.StatusCode, resp.Header)
	}
	// The pass of one port opens no other port and no other caller.
	for _, other := range []string{strings.Replace(base, "5173", "5174", 1),
		strings.Replace(base, "subject", "other", 1), strings.Replace(base, "5173", "05173", 1)} {
		if resp, _ := b.do("GET", other, nil, ""); resp.StatusCode != 403 && resp.StatusCode != 400 {
			t.Errorf("%s: %d", other, resp.StatusCode)
		}
	}
}

func TestPreviewGoesOn(t *testing.T) {
	t.Parallel()
	for name, origin := range map[string]string{"own": "http://{label}.preview.example.org", "sandboxed": ""} {
		t.Run(name, func(t *testing.T) {
			b := openViewer(t, origin)
			resp, _ := b.do("GET", b.link(5173), nil, "")
			base := resp.Request.URL

			stream, err := b.Get(base.String() + "events")
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Body.Close()
			if line, err := bufio.NewReader(stream.Body).ReadString('\n'); line != "data: first\n" {
				t.Errorf("a stream begins with %q, %v", line, err)
			}

			h := http.Header{"Origin": {"null"}}
			if origin != "" {
				h = http.Header{"Origin": {ownOrigin}}
			}
			dialer := websocket.Dialer{Jar: b.Jar, NetDialContext: b.dial}
			address := "ws" + strings.TrimPrefix(base.String(), "http") + "ws"
			conn, resp, err := dialer.DialContext(t.Context(), address, h)
			if err != nil {
				t.Fatalf("%v: %+v", err, resp)
			}
			defer conn.Close()
			for _, text := range []string{"one", "two"} {
				if err := conn.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
					t.Fatal(err)
				}
				if _, got, err := conn.ReadMessage(); string(got) != "echo "+text {
					t.Errorf("%q, %v", got, err)
				}
			}
			if origin != "" {
				if _, resp, err := dialer.DialContext(t.Context(), address,
					http.Header{"Origin": {"http://p1-run-evil.preview.example.org"}}); err == nil || resp == nil ||
					resp.StatusCode != 403 {
					t.Errorf("a websocket of another origin: %v", err)
				}
			}
			// The shutdown of the server ends both connections.
			b.r.Drain()
			if _, _, err := conn.ReadMessage(); err == nil {
				t.Error("a websocket outlives the server")
			}
			if _, err := io.ReadAll(stream.Body); err == nil {
				t.Error("a stream ends as if it were whole")
			}
		})
	}
}

// TestPreviewEndsWithItsLink checks that connections end when the link that opened them expires.
func TestPreviewEndsWithItsLink(t *testing.T) {
	t.Parallel()
	b := openViewer(t, "")
	// The time to open a page and a websocket depends on the machine. The lifetime of the link is doubled until it is
	// long enough.
	for b.r.Links.TTL = 2 * time.Second; ; b.r.Links.TTL *= 2 {
		began := time.Now()
		address, conn, err := b.openPage()
		if err != nil {
			if time.Since(began) < b.r.Links.TTL-time.Second { // the expiry is truncated to seconds
				t.Fatal(err)
			}
			continue
		}
		defer conn.Close()
		if _, _, err := conn.ReadMessage(); err == nil {
			t.Error("a websocket outlives its link")
		}
		resp, s := b.do("GET", address, http.Header{"Accept": {"text/html"}}, "")
		if resp.StatusCode != 403 || !strings.Contains(s.Body, "it has expired at") || !strings.Contains(s.Body, "<html") {
			t.Errorf("%d %s", resp.StatusCode, s.Body)
		}
		return
	}
}

// openPage follows a link and opens a websocket from the page.
func (b *viewer) openPage() (address string, conn *websocket.Conn, err error) {
	b.t.Helper()
	resp, s := b.do("GET", b.link(5173), nil, "")
	if resp.StatusCode != 200 {
		return "", nil, fmt.Errorf("the page: %s %s", resp.Status, s.Body)
	}
	address = resp.Request.URL.String()
	conn, refused, err := (&websocket.Dialer{NetDialContext: b.dial}).DialContext(b.t.Context(),
		"ws"+strings.TrimPrefix(address, "http")+"ws", http.Header{"Origin": {"null"}})
	if err != nil && refused != nil {
		text, _ := io.ReadAll(refused.Body)
		err = fmt.Errorf("%w: %s %s", err, refused.Status, text)
	}
	return address, conn, err
}

// TestPreviewUnseen checks that a preview that cannot be shown is a page with the reason.
func TestPreviewUnseen(t *testing.T) {
	t.Parallel()
	b := openViewer(t, "")
	page := http.Header{"Accept": {"text/html"}}
	resp, s := b.do("GET", b.link(5174), page, "")
	if resp.StatusCode != 503 || !strings.Contains(s.Body, "Nothing listens at port 5174 of run:subject") ||
		!strings.Contains(s.Body, "no container at the moment") ||
		!strings.HasPrefix(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("%d %s", resp.StatusCode, s.Body)
	}
	b.app.Close()
	if resp, s := b.do("GET", b.link(5173), page, ""); resp.StatusCode != 503 ||
		!strings.Contains(s.Body, "gave no answer that can be shown") {
		t.Errorf("%d %s", resp.StatusCode, s.Body)
	}
	for _, path := range []string{"/preview/run:nobody/5173/", "/preview/run:subject/99999/", "/preview/x/5173/"} {
		if resp, s := b.do("GET", b.r.URL+b.r.Links.Sign(path), page, ""); resp.StatusCode != 404 && resp.StatusCode != 400 {
			t.Errorf("%s: %d %s", path, resp.StatusCode, s.Body)
		}
	}
}
