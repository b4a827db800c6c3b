package executor_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// site is a web server on loopback, for the egress proxy.
type site struct{ addr string }

func newSite(t *testing.T) site {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "the page")
	}))
	t.Cleanup(s.Close)
	return site{strings.TrimPrefix(s.URL, "http://")}
}
