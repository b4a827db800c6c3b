package client

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
)

// TestElsewhere tests that a stream of events that breaks goes on at the server that took the place of the first one, where
// it ended.
func TestElsewhere(t *testing.T) {
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "data: {\"seq\":1}\n\ndata: {\"seq\":2}\n\n")
	}))
	defer first.Close()
	after := ""
	second := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		after = r.Header.Get("Last-Event-ID")
		fmt.Fprint(w, "data: {\"seq\":3}\n\nevent: end\ndata: {}\n\n")
	}))
	defer second.Close()

	asked := 0
	c := New(first.URL, "token")
	defer c.Close()
	c.Elsewhere = func(context.Context) string {
		first.Close()
		if asked++; asked == 1 {
			return "" // the stand-by is not promoted yet
		}
		return second.URL
	}
	var got []int64
	for e, err := range c.Events(t.Context(), "run:x/1", 0) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Seq)
	}
	if !slices.Equal(got, []int64{1, 2, 3}) || after != "2" {
		t.Errorf("the events are %v, and the second server is asked for those after %q", got, after)
	}
}
