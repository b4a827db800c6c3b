package gitd

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/golang-jwt/jwt/v5"
)

// Grant says what its bearer may do. It travels as an EdDSA JWT (RFC 8037)
// and is never stored.
type Grant struct {
	// Subject names the bearer for logs, commits and `whoami`: "run:fancy-mallard", "admin".
	Subject string `json:"sub"`
	// Person is whom commits are attributed to that the bearer asks for; gitd ignores
	// it. Zero: they are known by Subject alone.
	Person Person `json:"person,omitzero"`
	// Repo is the repository's name; "*" means every repository.
	Repo string `json:"repo"`
	// Read lists the refs that may be seen and fetched: full names, or a
	// prefix ending in "/*". Empty means all refs. Without the scope "read" no ref
	// may be seen.
	Read []string `json:"read,omitempty"`
	// Write lists the refs that may be updated, in the same form. Empty means
	// none, and so does a grant without the scope "write". Refs below refs/ramus/ hold
	// what ramus itself writes: only a pattern that begins with refs/ramus/ covers them.
	Write []string `json:"write,omitempty"`
	// Force allows updates that are no fast-forward; Delete allows deletions.
	Force  bool `json:"force,omitempty"`
	Delete bool `json:"delete,omitempty"`
	// Scopes are what the bearer may do, see [Grant.Has]. Empty means nothing.
	Scopes []string `json:"scopes,omitempty"`
	// Expires is when the grant ends.
	Expires time.Time `json:"exp"`
}

const (
	// tokenMax bounds a token before anything of it is decoded.
	tokenMax = 16 << 10
	issuer   = "ramus"
	// ownRefs is where ramus keeps journals and base manifests.
	ownRefs = "refs/ramus/"
)

// StageRefs is where commits are kept that a container pushed while its branch moved or
// was deleted, until they are merged or kept elsewhere.
const StageRefs = ownRefs + "stage"

// check refuses a grant that could not mean what its author meant.
func (g Grant) check() error {
	if g.Subject == "" || len(g.Subject) > 200 || strings.ContainsFunc(g.Subject, unicode.IsControl) {
		return fmt.Errorf("cannot use a grant with the subject %q: %w", g.Subject, ErrInvalid)
	}
	for _, text := range []string{g.Person.Name, g.Person.Email} {
		if len(text) > 200 || strings.ContainsFunc(text, unicode.IsControl) {
			return fmt.Errorf("cannot use a grant of the person %q: %w", g.Person, ErrInvalid)
		}
	}
	if g.Repo != "*" {
		if err := CheckName(g.Repo); err != nil {
			return fmt.Errorf("cannot use a grant: %w", err)
		}
	}
	for _, p := range slices.Concat(g.Read, g.Write) {
		if p == "refs/*" {
			continue
		}
		if err := CheckRef(strings.TrimSuffix(p, "/*")); err != nil {
			return fmt.Errorf("cannot use a grant with the pattern %.80q: %w", p, err)
		}
	}
	return nil
}

// The scopes of a grant. ScopeWrite includes ScopeRead, and ScopeAdmin includes all.
const (
	ScopeRead    = "read"    // look at repositories, and fetch
	ScopeWrite   = "write"   // change them, and push
	ScopeAdmin   = "admin"   // administer the server
	ScopeMetrics = "metrics" // read the numbers for Prometheus
)

// Scopes lists the scopes that a grant may have.
func Scopes() []string { return []string{ScopeRead, ScopeWrite, ScopeAdmin, ScopeMetrics} }

// Has tells whether the grant includes the scope. This method, MayRead, MayReadRef,
// MayWrite and MayWriteRef are the one place that decides what a bearer may do: git
// over HTTP and SSH, the API and MCP ask them alike.
func (g Grant) Has(scope string) bool {
	switch {
	case slices.Contains(g.Scopes, scope), slices.Contains(g.Scopes, ScopeAdmin):
		return true
	case scope == ScopeRead:
		return slices.Contains(g.Scopes, ScopeWrite)
	}
	return false
}

// Covers tells whether the grant is for the repository.
func (g Grant) Covers(repo string) bool { return repo != "" && (g.Repo == "*" || g.Repo == repo) }

// MayRead tells whether the bearer may look at the repository, as far as [Grant.MayReadRef] allows.
func (g Grant) MayRead(repo string) bool { return g.Covers(repo) && g.Has(ScopeRead) }

// MayReadRef tells whether the bearer may see and fetch a ref of the repository, given by
// its full name.
func (g Grant) MayReadRef(repo, ref string) bool { return g.MayRead(repo) && g.effective().shows(ref) }

// MayWrite tells whether the bearer may change something in the repository, as far as
// [Grant.MayWriteRef] allows.
func (g Grant) MayWrite(repo string) bool { return g.Covers(repo) && g.Has(ScopeWrite) }

