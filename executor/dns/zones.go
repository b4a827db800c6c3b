package dns

import (
	"net/http"
	"net/url"
	"time"

	"github.com/libdns/cloudflare"
	"github.com/libdns/rfc2136"
)

// Cloudflare returns a zone at Cloudflare. token may edit its DNS. endpoint is the origin of the API, and empty means
// that of Cloudflare.
func Cloudflare(token string, endpoint *url.URL) Zone {
	client := &http.Client{Timeout: 30 * time.Second}
	if endpoint != nil {
		client.Transport = elsewhere{endpoint}
	}
	return &cloudflare.Provider{APIToken: token, HTTPClient: client}
}

// elsewhere sends requests to another origin, because the library knows only Cloudflare's.
type elsewhere struct{ origin *url.URL }

func (e elsewhere) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host, r.Host = e.origin.Scheme, e.origin.Host, ""
	return http.DefaultTransport.RoundTrip(r)
}

// Update returns a zone of a name server that takes updates by RFC 2136, such as BIND, Knot and PowerDNS. server is
// HOST:PORT. key and secret are those of a TSIG with HMAC-SHA256; the secret is in base64.
func Update(server, key, secret string) Zone {
	return &rfc2136.Provider{Server: server, KeyName: key, KeyAlg: "hmac-sha256", Key: secret}
}
