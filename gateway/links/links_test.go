package links_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/links"
)

func TestLinks(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	l := &links.Signer{Key: []byte(strings.Repeat("k", 32)), URL: "https://ramus.example.org/", TTL: time.Hour,
		Now: func() time.Time { return now }}
	other := *l
	other.Key = []byte(strings.Repeat("K", 32))
	const path = "/evidence/run:a/20260101-000000-abcd/files/artifacts/ü b?c#d%2F.txt"
	link := l.Sign(path)
	u, err := url.Parse(link)
	if err != nil || u.Path != path || u.Host != "ramus.example.org" {
		t.Fatalf("%s: %v", link, err)
	}
	get := func(method, target string) *http.Request { return httptest.NewRequest(method, target, nil) }
	with := func(change func(u *url.URL, q url.Values)) *http.Request {
		v := *u
		q := v.Query()
		change(&v, q)
		v.RawQuery = q.Encode()
		return get("GET", v.String())
	}
	good := []*http.Request{get("GET", link), get("HEAD", link), get("GET", link+"&view=1")}
	for _, r := range good {
		if err := l.Check(r); err != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		if err := other.Check(r); err == nil {
			t.Errorf("%s %s opens with another key", r.Method, r.URL)
		}
	}
	bad := map[string]*http.Request{
		"another method":    get("POST", link),
		"delete":            get("DELETE", link),
		"another path":      with(func(u *url.URL, _ url.Values) { u.Path += "x" }),
		"a shorter path":    with(func(u *url.URL, _ url.Values) { u.Path = u.Path[:len(u.Path)-1] }),
		"a later expiry":    with(func(_ *url.URL, q url.Values) { q.Set("expires", "1900000000") }),
		"no expiry":         with(func(_ *url.URL, q url.Values) { q.Del("expires") }),
		"no signature":      with(func(_ *url.URL, q url.Values) { q.Del("signature") }),
		"an empty one":      with(func(_ *url.URL, q url.Values) { q.Set("signature", "") }),
		"half of one":       with(func(_ *url.URL, q url.Values) { q.Set("signature", q.Get("signature")[:20]) }),
		"no base64":         with(func(_ *url.URL, q url.Values) { q.Set("signature", "!") }),
		"another spelling":  with(func(_ *url.URL, q url.Values) { q.Set("expires", "+"+q.Get("expires")) }),
		"an escaped border": get("GET", strings.Replace(link, "/files/artifacts/", "/files%2Fartifacts/", 1)),
		// The same bytes, with the border between the fields moved.
		"a moved border": with(func(u *url.URL, q url.Values) {
			u.Path += q.Get("expires")[:1]
			q.Set("expires", q.Get("expires")[1:])
		}),
	}
	for name, r := range bad {
		if err := l.Check(r); err == nil {
			t.Errorf("%s opens: %s", name, r.URL)
		}
	}
	now = now.Add(time.Hour - time.Second)
	if err := l.Check(good[0]); err != nil {
		t.Errorf("a second before it expires: %v", err)
	}
	now = now.Add(time.Second)
	if err := l.Check(good[0]); err == nil {
		t.Error("it opens after it has expired")
	}

	l.URL, l.TTL = "", 0
	c, err := record.ParseCaller("conv:abc")
	if err != nil {
		t.Fatal(err)
	}
	run := record.Run{Caller: c, ID: "k"}
	for want, sign := range map[string]func() string{
		"/evidence/conv:abc/k":                         func() string { return l.Run(run) },
		"/evidence/conv:abc/k/files/artifacts/a/b.png": func() string { return l.File(run, "artifacts/a/b.png") },
	} {
		got := sign()
		r := get("GET", got)
		if r.URL.Path != want || l.Check(r) != nil {
			t.Errorf("%s, want %s: %v", got, want, l.Check(r))
		}
		now = now.Add(7*24*time.Hour - 10*time.Second)
		if err := l.Check(r); err != nil {
			t.Errorf("before a week is over: %v", err)
		}
		now = now.Add(10 * time.Second)
		if err := l.Check(r); err == nil {
			t.Error("after a week")
		}
	}
}

// TestLinkErrors checks the reasons for which links do not open, which pages tell apart.
func TestLinkErrors(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	l := &links.Signer{Key: []byte(strings.Repeat("k", 32)), TTL: time.Hour, Now: func() time.Time { return now }}
	link := l.Sign("/evidence/run:a/b")
	expires, err := l.Expires(httptest.NewRequest("GET", link, nil))
	if err != nil || !expires.Equal(now.Add(time.Hour)) || !expires.Equal(l.Expiry()) {
		t.Errorf("expires %s, %v", expires, err)
	}
	for target, want := range map[string]error{
		"/evidence/run:a/b":                        links.ErrUnsigned,
		strings.Replace(link, "/b?", "/c?", 1):     links.ErrForged,
		strings.Replace(link, "a/b?", "a%2Fb?", 1): links.ErrForged,
		l.SignUntil("/evidence/run:a/b", now):      links.ErrExpired,
	} {
		if err := l.Check(httptest.NewRequest("GET", target, nil)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", target, err, want)
		}
	}
}