// MayWriteRef tells whether the bearer may update a ref of the repository, given by its
// full name.
func (g Grant) MayWriteRef(repo, ref string) bool { return g.MayWrite(repo) && g.writes(ref) }

// ReadsAll tells whether the bearer sees all refs of the repositories that the grant is for.
func (g Grant) ReadsAll() bool { return g.Has(ScopeRead) && len(g.Read) == 0 }

// effective is the grant without what its scopes do not allow.
func (g Grant) effective() Grant {
	if !g.Has(ScopeWrite) {
		g.Write = nil
	}
	return g
}

// writes tells whether ref is among those that may be updated.
func (g Grant) writes(ref string) bool {
	return slices.ContainsFunc(g.Write, func(p string) bool {
		if strings.HasPrefix(ref, ownRefs) && !strings.HasPrefix(p, ownRefs) {
			return false
		}
		return matchRef(p, ref)
	})
}

// shows tells whether ref may be seen, for a bearer with the scope. What may be written
// may be seen: git cannot push what it must not know.
func (g Grant) shows(ref string) bool {
	if len(g.Read) == 0 {
		return true
	}
	return g.writes(ref) || slices.ContainsFunc(g.Read, func(p string) bool { return matchRef(p, ref) })
}

// matchRef matches a full ref name, or a prefix that ends in "/*".
func matchRef(pattern, ref string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok && strings.HasSuffix(prefix, "/") {
		return strings.HasPrefix(ref, prefix)
	}
	return pattern == ref
}

// claims is a grant as a JWT. The registered names are RFC 7519's.
type claims struct {
	Name   string   `json:"name,omitempty"`  // of the person, as OpenID Connect has it
	Email  string   `json:"email,omitempty"` // the same
	Repo   string   `json:"repo"`
	Read   []string `json:"read,omitempty"`
	Write  []string `json:"write,omitempty"`
	Force  bool     `json:"force,omitempty"`
	Delete bool     `json:"delete,omitempty"`
	Scopes []string `json:"scopes,omitempty"`
	jwt.RegisteredClaims
}

// Sign makes a token of a grant. An expiry is required; a token keeps it to
// the second.
func (s *Server) Sign(g Grant) (string, error) {
	if err := g.check(); err != nil {
		return "", err
	}
	if g.Expires.IsZero() {
		return "", fmt.Errorf("cannot sign a grant that never ends: %w", ErrInvalid)
	}
	t := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims{
		Name: g.Person.Name, Email: g.Person.Email, Repo: g.Repo, Read: g.Read, Write: g.Write, Force: g.Force, Delete: g.Delete, Scopes: g.Scopes,
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: issuer, Subject: g.Subject,
			IssuedAt: jwt.NewNumericDate(s.now()), ExpiresAt: jwt.NewNumericDate(g.Expires),
		},
	})
	t.Header["kid"] = s.keyID
	token, err := t.SignedString(s.key)
	if err != nil {
		return "", fmt.Errorf("cannot sign a grant: %w", err)
	}
	if len(token) > tokenMax {
		return "", fmt.Errorf("cannot sign a grant: the token would have %d bytes: %w", len(token), ErrTooLarge)
	}
	return token, nil
}

// tokensMax bounds the tokens that are known to be good.
const tokensMax = 1000

// knownTokens are tokens whose signatures were found good, by their hashes: checking one
// costs more than most of what is asked for with it.
type knownTokens struct {
	mu     sync.Mutex // guards grants
	grants map[[sha256.Size]byte]Grant
}

// Verify reads a token; the error, which is [ErrDenied], says why it is refused.
func (s *Server) Verify(token string) (Grant, error) {
	if len(token) > tokenMax {
		return Grant{}, fmt.Errorf("cannot accept the token: %d bytes: %w", len(token), ErrDenied)
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

func (s *Server) verify(token string) (Grant, error) {
	var c claims
	parser := jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}),
		jwt.WithIssuer(issuer),
		jwt.WithExpirationRequired(),
		jwt.WithStrictDecoding(),
		jwt.WithTimeFunc(s.now),
	)
	_, err := parser.ParseWithClaims(token, &c, func(t *jwt.Token) (any, error) {
		if kid, _ := t.Header["kid"].(string); kid != s.keyID {
			return nil, fmt.Errorf("signed by another key")
		}
		return s.key.Public(), nil
	})
	if err != nil {
		return Grant{}, fmt.Errorf("cannot accept the token: %w: %w", err, ErrDenied)
	}
	g := Grant{
		Subject: c.Subject, Person: Person{Name: c.Name, Email: c.Email}, Repo: c.Repo, Read: c.Read, Write: c.Write, Force: c.Force, Delete: c.Delete,
		Scopes: c.Scopes, Expires: c.ExpiresAt.Time,
	}
	if err := g.check(); err != nil {
		return Grant{}, fmt.Errorf("cannot accept the token: %w: %w", err, ErrDenied)
	}
	return g, nil
}
