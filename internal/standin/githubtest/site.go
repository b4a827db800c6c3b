package githubtest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// The client of the App's OAuth.
const (
	ClientID     = "Iv1.standin"
	ClientSecret = "0123456789abcdef0123456789abcdef01234567"
)

// signIn is a person's sign-in that returns to the application.
type signIn struct {
	user     *user
	redirect string
	expires  time.Time
	// challenge is the S256 code challenge, or "" if there was none.
	challenge string
}

// codeLife is the lifetime of a code.
const codeLife = 10 * time.Minute

// site serves pages of github.com, which are OAuth, pull requests in plain text, and raw files. s.mu is held.
func (c *call) site(path string) (answer, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case path == "/login/oauth/authorize" && c.r.Method == http.MethodGet:
		return c.authorize(), true
	case path == "/login/oauth/access_token" && c.r.Method == http.MethodPost:
		return c.exchange(), true
	case path == "/api/v3/applications/"+ClientID+"/token" && c.r.Method == http.MethodDelete:
		return c.revoke(), true
	case c.r.Method == http.MethodGet && len(parts) == 4 && parts[0] == c.s.Account && parts[2] == "pull":
		r := c.s.repo(parts[1])
		number, _ := strconv.Atoi(strings.TrimSuffix(parts[3], ".diff"))
		if r == nil || r.pull(number) == nil {
			return plain(http.StatusNotFound, "Not Found"), true
		}
		if strings.HasSuffix(parts[3], ".diff") {
			return plain(http.StatusOK, c.s.wholeDiff(r.pull(number))), true
		}
		return plain(http.StatusOK, c.s.view(r.pull(number)).String()), true
	case c.r.Method == http.MethodGet && len(parts) > 4 && parts[0] == c.s.Account &&
		(parts[2] == "blob" || parts[2] == "raw"):
		return c.blob(parts[1], parts[2], parts[3], strings.Join(parts[4:], "/")), true
	}
	return answer{}, false
}

// blob serves a file of a commit. ?raw=true on its page redirects to it, as at GitHub.
func (c *call) blob(name, page, commit, file string) answer {
	r := c.s.repo(name)
	if r == nil {
		return plain(http.StatusNotFound, "Not Found")
	}
	content, err := c.s.host().File(r.dir, commit, file)
	if err != nil {
		return plain(http.StatusNotFound, "Not Found")
	}
	if page == "raw" {
		return answer{status: http.StatusOK, kind: http.DetectContentType(content), body: content}
	}
	if c.r.URL.Query().Get("raw") != "true" {
		return plain(http.StatusOK, fmt.Sprintf("%s, %d bytes", file, len(content)))
	}
	to := url.URL{Path: "/" + c.s.Account + "/" + name + "/raw/" + commit + "/" + file}
	return answer{status: http.StatusFound, header: http.Header{"Location": {to.String()}}}
}

// String returns the page of a pull request as text.
func (p Pull) String() string {
	var b strings.Builder
	state := p.State
	if p.Merged {
		state = "merged"
	}
	if p.Draft {
		state = "draft, " + state
	}
	fmt.Fprintf(&b, "%s #%d (%s)\n%s wants to merge %s into %s\n", p.Title, p.Number, state, p.Author, p.Head, p.Base)
	if len(p.Labels) > 0 {
		fmt.Fprintf(&b, "labels: %s\n", strings.Join(p.Labels, ", "))
	}
	if len(p.Requested) > 0 {
		fmt.Fprintf(&b, "waits for the review of %s\n", strings.Join(p.Requested, ", "))
	}
	fmt.Fprintf(&b, "\n%s\n", p.Body)
	for _, v := range p.Reviews {
		if v.State != "commented" || v.Body != "" {
			fmt.Fprintf(&b, "\n-- %s: %s\n%s\n", v.User, v.State, v.Body)
		}
	}
	for _, c := range p.Lines {
		answer := ""
		if c.ReplyTo != 0 {
			answer = " answers"
		}
		fmt.Fprintf(&b, "\n-- %s%s on %s:%d\n%s\n", c.User, answer, c.Path, c.Line, c.Body)
	}
	for _, c := range p.Comments {
		fmt.Fprintf(&b, "\n-- %s\n%s\n", c.User, c.Body)
	}
	return b.String()
}

