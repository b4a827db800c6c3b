package gitd

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// loadKey returns the Ed25519 key kept in file, which is made if it is
// missing; an empty name gives a key that is kept nowhere.
func loadKey(file string) (ed25519.PrivateKey, error) {
	if file == "" {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	key, err := readKey(file)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeKey(file); err != nil {
			return nil, fmt.Errorf("cannot make the key file %s: %w", file, err)
		}
		key, err = readKey(file)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot use the key file %s: %w", file, err)
	}
	return key, nil
}

// readKey reads a PKCS#8 PEM file that nobody but its owner can read.
func readKey(file string) (ed25519.PrivateKey, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// Of the open file, so that what is checked is what is read.
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("not a regular file: %w", ErrInvalid)
	}
	if mode := st.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("mode %04o lets others read it (chmod 600 would do): %w", mode, ErrInvalid)
	}
	text, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("no PEM block PRIVATE KEY (PKCS#8): %w", ErrInvalid)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrInvalid)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%T is no Ed25519 key: %w", parsed, ErrInvalid)
	}
	return key, nil
}

// makeKey writes a new key under a name of its own and links it into place, so
// that of two servers that start at once both use the same key, and a crash
// leaves a whole key or none.
func makeKey(file string) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, ".key-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if err := pem.Encode(tmp, &pem.Block{Type: "PRIVATE KEY", Bytes: der}); err != nil {
		return err
	}
	if err := tmp.Sync(); err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), file); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// jwk is a public key as RFC 7517 and RFC 8037 write it. The order of the
// first three fields is that of RFC 7638, which hashes them for a name.
type jwk struct {
	Curve string `json:"crv"`
	Type  string `json:"kty"`
	X     string `json:"x"`
	KeyID string `json:"kid,omitempty"`
	Alg   string `json:"alg,omitempty"`
	Use   string `json:"use,omitempty"`
}

func newJWK(key ed25519.PublicKey) jwk {
	return jwk{Curve: "Ed25519", Type: "OKP", X: base64.RawURLEncoding.EncodeToString(key)}
}

// keyID names a key by its thumbprint (RFC 7638).
func keyID(key ed25519.PublicKey) string {
	text, err := json.Marshal(newJWK(key))
	if err != nil {
		panic(err) // strings always marshal
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// JWKS is the public half of the signing key as a JSON Web Key Set (RFC 7517, RFC 8037).
func (s *Server) JWKS() []byte {
	k := newJWK(s.key.Public().(ed25519.PublicKey))
	k.KeyID, k.Alg, k.Use = s.keyID, "EdDSA", "sig"
	text, err := json.Marshal(struct {
		Keys []jwk `json:"keys"`
	}{[]jwk{k}})
	if err != nil {
		panic(err) // strings always marshal
	}
	return text
}
