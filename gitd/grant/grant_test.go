package grant

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/ramus-dev/ramus/gitd/object"
)

// openSigner returns a signer with the key in keyFile, or with a new one if that is empty.
func openSigner(t testing.TB, keyFile string) *Signer {
	t.Helper()
	key, err := LoadKey(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	return NewSigner(key, time.Now)
}

func TestToken(t *testing.T) {
	s := openSigner(t, "")
	in := Grant{
		ID: "1", Subject: "run:fancy-mallard", Person: object.Person{Name: "Ann A.", Email: "ann@example.org"},
		Repo: "team/a", Read: []string{"refs/heads/main"}, Write: []string{"refs/heads/ramus/*"},
		Force: true, Delete: true, Scopes: []string{"read"}, Expires: time.Now().Add(time.Hour).Truncate(time.Second),
	}
	token, err := s.Sign(in)
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.Verify(token)
	if err != nil || !reflect.DeepEqual(in, out) {
		t.Fatalf("%+v became %+v, %v", in, out, err)
	}
	for what, g := range map[string]Grant{
		"no expiry":      {Subject: "x", Repo: "a"},
		"no subject":     {Repo: "a", Expires: in.Expires},
		"no repository":  {Subject: "x", Expires: in.Expires},
		"bad repository": {Subject: "x", Repo: "../a", Expires: in.Expires},
		"bad pattern":    {Subject: "x", Repo: "a", Write: []string{"refs/heads/*/x"}, Expires: in.Expires},
		"all refs":       {Subject: "x", Repo: "a", Write: []string{"*"}, Expires: in.Expires},
		"bad read":       {Subject: "x", Repo: "a", Read: []string{"!refs/heads/a"}, Expires: in.Expires},
		"control":        {Subject: "x\n", Repo: "a", Expires: in.Expires},
		"control name":   {Subject: "x", Person: object.Person{Name: "a\nb"}, Repo: "a", Expires: in.Expires},
		"long address": {Subject: "x", Person: object.Person{Email: strings.Repeat("x", 201)}, Repo: "a",
			Expires: in.Expires},
		"too long": {Subject: "x", Repo: "a", Scopes: []string{strings.Repeat("x", tokenMax)}, Expires: in.Expires},
	} {
		if _, err := s.Sign(g); !errors.Is(err, object.ErrInvalid) && !errors.Is(err, object.ErrTooLarge) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestTokenSize checks that a token of any grant is either refused when it is made or accepted when it comes back.
func TestTokenSize(t *testing.T) {
	s := openSigner(t, "")
	longest := 0
	for n := tokenMax*3/4 - 500; n < tokenMax*3/4; n++ {
		token, err := s.Sign(Grant{Subject: "x", Repo: "a", Scopes: []string{strings.Repeat("x", n)},
			Expires: time.Now().Add(time.Hour)})
		if err != nil {
			if !errors.Is(err, object.ErrTooLarge) {
				t.Error(err)
			}
			break
		}
		if longest = len(token); longest > tokenMax-8 {
			if _, err := s.Verify(token); err != nil {
				t.Errorf("a token of %d bytes: %v", longest, err)
			}
		}
	}
	if longest != tokenMax {
		t.Errorf("the longest token has %d bytes, want %d", longest, tokenMax)
	}
}

// TestTokenEnds checks that a token is refused after its expiry, and that callers cannot change the
// grants of others.
func TestTokenEnds(t *testing.T) {
	var ahead atomic.Int64 // of the clock, as a Duration
	key, err := LoadKey("")
	if err != nil {
		t.Fatal(err)
	}
	s := NewSigner(key, func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) })
	token, err := s.Sign(Grant{Subject: "x", Repo: "a", Read: []string{"refs/heads/main"},
		Expires: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		g, err := s.Verify(token)
		if err != nil || g.Read[0] != "refs/heads/main" {
			t.Fatal(g, err)
		}
		g.Read[0] = "refs/*"
	}
	ahead.Store(int64(2 * time.Hour))
	for range 2 {
		if _, err := s.Verify(token); !errors.Is(err, object.ErrDenied) {
			t.Error(err)
		}
	}
}

// TestTokenTampering checks that a changed token is refused.
func TestTokenTampering(t *testing.T) {
	s := openSigner(t, "")
	now := time.Now()
	token, err := s.Sign(Grant{Subject: "x", Repo: "a", Expires: now.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(token, ".")
	body, sig, _ := strings.Cut(rest, ".")
	b64 := base64.RawURLEncoding.EncodeToString
	public := s.key.Public().(ed25519.PublicKey)
	spki, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	header := func(alg string) string {
		return b64([]byte(`{"alg":"` + alg + `","typ":"JWT","kid":"` + s.id + `"}`))
	}
	hs := func(alg string, key []byte) string {
		signed := header(alg) + "." + body
		m := hmac.New(sha256.New, key)
		if alg == "HS512" {
			m = hmac.New(sha512.New, key)
		}
		m.Write([]byte(signed))
		return signed + "." + b64(m.Sum(nil))
	}
	signed := func(change func(*jwt.Token, *claims), key ed25519.PrivateKey) string {
		c := claims{Repo: "a", RegisteredClaims: jwt.RegisteredClaims{
			Issuer: issuer, Subject: "x", ExpiresAt: jwt.NewNumericDate(now.Add(time.Hour)),
		}}
		tok := jwt.NewWithClaims(jwt.SigningMethodEdDSA, &c)
		tok.Header["kid"] = s.id
		change(tok, &c)
		text, err := tok.SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if _, err := s.Verify(signed(func(*jwt.Token, *claims) {}, s.key)); err != nil {
		t.Fatalf("the untouched token: %v", err)
	}
	_, foreign, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	widened, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		t.Fatal(err)
	}
	widened = []byte(strings.Replace(string(widened), `"repo":"a"`, `"repo":"*"`, 1))
	for what, bad := range map[string]string{
		"empty":               "",
		"rubbish":             "a.b.c",
		"alg none":            header("none") + "." + body + ".",
		"alg None, signature": header("None") + "." + body + "." + sig,
		"HS256, public key":   hs("HS256", public),
		"HS512, public key":   hs("HS512", public),
		"HS256, SPKI":         hs("HS256", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki})),
		"alg ES256":           header("ES256") + "." + body + "." + sig,
		"no signature":        head + "." + body + ".",
		"other claims":        head + "." + b64(widened) + "." + sig,
		"foreign key":         signed(func(*jwt.Token, *claims) {}, foreign),
		"foreign kid": signed(func(t *jwt.Token,
			_ *claims) {
			t.Header["kid"] = KeyID(foreign.Public().(ed25519.PublicKey))
		}, s.key),
		"no kid": signed(func(t *jwt.Token, _ *claims) { delete(t.Header, "kid") }, s.key),
		"ended": signed(func(_ *jwt.Token,
			c *claims) {
			c.ExpiresAt = jwt.NewNumericDate(now.Add(-time.Second))
		}, s.key),
		"endless":      signed(func(_ *jwt.Token, c *claims) { c.ExpiresAt = nil }, s.key),
		"other issuer": signed(func(_ *jwt.Token, c *claims) { c.Issuer = "x" }, s.key),
		"not yet": signed(func(_ *jwt.Token,
			c *claims) {
			c.NotBefore = jwt.NewNumericDate(now.Add(time.Hour))
		}, s.key),
		"no repository": signed(func(_ *jwt.Token, c *claims) { c.Repo = "" }, s.key),
		"bad pattern":   signed(func(_ *jwt.Token, c *claims) { c.Write = []string{"*"} }, s.key),
		"padded":        token + "=",
		"huge":          token + strings.Repeat("A", tokenMax),
	} {
		if g, err := s.Verify(bad); !errors.Is(err, object.ErrDenied) {
			t.Errorf("%s: %+v, %v", what, g, err)
		}
	}
}

func FuzzVerify(f *testing.F) {
	s := openSigner(f, "")
	token, err := s.Sign(Grant{Subject: "x", Repo: "a", Expires: time.Now().Add(time.Hour)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(token)
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, text string) {
		if g, err := s.Verify(text); err == nil && text != token {
			t.Errorf("accepted %q: %+v", text, g)
		}
	})
}

func TestKeyFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "key.pem")
	// Two servers that start at the same time use the same key.
	ids := make([]string, 4)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			if key, err := LoadKey(file); err != nil {
				t.Error(err)
			} else {
				ids[i] = KeyID(key.Public().(ed25519.PublicKey))
			}
		})
	}
	wg.Wait()
	if len(slices.Compact(ids)) != 1 {
		t.Errorf("keys %v", ids)
	}
	st, err := os.Stat(file)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", st.Mode(), err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(file), ".key-*")); len(left) > 0 {
		t.Errorf("still there: %v, %v", left, err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o660} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadKey(file); !errors.Is(err, object.ErrInvalid) || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("mode %04o: %v", mode, err)
		}
	}
	for what, text := range map[string]string{"empty": "", "no PEM": "x",
		"no key": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
		bad := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(bad, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadKey(bad); !errors.Is(err, object.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := LoadKey(t.TempDir()); err == nil {
		t.Error("a folder was taken for a key")
	}
}

func TestJWKS(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key.pem")
	a, b := openSigner(t, file), openSigner(t, file)
	if string(a.JWKS()) != string(b.JWKS()) {
		t.Error("the key does not survive a restart")
	}
	var set struct{ Keys []map[string]string }
	if err := json.Unmarshal(a.JWKS(), &set); err != nil || len(set.Keys) != 1 {
		t.Fatal(err, set)
	}
	k := set.Keys[0]
	x, err := base64.RawURLEncoding.DecodeString(k["x"])
	if err != nil || k["kty"] != "OKP" || k["crv"] != "Ed25519" || k["alg"] != "EdDSA" || k["use"] != "sig" || k["d"] != "" {
		t.Errorf("%v", k)
	}
	token, err := a.Sign(Grant{Subject: "x", Repo: "a", Expires: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	// Anybody can verify a token with the published key.
	parsed, err := jwt.Parse(token, func(*jwt.Token) (any, error) { return ed25519.PublicKey(x), nil })
	if err != nil || parsed.Header["kid"] != k["kid"] {
		t.Errorf("%v, %v", parsed.Header, err)
	}
}
