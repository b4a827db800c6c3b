package preview

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gateway/route"
)

// TestOwnCookies sends the cookies of ramus's own pages through the filter of a preview, in both directions.
func TestOwnCookies(t *testing.T) {
	stage := ownHosted{origin: "https://x.preview.example.org", cookie: "__Host-preview"}
	own := append(route.OwnCookies(), stage.cookie)
	in := httptest.NewRequest("GET", "https://x.preview.example.org/", nil)
	var pairs []string
	for _, name := range own {
		pairs = append(pairs, name+"=secret", " "+name+" =secret", name+"=secret=more")
	}
	in.Header.Add("Cookie", "theme=dark;"+strings.Join(pairs, ";"))
	in.Header.Add("Cookie", strings.Join(pairs, "; ")+"; ramus-like=1; =x")
	out := in.Clone(t.Context())
	stage.ask(&httputil.ProxyRequest{In: in, Out: out}, "127.0.0.1:3000")
	if got := strings.Join(out.Header.Values("Cookie"), "|"); strings.Contains(got, "secret") ||
		!strings.Contains(got, "theme=dark") || !strings.Contains(got, "ramus-like=1") {
		t.Errorf("the application gets the cookies %q", got)
	}
	h := http.Header{}
	for _, name := range own {
		h.Add("Set-Cookie", name+"=forged; Path=/")
		h.Add("Set-Cookie", " "+name+" =forged; Domain=example.org")
	}
	h.Add("Set-Cookie", "theme=light; Domain=example.org; Path=/")
	stage.answer(h, "127.0.0.1:3000")
	if got := strings.Join(h.Values("Set-Cookie"), "|"); strings.Contains(got, "forged") || strings.Contains(got, "example.org") ||
		!strings.Contains(got, "theme=light") {
		t.Errorf("the application sets the cookies %q", got)
	}
}

// TestNoCookies has an application below a path, whose pages have the host of ramus's own pages, see no cookie at all.
func TestNoCookies(t *testing.T) {
	stage := sandboxed{base: "/preview/x/3000/pass", rest: "/"}
	in := httptest.NewRequest("GET", "https://ramus.example.org/preview/x/3000/pass/", nil)
	in.Header.Set("Cookie", route.SessionCookie+"=secret")
	out := in.Clone(t.Context())
	stage.ask(&httputil.ProxyRequest{In: in, Out: out}, "127.0.0.1:3000")
	if got := out.Header.Get("Cookie"); got != "" {
		t.Errorf("the application gets the cookie %q", got)
	}
}
