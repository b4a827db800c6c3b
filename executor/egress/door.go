package egress

import "net/http"

// Door returns the handler of a container's door. Requests for other hosts go to p, all others to local. Requests of
// a page in a browser are refused.
func (p *Proxy) Door(local http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodConnect || r.URL.IsAbs():
			p.ServeHTTP(w, r)
		case fromPage(r):
			http.Error(w, "ramus: the door is not for pages in a browser", http.StatusForbidden)
		default:
			local.ServeHTTP(w, r)
		}
	})
}

// fromPage reports whether a page in a browser sent r, by the headers that no script of a page can leave out. The door knows its caller
// by the connection, and serves the programs of the container. A page that is looked at there may come from anywhere. It must not
// push, or ask a model, in the container's name.
func fromPage(r *http.Request) bool {
	return len(r.Header["Origin"]) > 0 || len(r.Header["Sec-Fetch-Site"]) > 0
}
