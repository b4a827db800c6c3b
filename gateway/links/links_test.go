package links_test

import (
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
	l := &links.Signer{Key: []byte(strings.Repeat("k", 32)), URL: "https://ramus.example.org/", TTL: time.Hour, Now: func() time.Time { return now }}
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

// What was not signed does not open, whatever is sent.
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
