package grant

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/ramus-dev/ramus/gitd/object"
)

const (
	// tokenMax bounds the bytes of a token before anything of it is decoded.
	tokenMax = 16 << 10
	issuer   = "ramus"
)

// claims is a grant as a JWT. The registered names are those of RFC 7519.
type claims struct {
	Name   string   `json:"name,omitempty"`  // of the person, as in OpenID Connect
	Email  string   `json:"email,omitempty"` // of the person
	Repo   string   `json:"repo"`
	Read   []string `json:"read,omitempty"`
	Write  []string `json:"write,omitempty"`
	Force  bool     `json:"force,omitempty"`
	Delete bool     `json:"delete,omitempty"`
	Scopes []string `json:"scopes,omitempty"`
	jwt.RegisteredClaims
}

// Sign returns the token of a grant. The grant must have an expiry, which a token keeps to the second.
func (s *Signer) Sign(g Grant) (string, error) {
	if err := g.Check(); err != nil {
		return "", err
	}
	if g.Expires.IsZero() {
		return "", fmt.Errorf("cannot sign a grant that never ends: %w", object.ErrInvalid)
	}
	t := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims{
		Name: g.Person.Name, Email: g.Person.Email, Repo: g.Repo, Read: g.Read, Write: g.Write, Force: g.Force,
		Delete: g.Delete, Scopes: g.Scopes,
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: issuer, ID: g.ID, Subject: g.Subject,
			IssuedAt: jwt.NewNumericDate(s.now()), ExpiresAt: jwt.NewNumericDate(g.Expires),
		},
	})
	t.Header["kid"] = s.id
	token, err := t.SignedString(s.key)
	if err != nil {
		return "", fmt.Errorf("cannot sign a grant: %w", err)
	}
	if len(token) > tokenMax {
		return "", fmt.Errorf("cannot sign a grant: the token would have %d bytes: %w", len(token), object.ErrTooLarge)
	}
	return token, nil
}

// Signer makes tokens of grants and verifies them. It is safe for concurrent use.
type Signer struct {
	key    ed25519.PrivateKey
	id     string // of key
	now    func() time.Time
	tokens knownTokens
}

// NewSigner returns a signer with a key of the server and its clock.
func NewSigner(key ed25519.PrivateKey, now func() time.Time) *Signer {
	return &Signer{key: key, id: KeyID(key.Public().(ed25519.PublicKey)), now: now}
}

// tokensMax bounds the number of tokens that are known to be valid.
const tokensMax = 1000

// knownTokens holds the grants of tokens with valid signatures, by the hashes of the tokens. Verifying a
// signature costs more than most requests.
type knownTokens struct {
	mu     sync.Mutex // guards grants
	grants map[[sha256.Size]byte]Grant
}

// Verify returns the grant of a token. The error is [object.ErrDenied] and says why the token is refused.
func (s *Signer) Verify(token string) (Grant, error) {
	if len(token) > tokenMax {
		return Grant{}, fmt.Errorf("cannot accept the token: %d bytes: %w", len(token), object.ErrDenied)
	}
	name := sha256.Sum256([]byte(token))
	known := &s.tokens
	known.mu.Lock()
	g, ok := known.grants[name]
	known.mu.Unlock()
	if ok && s.now().Before(g.Expires) {
		g.Read, g.Write, g.Scopes = slices.Clone(g.Read), slices.Clone(g.Write), slices.Clone(g.Scopes)
		return g, nil
	}
	g, err := s.verify(token)
	known.mu.Lock()
	defer known.mu.Unlock()
	switch {
	case err != nil:
		delete(known.grants, name)
		return g, err
	case known.grants == nil, len(known.grants) >= tokensMax:
		known.grants = map[[sha256.Size]byte]Grant{}
	}
	kept := g
	kept.Read, kept.Write, kept.Scopes = slices.Clone(g.Read), slices.Clone(g.Write), slices.Clone(g.Scopes)
	known.grants[name] = kept
	return g, nil
}

// verify is Verify without the known tokens.
func (s *Signer) verify(token string) (Grant, error) {
	var c claims
	parser := jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}),
		jwt.WithIssuer(issuer),
		jwt.WithExpirationRequired(),
		jwt.WithStrictDecoding(),
		jwt.WithTimeFunc(s.now),
	)
	_, err := parser.ParseWithClaims(token, &c, func(t *jwt.Token) (any, error) {
		if kid, _ := t.Header["kid"].(string); kid != s.id {
			return nil, fmt.Errorf("signed by another key")
		}
		return s.key.Public(), nil
	})
	if err != nil {
		return Grant{}, fmt.Errorf("cannot accept the token: %w: %w", err, object.ErrDenied)
	}
	g := Grant{
		Subject: c.Subject, Person: object.Person{Name: c.Name, Email: c.Email}, Repo: c.Repo, Read: c.Read,
		Write: c.Write, Force: c.Force, Delete: c.Delete,
		Scopes: c.Scopes, Expires: c.ExpiresAt.Time,
	}
	if g.ID = c.ID; g.ID == "" {
		g.ID = IDOf(token)
	}
	if err := g.Check(); err != nil {
		return Grant{}, fmt.Errorf("cannot accept the token: %w: %w", err, object.ErrDenied)
	}
	return g, nil
}