// authorize redirects the person to the application with a code. The parameter login is the person, because there are
// no sessions here.
func (c *call) authorize() answer {
	q := c.r.URL.Query()
	back, err := url.Parse(q.Get("redirect_uri"))
	u := c.s.state.users[q.Get("login")]
	if q.Get("client_id") != ClientID || err != nil || back.Host == "" || u == nil {
		return plain(http.StatusNotFound, "Not Found")
	}
	if q.Get("state") == "" {
		c.s.complain("a sign-in without a state")
	}
	code := strings.ToLower(rand.Text())
	c.s.state.codes[code] = &signIn{user: u, redirect: q.Get("redirect_uri"), expires: c.s.Now().Add(codeLife),
		challenge: q.Get("code_challenge")}
	to := back.Query()
	to.Set("code", code)
	to.Set("state", q.Get("state"))
	back.RawQuery = to.Encode()
	return answer{status: http.StatusFound, header: http.Header{"Location": {back.String()}}, body: []byte{},
		kind: "text/html"}
}

// exchange returns a token for a code. Errors have the status 200, as at GitHub.
func (c *call) exchange() answer {
	fail := func(code, text string) answer {
		return ok(object{"error": code, "error_description": text,
			"error_uri": "https://docs.github.com/apps/managing-oauth-apps/troubleshooting-oauth-app-access-token-request-errors/"})
	}
	if err := c.r.ParseForm(); err != nil {
		return plain(http.StatusBadRequest, "Bad Request")
	}
	if !strings.Contains(c.r.Header.Get("Accept"), "json") {
		c.s.complain("the code was exchanged without Accept: application/json, which is answered with a form")
	}
	if c.r.URL.Query().Has("client_secret") {
		c.s.complain("the client's secret in a URL")
	}
	if c.r.Form.Get("client_id") != ClientID || c.r.Form.Get("client_secret") != ClientSecret {
		return fail("incorrect_client_credentials", "The client_id and/or client_secret passed are incorrect.")
	}
	code := c.r.Form.Get("code")
	in := c.s.state.codes[code]
	delete(c.s.state.codes, code) // valid once
	if in == nil || !c.s.Now().Before(in.expires) {
		return fail("bad_verification_code", "The code passed is incorrect or expired.")
	}
	if given := c.r.Form.Get("redirect_uri"); given != "" && given != in.redirect {
		return fail("redirect_uri_mismatch", "The redirect_uri MUST match the registered callback URL for this application.")
	}
	if in.challenge != "" && challenge(c.r.Form.Get("code_verifier")) != in.challenge {
		return fail("bad_verification_code", "The code_verifier is wrong.")
	}
	t := c.s.token("gho_", &actor{user: in.user})
	return ok(object{"access_token": t.token, "token_type": "bearer", "scope": ""})
}

// revoke revokes a token of the client.
func (c *call) revoke() answer {
	if id, secret, _ := c.r.BasicAuth(); id != ClientID || secret != ClientSecret {
		return notFound.answer()
	}
	var ask struct {
		Token string `json:"access_token"`
	}
	if err := json.NewDecoder(io.LimitReader(c.r.Body, maxBody)).Decode(&ask); err != nil {
		return refused(http.StatusBadRequest, "Problems parsing JSON")
	}
	if !strings.HasPrefix(ask.Token, "gho_") || c.s.state.tokens[ask.Token] == nil {
		return notFound.answer()
	}
	delete(c.s.state.tokens, ask.Token)
	return nothing()
}

// challenge returns the S256 challenge of a verifier (RFC 7636).
func challenge(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
