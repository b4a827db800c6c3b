package signin

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gateway/route"
)

// attemptLife is how long somebody may take at a provider, whose codes live as long.
const attemptLife = 10 * time.Minute

// attempt is one sign-in in progress. It is in a cookie of the browser that began it.
type attempt struct {
	State    string // returned with the code, and proves that it is the same browser
	Verifier string // required to use the code
	To       string // the path that the browser comes back to
	Token    bool   // ends in a token instead of a session
}

// newAttempt returns an attempt that cannot be guessed. A browser asks for a token with ?for=token.
func newAttempt(r *http.Request) attempt {
	q := r.URL.Query()
	return attempt{State: rand.Text(), Verifier: rand.Text() + rand.Text(),
		To: route.OwnPath(q.Get(route.BackParameter)), Token: q.Get("for") == "token"}
}

// encode returns the attempt as the value of a cookie.
func (a attempt) encode() string {
	kind := "s"
	if a.Token {
		kind = "t"
	}
	return strings.Join([]string{a.State, a.Verifier, kind, base64.RawURLEncoding.EncodeToString([]byte(a.To))}, ".")
}

// decodeAttempt returns the attempt of a cookie. Returns false if it is none.
func decodeAttempt(value string) (attempt, bool) {
	parts := strings.Split(value, ".")
	if len(parts) != 4 || parts[0] == "" || parts[1] == "" || parts[2] != "s" && parts[2] != "t" {
		return attempt{}, false
	}
	to, err := base64.RawURLEncoding.Strict().DecodeString(parts[3])
	if err != nil {
		return attempt{}, false
	}
	return attempt{State: parts[0], Verifier: parts[1], To: route.OwnPath(string(to)), Token: parts[2] == "t"}, true
}

// nonce returns a value that a provider puts into the token for this attempt alone.
func (a attempt) nonce() string {
	sum := sha256.Sum256([]byte("nonce\x00" + a.Verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// attemptCookie returns the cookie that keeps an attempt in the browser that began it. It lets nobody in.
func attemptCookie(c *route.Call, value string, life time.Duration) *http.Cookie {
	k := &http.Cookie{Name: route.AttemptCookie, Value: value, Path: "/", MaxAge: int(life / time.Second),
		HttpOnly: true, SameSite: http.SameSiteLaxMode}
	if c.Secure() {
		// No other host of the domain can set a cookie of such a name.
		k.Name, k.Secure = "__Host-"+k.Name, true
	}
	return k
}

// beginAttempt sets the cookie of a new attempt.
func beginAttempt(c *route.Call) attempt {
	a := newAttempt(c.R)
	http.SetCookie(c.W, attemptCookie(c, a.encode(), attemptLife))
	return a
}

// endAttempt returns the attempt of a browser that came back with its state, and removes its cookie. again is the hint about a new
// attempt.
func endAttempt(c *route.Call, again string) (attempt, error) {
	cookie, err := c.R.Cookie(attemptCookie(c, "", 0).Name)
	if err != nil {
		cookie = &http.Cookie{}
	}
	http.SetCookie(c.W, attemptCookie(c, "", -time.Second))
	c.W.Header().Set("Cache-Control", "no-store")
	a, ok := decodeAttempt(cookie.Value)
	if !ok || subtle.ConstantTimeCompare([]byte(a.State), []byte(c.R.URL.Query().Get("state"))) != 1 {
		return a, route.NewProblem(route.KindInvalid,
			"this browser has not begun to sign in, or more than ten minutes ago").WithHint(again)
	}
	return a, nil
}
