package preview

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/links"
)

func TestParseOrigin(t *testing.T) {
	for _, ok := range []string{"https://{label}.preview.example.org", "http://{label}.localhost:8080"} {
		if _, err := ParseOrigin(ok, "https://ramus.example.org"); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "{label}", "https://preview.example.org", "https://x{label}.example.org",
		"ftp://{label}.example.org", "https://{label}.example.org/x",
		"https://{label}.", "https://{label}.{label}.org", "https://u@{label}.example.org", "https://{label}.example.org"} {
		if _, err := ParseOrigin(bad, "https://ramus.example.org"); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// TestWithTLS finds the origins of hosts that requests without TLS have.
func TestWithTLS(t *testing.T) {
	for _, x := range []struct{ pattern, host, want string }{
		{"https://{label}.apps.example.net", "p80-run-x.apps.example.net", "https://p80-run-x.apps.example.net"},
		{"https://{label}.apps.example.net:8443", "P80-run-x.Apps.example.net.:80",
			"https://p80-run-x.apps.example.net:8443"},
		{"https://{label}.apps.example.net", "x.p80-run-x.apps.example.net", ""},
		{"https://{label}.apps.example.net", "apps.example.net", ""},
		{"https://{label}.apps.example.net", "evil.example", ""},
		{"https://{label}.apps.example.net", "evil%2f.apps.example.net", ""},
		{"https://{label}.apps.example.net", "", ""},
		{"http://{label}.localhost:8080", "p80-run-x.localhost", ""},
	} {
		o, err := ParseOrigin(x.pattern, "https://ramus.example.org")
		if err != nil {
			t.Fatal(err)
		}
		if got := o.WithTLS(x.host); got != x.want {
			t.Errorf("%q: %q, want %q", x.host, got, x.want)
		}
	}
	var none *Origin
	if got := none.WithTLS("p80-run-x.apps.example.net"); got != "" {
		t.Errorf("without origins: %q", got)
	}
}

func TestPreviewLabel(t *testing.T) {
	labels := map[string]bool{}
	for _, id := range []string{"fancy-mallard", "a", strings.Repeat("a", 60), strings.Repeat("a", 61),
		strings.Repeat("a-b", 26), strings.Repeat("a-b", 26) + "c"} {
		for _, port := range []int{1, 5173, 65535} {
			c, err := record.ConvCaller(id)
			if err != nil {
				t.Fatal(err)
			}
			label := previewLabel(c, port)
			if len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" ||
				strings.HasSuffix(label, "-") || labels[label] {
				t.Errorf("%s %d: %q", id, port, label)
			}
			labels[label] = true
		}
	}
}

// FuzzPreviewPass checks that only an issued pass opens a preview.
func FuzzPreviewPass(f *testing.F) {
	signer := &links.Signer{Key: []byte(strings.Repeat("k", 32)),
		Now: func() time.Time { return time.Unix(1_700_000_000, 0) }}
	c, err := record.RunCaller("x")
	if err != nil {
		f.Fatal(err)
	}
	good := signer.Pass(links.PreviewPath(c, 5173), time.Unix(1_700_000_001, 0))
	for _, seed := range []string{good, "", ".", "1.x", good + "x", "0" + good, signer.Pass(links.PreviewPath(c, 5174),
		time.Unix(1_700_000_001, 0)), signer.Pass(links.PreviewPath(c, 5173), time.Unix(1_699_999_999, 0))} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, pass string) {
		if _, err := signer.CheckPass(links.PreviewPath(c, 5173), pass); (err == nil) != (pass == good) {
			t.Errorf("%q: %v", pass, err)
		}
	})
}

// FuzzPreviewAnswer checks the headers of any answer of an application. Its cookies are restricted to its own host and
// never replace the cookie of ramus. Below a path of ramus's host, the application stays in its sandbox.
func FuzzPreviewAnswer(f *testing.F) {
	f.Add("a=1; Domain=example.org", "/x", "default-src *")
	f.Add("a=1;DOMAIN = x; domain", "http://localhost:5173/x", "")
	f.Add("__Host-ramus-preview=x; Path=/", "///x", "sandbox allow-same-origin")
	f.Add(" __Host-ramus-preview =x", "\x00", "x,y")
	f.Fuzz(func(t *testing.T, cookie, location, policy string) {
		for _, own := range []bool{true, false} {
			h := http.Header{"Set-Cookie": {cookie}, "Location": {location}, "Content-Security-Policy": {policy}}
			if own {
				ownHosted{"https://p5173-run-x.preview.example.org", "__Host-ramus-preview"}.answer(h, "localhost:5173")
			} else {
				sandboxed{base: "/preview/run:x/5173/pass"}.answer(h, "localhost:5173")
			}
			for _, k := range (&http.Response{Header: h}).Cookies() {
				if k.Domain != "" || k.Name == "__Host-ramus-preview" || !own {
					t.Errorf("%q becomes %q", cookie, h.Values("Set-Cookie"))
				}
			}
			to := h.Get("Location")
			if !own && strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") && !strings.HasPrefix(to, "/preview/run:x/5173/pass/") {
				t.Errorf("%q becomes %q", location, to)
			}
			if policies := h.Values("Content-Security-Policy"); !own &&
				policies[len(policies)-1] != "sandbox allow-scripts allow-forms allow-popups allow-modals" {
				t.Errorf("policies: %q", policies)
			}
		}
	})
}
