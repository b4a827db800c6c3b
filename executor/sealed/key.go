package sealed

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ramus-dev/ramus/internal/durable"
)

// KeyBytes is the length of a [Key].
const KeyBytes = 32

// Key encrypts records by AES-256-GCM.
type Key [KeyBytes]byte

// NewKey returns a random key.
func NewKey() (k Key) {
	_, _ = rand.Read(k[:]) // Read never fails
	return k
}

// ParseKey reads a key of a configuration: 32 bytes in hexadecimal or base64, or the bytes themselves.
func ParseKey(text string) (k Key, err error) {
	b, err := hex.DecodeString(text)
	for _, coding := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if err == nil && len(b) == KeyBytes {
			break
		}
		b, err = coding.DecodeString(text)
	}
	if err != nil || len(b) != KeyBytes {
		b = []byte(text)
	}
	if len(b) != KeyBytes {
		return k, fmt.Errorf("a key has %d bytes in hexadecimal or base64; `openssl rand -base64 32` makes one", KeyBytes)
	}
	return Key(b), nil
}

// ID returns the name of the key in heads. The key cannot be derived from it.
func (k Key) ID() string {
	sum := sha256.Sum256(append([]byte("ramus seal key\x00"), k[:]...))
	return hex.EncodeToString(sum[:8])
}

func (k Key) aead() cipher.AEAD {
	block, err := aes.NewCipher(k[:])
	if err != nil {
		panic(err) // the length is right
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // the block size is right
	}
	return gcm
}

// readKey reads the file of a key. ok is false if there is none.
func readKey(file string) (k Key, ok bool, err error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return k, false, nil
	}
	if err != nil {
		return k, false, fmt.Errorf("cannot read the key of sealed records: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, KeyBytes+1))
	if err == nil && len(b) != KeyBytes {
		err = fmt.Errorf("%s does not have %d bytes; restore it from a backup", file, KeyBytes)
	}
	if err != nil {
		return k, false, fmt.Errorf("cannot read the key of sealed records: %w", err)
	}
	return Key(b), true, nil
}

// writeKey writes the file of a key, durably. Only its owner can read it.
func writeKey(file string, k Key) error {
	err := os.MkdirAll(filepath.Dir(file), 0o700)
	if err == nil {
		err = durable.Replace(file, k[:], true)
	}
	if err != nil {
		return fmt.Errorf("cannot write the key of sealed records: %w", err)
	}
	return nil
}
