package github

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-github/v66/github"

	"github.com/ramus-dev/ramus/gateway/forge"
)

// TestKeptBounds caches only answers that GitHub can confirm, up to the bounds.
func TestKeptBounds(t *testing.T) {
	answer := func(status int, tag string, size int) *http.Response {
		return &http.Response{StatusCode: status, Header: http.Header{"Etag": {tag}}, Body: io.NopCloser(bytes.NewReader(make([]byte, size)))}
	}
	for _, c := range []struct {
		name, method string
		resp         *http.Response
		want         bool
	}{
		{"an answer", "GET", answer(200, "t", 3), true},
		{"the longest answer", "GET", answer(200, "t", keptLongest), true},
		{"a longer answer", "GET", answer(200, "t", keptLongest+1), false},
		{"another method", "POST", answer(200, "t", 3), false},
		{"another status", "GET", answer(201, "t", 3), false},
		{"no tag", "GET", answer(200, "", 3), false},
	} {
		var k kept
		r := httptest.NewRequest(c.method, "http://api/x", nil)
		k.keep(r, c.resp)
		again := httptest.NewRequest(c.method, "http://api/x", nil)
		if a := k.ask(again); (a != nil) != c.want || (again.Header.Get("If-None-Match") == "t") != c.want {
			t.Errorf("%s is cached: %t", c.name, a != nil)
		}
		if c.want {
			if a := k.ask(httptest.NewRequest("HEAD", "http://api/x", nil)); a != nil {
				t.Errorf("%s answers another method", c.name)
			}
		}
	}

	var k kept
	get := func(i int) *http.Request { return httptest.NewRequest("GET", fmt.Sprint("http://api/", i), nil) }
	k.keep(get(0), answer(200, "t", 10))
	k.keep(get(0), answer(200, "t", 20))
	if a := k.ask(get(0)); a == nil || len(a.body) != 20 || k.order.Len() != 1 || k.size != a.size() {
		t.Errorf("an answer that is kept again: %d bytes in %d answers", k.size, k.order.Len())
	}
	for i := 1; k.order.Len() == i; i++ { // until one is dropped
		if i > 20 {
			t.Fatal("nothing is dropped")
		}
		k.ask(get(0)) // the first stays in use
		k.keep(get(i), answer(200, "t", keptLongest))
	}
	if k.ask(get(0)) == nil || k.ask(get(1)) != nil || k.size > keptBytes || len(k.byURL) != k.order.Len() {
		t.Errorf("%d bytes in %d answers", k.size, k.order.Len())
	}
}

// TestKeptSmall bounds the memory of many small answers with long addresses.
func TestKeptSmall(t *testing.T) {
	var k kept
	long := strings.Repeat("x", 1<<20)
	for i := range 2 * keptBytes >> 20 {
		k.keep(httptest.NewRequest("GET", fmt.Sprintf("http://api/%d?%s", i, long), nil), &http.Response{StatusCode: http.StatusOK,
			Header: http.Header{"Etag": {"t"}}, Body: io.NopCloser(strings.NewReader("{}"))})
	}
	if most := keptBytes >> 20; k.order.Len() >= most {
		t.Errorf("%d answers are cached, want fewer than %d", k.order.Len(), most)
	}
}

// TestLongAnswers refuses an answer beyond the bound.
func TestLongAnswers(t *testing.T) {
	for _, x := range []struct {
		size int64
		ok   bool
	}{{maxAnswer, true}, {maxAnswer + 1, false}} {
		next := transport(func(r *http.Request) *http.Response {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: r,
				Body: io.NopCloser(io.LimitReader(zeros{}, x.size))}
		})
		resp, err := send(httptest.NewRequest("GET", "http://api/x", nil), next, time.Now)
		var refused *forge.RefusedError
		if x.ok && (err != nil || resp.StatusCode != http.StatusOK) || !x.ok && !errors.As(err, &refused) {
			t.Errorf("%d bytes: %v", x.size, err)
		}
	}
}

// zeros has bytes without an end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// TestNamesInPaths checks the edges of what can be part of a path of the API.
func TestNamesInPaths(t *testing.T) {
	for name, want := range map[forge.Name]bool{
		{Owner: "acme", Repo: "app"}: true, {Owner: "a_b-1", Repo: "a.b_c-d"}: true, {Owner: "", Repo: "app"}: false, {Owner: "acme"}: false,
		{Owner: "-a", Repo: "app"}: false, {Owner: "a-", Repo: "app"}: true, {Owner: "a.b", Repo: "app"}: false, {Owner: "acme", Repo: "."}: false,
		{Owner: "acme", Repo: ".."}: false, {Owner: "acme", Repo: "..."}: true, {Owner: "acme", Repo: "a/b"}: false, {Owner: "acme", Repo: "a b"}: false,
		{Owner: strings.Repeat("a", 100), Repo: strings.Repeat("b", 100)}: true, {Owner: strings.Repeat("a", 101), Repo: "b"}: false,
		{Owner: "a", Repo: strings.Repeat("b", 101)}: false,
	} {
		if got := isName(name); got != want {
			t.Errorf("%s is a name: %t", name, got)
		}
	}
	for ref, want := range map[string]bool{"main": true, "a/b": true, "a.b": true, "": false, "/a": false, "a/": false, "a//b": false,
		".": false, "a/../b": false, ".a": false} {
		if err := checkRef(ref); (err == nil) != want {
			t.Errorf("%q: %v", ref, err)
		}
	}
}

// TestCheckOfNothing reads a check that GitHub left out.
func TestCheckOfNothing(t *testing.T) {
	if got := checkOf(nil); got.ID != 0 || got.Name != "" || got.Pulls != nil {
		t.Errorf("%+v", got)
	}
}

type transport func(*http.Request) *http.Response

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r), nil }

// TestEmptyPages ends a list whose pages have no items and no end.
func TestEmptyPages(t *testing.T) {
	asked := 0
	c := &Client{Tokens: Token("t"), HTTP: &http.Client{Transport: transport(func(r *http.Request) *http.Response {
		asked++
		body := fmt.Sprintf(`{"data":{"repository":{"pullRequest":{"reviewThreads":{"nodes":[],`+
			`"pageInfo":{"hasNextPage":true,"endCursor":"%d"}}}}}}`, asked)
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: r,
			Body: io.NopCloser(strings.NewReader(body))}
	})}}
	repo := forge.Name{Owner: "acme", Repo: "app"}
	threads, err := c.Threads(t.Context(), repo, 1)
	if err != nil || len(threads) > 0 || asked != maxThreads {
		t.Errorf("%d threads after %d requests, %v", len(threads), asked, err)
	}
	asked = 0
	var refused *forge.RefusedError
	for _, err = range items(t.Context(), c, request{what: "list", repo: repo},
		func(_ context.Context, _ *github.Client, o github.ListOptions) ([]int, *github.Response, error) {
			asked++
			return nil, &github.Response{NextPage: o.Page + 1}, nil
		}) {
	}
	if !errors.As(err, &refused) || asked != maxItems+1 {
		t.Errorf("after %d pages: %v", asked, err)
	}
	asked = 0
	for _, err = range items(t.Context(), c, request{what: "list", repo: repo},
		func(_ context.Context, _ *github.Client, o github.ListOptions) ([]int, *github.Response, error) {
			asked++
			return []int{asked}, &github.Response{NextPage: o.Page}, nil
		}) {
	}
	if err != nil || asked != 1 {
		t.Errorf("a page that names itself as the next is read %d times: %v", asked, err)
	}
}
