package signin

import (
	"net/http/httptest"
	"testing"

	"github.com/ramus-dev/ramus/gateway/route"
)

func TestAttempt(t *testing.T) {
	a := newAttempt(httptest.NewRequest("GET", "/auth/github?to=/page%3Fa%3Db&for=token", nil))
	if got, ok := decodeAttempt(a.encode()); !ok || got != a || a.To != "/page?a=b" || !a.Token {
		t.Errorf("%+v became %+v", a, got)
	}
	if b := newAttempt(httptest.NewRequest("GET", "/auth/github?to=//evil.example", nil)); b.To != "/" ||
		b.State == a.State || b.nonce() == a.nonce() || len(b.State) < 26 || len(b.Verifier) < 43 { // RFC 7636, section 4.1
		t.Errorf("%+v", b)
	}
}

func FuzzAttempt(f *testing.F) {
	f.Add("a.b.s.L3g")
	f.Add("a.b.t.Ly9ldmlsLmV4YW1wbGU")
	f.Add("...")
	f.Add(attempt{State: "s", Verifier: "v", To: "/x"}.encode())
	f.Fuzz(func(t *testing.T, value string) {
		a, ok := decodeAttempt(value)
		if !ok {
			return
		}
		if a.State == "" || a.Verifier == "" || a.To != route.OwnPath(a.To) {
			t.Errorf("%q is taken as %+v", value, a)
		}
		if again, ok := decodeAttempt(a.encode()); !ok || again != a {
			t.Errorf("%+v became %+v", a, again)
		}
	})
}
