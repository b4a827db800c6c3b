package forgekey

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gateway/route"
)

// TestPage stores a token by the form of an invitation. Words that are no tokens leave the invitation open.
func TestPage(t *testing.T) {
	k, _ := open(t)
	mux := (&route.Mux{}).Handler((&API{Keys: k}).Routes(), nil)
	ask := func(h http.Handler, method, ticket, token string) (int, string) {
		t.Helper()
		form := url.Values{"ticket": {ticket}, "token": {token}}.Encode()
		r := httptest.NewRequest(method, "/connect", strings.NewReader(form))
		if method == "GET" {
			r = httptest.NewRequest(method, "/connect?"+form, nil)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	link, err := k.Invite("slack:T:ada", "Ada", "gitea")
	if err != nil {
		t.Fatal(err)
	}
	ticket := ticketOf(t, link)
	if code, text := ask(mux, "GET", ticket, ""); code != http.StatusOK || !strings.Contains(text, "Ada") || !strings.Contains(text, ticket) {
		t.Errorf("%d: %s", code, text)
	}
	for _, x := range []struct {
		token, says string
		code        int
	}{
		{"", "no token", http.StatusBadRequest},
		{"two words", "no token", http.StatusBadRequest},
		{"t\u00f6ken", "no token", http.StatusBadRequest},
		{"to\x00ken", "no token", http.StatusBadRequest},
		{strings.Repeat("x", maxToken+1), "no token", http.StatusBadRequest},
		{strings.Repeat("x", maxToken), "refuses", http.StatusBadRequest},
		{"~", "refuses", http.StatusBadRequest},
		{" " + goodToken + "\n", "ada", http.StatusOK},
	} {
		code, text := ask(mux, "POST", ticket, x.token)
		if code != x.code || !strings.Contains(text, x.says) || strings.Contains(text, goodToken) {
			t.Errorf("%.20q: %d: %s", x.token, code, text)
		}
	}
	if own, ok := k.Forge(t.Context(), k.Sites[0].Forge, "slack:T:ada"); !ok || own.(*person).token != goodToken {
		t.Errorf("the token is not stored: %+v", own)
	}
	for about, h := range map[string]http.Handler{"used": mux, "no keys": (&route.Mux{}).Handler((&API{}).Routes(), nil)} {
		for _, ticket := range []string{ticket, "", "x"} {
			for _, method := range []string{"GET", "POST"} {
				if code, _ := ask(h, method, ticket, goodToken); code != http.StatusBadRequest {
					t.Errorf("%s, %s %q: %d", about, method, ticket, code)
				}
			}
		}
	}
}
