package egress

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/ramus-dev/ramus/internal/growth"
)

// TestGrowthOfHosts checks that the time to read a request's host grows with it.
func TestGrowthOfHosts(t *testing.T) {
	allow := []string{"*.example.org", "example.org:443"}
	growth.Check(t, "host", func(text []byte) {
		for _, method := range []string{http.MethodGet, http.MethodConnect} {
			r := &http.Request{Method: method, Host: string(text), URL: &url.URL{Host: string(text)}}
			if host, port, err := splitHostPort(r); err == nil {
				matches(allow, host, port)
			}
		}
	}, growth.Tokens("a", ".", "a.", ":", "[", "]", "[::", "%", "é", "@", "1.", ":1")...)
}
