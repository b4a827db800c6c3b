package grant

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

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/internal/durable"
)

// LoadKey returns the Ed25519 key in file. It makes the file if it does not exist. If file is empty, the
// key is new and not stored.
func LoadKey(file string) (ed25519.PrivateKey, error) {
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

// readKey reads a PKCS#8 PEM file that only its owner can read.
func readKey(file string) (ed25519.PrivateKey, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// The mode is that of the open file, so that the checked file is the one that is read.
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("not a regular file: %w", object.ErrInvalid)
	}
	if mode := st.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("mode %04o lets others read it (chmod 600 would do): %w", mode, object.ErrInvalid)
	}
	text, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("no PEM block PRIVATE KEY (PKCS#8): %w", object.ErrInvalid)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, object.ErrInvalid)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%T is not an Ed25519 key: %w", parsed, object.ErrInvalid)
	}
	return key, nil
}

// makeKey writes a new key to a temporary file and links it to its name. Two servers that start at the
// same time therefore use the same key, and a crash leaves a whole key or none.
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
	return durable.Folder(dir)
}

// jwk is a public key in the form of RFC 7517 and RFC 8037. The order of the first three fields is that
// of RFC 7638, which hashes them for a name.
type jwk struct {
	Curve string `json:"crv"`
	Type  string `json:"kty"`
	X     string `json:"x"`
	KeyID string `json:"kid,omitempty"`
	Alg   string `json:"alg,omitempty"`
	Use   string `json:"use,omitempty"`
}

// newJWK returns key as a jwk without a name.
func newJWK(key ed25519.PublicKey) jwk {
	return jwk{Curve: "Ed25519", Type: "OKP", X: base64.RawURLEncoding.EncodeToString(key)}
}

// KeyID returns the thumbprint of a key (RFC 7638), by which tokens name it.
func KeyID(key ed25519.PublicKey) string {
	text, err := json.Marshal(newJWK(key))
	if err != nil {
		panic(err) // strings always marshal
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// JWKS returns the public half of the signing key as a JSON Web Key Set (RFC 7517, RFC 8037).
func (s *Signer) JWKS() []byte {
	k := newJWK(s.key.Public().(ed25519.PublicKey))
	k.KeyID, k.Alg, k.Use = s.id, "EdDSA", "sig"
	text, err := json.Marshal(struct {
		Keys []jwk `json:"keys"`
	}{[]jwk{k}})
	if err != nil {
		panic(err) // strings always marshal
	}
	return text
}
