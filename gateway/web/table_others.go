package web

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"

	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/route"
)

// Open tabs follow pages of other servers, too. The owner of such a page makes it.

const viewQuestion = "web/view"

// viewed asks for a page as a person sees it.
type viewed struct {
	URI, Host string
	Header    http.Header
	Secure    bool // the client speaks TLS
}

// viewHeaders are the headers that decide how a page looks.
var viewHeaders = []string{"Cookie", "X-Forwarded-Proto", "X-Forwarded-Host", "User-Agent"}

// viewElsewhere returns the view of a page that another server owns. It returns false if this one makes it.
func (t *table) viewElsewhere(c *route.Call, pattern string) (v live.View, elsewhere bool, err error) {
	if t.desk.Alone() {
		return v, false, nil
	}
	owner := t.desk.Others.Owner(c, pattern)
	if owner == "" {
		return v, false, nil
	}
	q := viewed{URI: c.R.URL.RequestURI(), Host: c.R.Host, Header: http.Header{}, Secure: c.R.TLS != nil}
	for _, name := range viewHeaders {
		if values := c.R.Header.Values(name); len(values) > 0 {
			q.Header[name] = values
		}
	}
	body, err := json.Marshal(q)
	if err != nil {
		return v, true, err
	}
	a := t.desk.Others.AskOne(c.R.Context(), owner, c.Who, viewQuestion, body)
	switch {
	case a.Problem != nil:
		return v, true, a.Problem
	case a.Err != nil:
		return v, true, route.NewProblem(route.KindUnavailable, "the replica %s, which has this page, does not answer", owner)
	}
	return v, true, json.Unmarshal(a.Body, &v)
}

// viewHere makes a page of this server for another one.
func (t *table) viewHere(ctx context.Context, who route.Who, q viewed) (live.View, error) {
	at, err := url.ParseRequestURI(q.URI)
	if err != nil {
		return live.View{}, route.NewProblem(route.KindInvalid, "this page cannot be followed")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, q.URI, nil)
	if err != nil {
		return live.View{}, err
	}
	if r.Host, r.Header = q.Host, q.Header; q.Secure {
		r.TLS = new(tls.ConnectionState)
	}
	c := t.newCall(httptest.NewRecorder(), r, t.access)
	c.Who = who
	return t.renderHere(c, at, nil)
}
