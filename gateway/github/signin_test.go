package github_test

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/github"
)

const callback = "https://ramus.example.org/auth/github/callback"

func TestBegin(t *testing.T) {
	a := github.Attempt{State: "the state", Verifier: "the verifier"}
	for site, want := range map[string]string{"": "https://github.com/login/oauth/authorize",
		"https://git.example.org/": "https://git.example.org/login/oauth/authorize"} {
		at := (&github.SignIn{URL: site, ClientID: "Iv1.x", ClientSecret: "the secret"}).Begin(a, callback)
		u, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		if !strings.HasPrefix(at, want+"?") || q.Get("state") != a.State || q.Get("redirect_uri") != callback ||
			q.Get("client_id") != "Iv1.x" ||
			q.Get("code_challenge_method") != "S256" || len(q.Get("code_challenge")) != 43 ||
			strings.Contains(at, a.Verifier) || strings.Contains(at, "secret") {
			t.Error(at)
		}
	}
}

// TestFinish checks that GitHub's token is revoked after every answer.
func TestFinish(t *testing.T) {
	const given = "gho_0123456789"
	type answers map[string]http.HandlerFunc
	text := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, body) }
	}
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { say(w, code, "the message") }
	}
	usual := answers{
		"POST /login/oauth/access_token":      text(`{"access_token":"` + given + `","token_type":"bearer"}`),
		"GET /api/v3/user":                    text(`{"id":5,"login":"ann","name":"Ann A."}`),
		"GET /api/v3/user/emails":             text(`[{"email":"old@example.org","primary":true,"verified":false},{"email":"a@example.org","primary":false,"verified":true},{"email":"ann@example.org","primary":true,"verified":true},{"email":"late@example.org","primary":true,"verified":false},{"email":"b@example.org","primary":false,"verified":true},null]`),
		"GET /api/v3/user/orgs":               text(`[{"login":"acme"},{"login":"other"}]`),
		"DELETE /api/v3/applications/x/token": status(http.StatusNoContent),
	}
	ann := github.User{ID: 5, Login: "ann", Name: "Ann A.", Email: "ann@example.org",
		Organizations: []string{"acme", "other"}}
	for name, one := range map[string]struct {
		change  answers
		want    func(*github.User) // nil: an error
		refused bool
	}{
		"as usual": {nil, func(*github.User) {}, false},
		"no permission to ask": {answers{"GET /api/v3/user/emails": status(403), "GET /api/v3/user/orgs": status(403)},
			func(u *github.User) { u.Email, u.Organizations = "5+ann@users.noreply.127.0.0.1", nil }, false},
		"an odd name": {answers{"GET /api/v3/user": text(`{"id":5,"login":"ann","name":" Ann\n\u202eA.\u0000` +
			strings.Repeat("x", 300) + `"}`)},
			func(u *github.User) { u.Name = "Ann A. " + strings.Repeat("x", 143) + "…" }, false},
		"no address": {answers{"GET /api/v3/user/emails": text(`[]`)},
			func(u *github.User) { u.Email = "5+ann@users.noreply.127.0.0.1" }, false},
		"an odd address": {answers{"GET /api/v3/user/emails": text(`[{"email":"","primary":true,"verified":true},{"email":"` +
			strings.Repeat("x", 201) + `","primary":true,"verified":true}]`)},
			func(u *github.User) { u.Email = "5+ann@users.noreply.127.0.0.1" }, false},
		"not revoked": {answers{"DELETE /api/v3/applications/x/token": status(500)}, func(*github.User) {}, false},
		"many organizations": {answers{"GET /api/v3/user/orgs": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("page") == "2" {
				_, _ = io.WriteString(w, `[{"login":"other"}]`)
				return
			}
			w.Header().Set("Link", `<http://h/user/orgs?page=2>; rel="next"`)
			_, _ = io.WriteString(w, `[{"login":"acme"}]`)
		}}, func(*github.User) {}, false},

		"a bad code":     {answers{"POST /login/oauth/access_token": text(`{"error":"bad_verification_code","error_description":"the message"}`)}, nil, true},
		"no such client": {answers{"POST /login/oauth/access_token": status(404)}, nil, true},
		"sent elsewhere": {answers{"POST /login/oauth/access_token": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://example.org/the message", http.StatusFound)
		}}, nil, true},
		"a page":                   {answers{"POST /login/oauth/access_token": text("<html>the message")}, nil, false},
		"away":                     {answers{"POST /login/oauth/access_token": status(503)}, nil, false},
		"nobody":                   {answers{"GET /api/v3/user": text(`{}`)}, nil, true},
		"a bot":                    {answers{"GET /api/v3/user": text(`{"id":5,"login":"x[bot]"}`)}, nil, true},
		"no user":                  {answers{"GET /api/v3/user": status(401)}, nil, true},
		"addresses away":           {answers{"GET /api/v3/user/emails": status(500)}, nil, false},
		"no organizations for now": {answers{"GET /api/v3/user/orgs": status(500)}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			revoked := false
			mux := http.NewServeMux()
			for pattern, handle := range usual {
				if other := one.change[pattern]; other != nil {
					handle = other
				}
				mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
					switch id, secret, _ := r.BasicAuth(); {
					case r.Method == "DELETE":
						body, _ := io.ReadAll(r.Body)
						revoked = id == "x" && secret == "the secret" && strings.Contains(string(body), given)
					case r.Method == "POST":
						if r.FormValue("code") != "the code" || r.FormValue("code_verifier") != "v" ||
							r.FormValue("client_secret") != "the secret" || r.URL.RawQuery != "" {
							t.Errorf("asked for %v", r.Form)
						}
					case r.Header.Get("Authorization") != "Bearer "+given:
						t.Errorf("%s with %q", r.URL, r.Header.Get("Authorization"))
					}
					handle(w, r)
				})
			}
			h := httptest.NewServer(mux)
			defer h.Close()
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			s := &github.SignIn{URL: h.URL, API: h.URL + "/api/v3", ClientID: "x", ClientSecret: "the secret",
				HTTP: &http.Client{Transport: transport}, Log: slog.New(slog.DiscardHandler)}
			got, err := s.Finish(t.Context(), github.Attempt{State: "s", Verifier: "v"}, "the code", callback)
			if one.want == nil {
				if refused := errors.Is(err, forge.ErrRefused) || errors.Is(err, forge.ErrNotFound); err == nil || refused != one.refused {
					t.Errorf("%+v, %v", got, err)
				}
				if err != nil && strings.Contains(err.Error(), given) {
					t.Errorf("the error quotes the token: %v", err)
				}
			} else {
				want := ann
				one.want(&want)
				if err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("%+v, %v, want %+v", got, err, want)
				}
			}
			if got := one.change["POST /login/oauth/access_token"] == nil; got != revoked {
				t.Errorf("revoked %v", revoked)
			}
		})
	}
}
