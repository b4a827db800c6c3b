package github

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestKept(t *testing.T) {
	var k kept
	answer := func(tag string, size int) *http.Response {
		return &http.Response{StatusCode: 200, Header: http.Header{"Etag": {tag}, "Link": {"next"}},
			Body: io.NopCloser(bytes.NewReader(make([]byte, size)))}
	}
	request := func(method, path string) *http.Request { return httptest.NewRequest(method, "http://h"+path, nil) }
	k.keep(request("POST", "/a"), answer("1", 1))
	k.keep(request("GET", "/b"), answer("", 1))
	k.keep(request("GET", "/c"), answer("1", keptLongest+1))
	for _, path := range []string{"/a", "/b", "/c"} {
		if k.ask(request("GET", path)) != nil {
			t.Errorf("%s was kept", path)
		}
	}
	k.keep(request("GET", "/d"), answer("1", 5))
	k.keep(request("GET", "/d"), answer("2", 7))
	r := request("GET", "/d")
	a := k.ask(r)
	if a == nil || r.Header.Get("If-None-Match") != "2" || k.order.Len() != 1 {
		t.Fatalf("%+v of %d", a, k.order.Len())
	}
	for range 2 { // it can be given again
		resp := a.answer(&http.Response{StatusCode: 304})
		if body, err := io.ReadAll(resp.Body); err != nil || len(body) != 7 || resp.StatusCode != 200 || resp.Header.Get("Link") != "next" {
			t.Errorf("%+v", resp)
		}
	}
	if k.ask(request("POST", "/d")) != nil {
		t.Error("a POST is conditional")
	}
	for i := range 100 {
		k.ask(request("GET", "/d"))
		k.keep(request("GET", fmt.Sprint("/", i)), answer("x", keptLongest))
	}
	if k.ask(request("GET", "/d")) == nil || k.ask(request("GET", "/99")) == nil ||
		k.ask(request("GET", "/1")) != nil || k.size > keptBytes || len(k.byURL) != k.order.Len() {
		t.Errorf("%d bytes in %d answers", k.size, k.order.Len())
	}
	for k.order.Len() > 0 {
		k.drop(k.order.Back())
	}
	if k.size != 0 || len(k.byURL) != 0 {
		t.Errorf("%d bytes are left", k.size)
	}
}