// TestPass checks that a pass opens its own path until it expires, and nothing else.
func TestPass(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	l := &links.Signer{Key: []byte(strings.Repeat("k", 32)), Now: func() time.Time { return now }}
	other := *l
	other.Key = []byte(strings.Repeat("K", 32))
	const path = "/preview/run:a/8080/"
	until := now.Add(time.Hour)
	pass := l.Pass(path, until)
	seconds, signature, _ := strings.Cut(pass, ".")
	link, err := url.Parse(l.SignUntil(path, until))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		signer     *links.Signer
		path, pass string
		want       error
	}{
		"as it was made":       {l, path, pass, nil},
		"another path":         {l, path + "x", pass, links.ErrForged},
		"another key":          {&other, path, pass, links.ErrForged},
		"a later time":         {l, path, "1900000000." + signature, links.ErrForged},
		"another spelling":     {l, path, "+" + pass, links.ErrForged},
		"a link's signature":   {l, path, seconds + "." + link.Query().Get(links.SignatureParameter), links.ErrForged},
		"half a signature":     {l, path, pass[:len(pass)-20], links.ErrForged},
		"no signature":         {l, path, seconds + ".", links.ErrForged},
		"the time alone":       {l, path, seconds, links.ErrForged},
		"no base64":            {l, path, pass + "!", links.ErrForged},
		"nothing":              {l, path, "", links.ErrForged},
		"one that has expired": {l, path, l.Pass(path, now), links.ErrExpired},
		"its last second":      {l, path, l.Pass(path, now.Add(time.Second)), nil},
	} {
		got, err := tt.signer.CheckPass(tt.path, tt.pass)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
		if err == nil && !got.After(now) || errors.Is(err, links.ErrForged) && !got.IsZero() {
			t.Errorf("%s: open until %s, %v", name, got, err)
		}
	}
	if got, err := l.CheckPass(path, pass); err != nil || !got.Equal(until) {
		t.Errorf("open until %s, %v", got, err)
	}
	r := httptest.NewRequest("GET", path+"?expires="+seconds+"&signature="+signature, nil)
	if err := l.Check(r); !errors.Is(err, links.ErrForged) {
		t.Errorf("a pass as a link: %v", err)
	}
}

// TestTargets checks where the links of a run lead.
func TestTargets(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	l := &links.Signer{Key: []byte(strings.Repeat("k", 32)), URL: "https://ramus.example.org/",
		Now: func() time.Time { return now }}
	view, err := url.Parse(l.View("run:a/k", "artifacts/a b.png"))
	if err != nil || view.Path != "/evidence/run:a/k/files/artifacts/a b.png" || view.Query().Get("view") != "1" ||
		l.Check(&http.Request{Method: "GET", URL: view}) != nil {
		t.Errorf("view %s, %v", view, err)
	}
	viewer, err := url.Parse(l.Trace("run:a/k", "trace.zip"))
	if err != nil || viewer.Host != "ramus.example.org" || viewer.Path != links.TracePath+"index.html" {
		t.Fatalf("viewer %s, %v", viewer, err)
	}
	trace, err := url.Parse(viewer.Query().Get("trace"))
	if err != nil || trace.Path != "/evidence/run:a/k/files/trace.zip" || l.Check(&http.Request{Method: "GET", URL: trace}) != nil {
		t.Errorf("trace %s, %v", trace, err)
	}
	c, err := record.ParseCaller("conv:abc")
	if err != nil {
		t.Fatal(err)
	}
	if got := links.PreviewPath(c, 8080); got != "/preview/conv:abc/8080/" {
		t.Errorf("preview %s", got)
	}
}

// An address without a valid signature does not open.
func FuzzLinks(f *testing.F) {
	now := time.Unix(1_800_000_000, 0)
	l := &links.Signer{Key: []byte(strings.Repeat("k", 32)), Now: func() time.Time { return now }}
	signed, err := url.Parse(l.Sign("/evidence/run:a/b"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add("/evidence/run:a/b", signed.RawQuery)
	f.Add("/evidence/run:a/c", signed.RawQuery)
	f.Add("/evidence/run%3Aa/b", signed.RawQuery+"&view=1")
	f.Add("/evidence/run:a%2Fb", signed.RawQuery)
	f.Add("/", "expires=&signature=")
	f.Fuzz(func(t *testing.T, path, query string) {
		u, err := url.Parse(path)
		if err != nil {
			return
		}
		u.RawQuery = query
		r := &http.Request{Method: "GET", URL: u}
		if l.Check(r) == nil && (u.Path != "/evidence/run:a/b" || r.URL.Query().Get("expires") != signed.Query().Get("expires")) {
			t.Errorf("%s opens", u)
		}
	})
}
