package cert

import (
	"net"
	"net/http"
	"net/url"
	"strings"
)

// year is the time for which browsers come by TLS alone, in seconds.
const year = "31536000"

// Strict sets the header by which browsers come by TLS alone from then on. It belongs on answers over TLS. A host that is
// an address gets no such header, because browsers ignore it.
func Strict(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil && net.ParseIP(hostName(r.Host)) == nil {
			w.Header().Set("Strict-Transport-Security", "max-age="+year)
		}
		next.ServeHTTP(w, r)
	})
}

// Redirect leads requests to the same address with TLS. To is the URL of the server ("https://ramus.example.org"). If it
// is empty, the host of the request counts, with the port of the listener with TLS. Only requests that read are
// redirected.
func Redirect(to, port string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "this server speaks TLS only: use https://, and take any password or token that you have just sent as known to others", http.StatusForbidden)
			return
		}
		target := url.URL{Scheme: "https", Host: hostName(r.Host)}
		if base, err := url.Parse(to); err == nil && base.Host != "" {
			target.Host = base.Host
		} else if port != "" && port != "443" {
			target.Host = net.JoinHostPort(strings.Trim(target.Host, "[]"), port)
		} else if strings.Contains(target.Host, ":") {
			target.Host = "[" + target.Host + "]"
		}
		if target.Host == "" || strings.ContainsAny(target.Host, "/\\@?# ") {
			http.Error(w, "a request without a host", http.StatusBadRequest)
			return
		}
		target.Path, target.RawPath, target.RawQuery = r.URL.Path, r.URL.RawPath, r.URL.RawQuery
		http.Redirect(w, r, target.String(), http.StatusPermanentRedirect)
	})
}

// RedirectOthers leads requests for hosts that have an origin of their own there, with TLS, and passes all others to
// next. origin returns the origin of a host, such as "https://content.example.org:8443". Returns "" if it has none.
func RedirectOthers(origin func(host string) string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to := origin(r.Host); to != "" {
			Redirect(to, "").ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostName returns a host without its port and without the brackets of an IPv6 address.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.Trim(host, "[]")
}
