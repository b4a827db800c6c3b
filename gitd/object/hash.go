package object

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strconv"
)

// Hash is a Git object name, 40 hexadecimal digits (64 for SHA-256). The empty Hash means "none".
type Hash string

// CheckHash returns [ErrInvalid] if h does not look like an object name.
func CheckHash(h Hash) error {
	if len(h) != 40 && len(h) != 64 || !IsHex(string(h)) {
		return fmt.Errorf("object name %.80q is not 40 or 64 lower-case hexadecimal digits: %w", string(h), ErrInvalid)
	}
	return nil
}

// IsHex reports whether s consists of lower-case hexadecimal digits. It returns false for "".
func IsHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return s != ""
}

// HashOf returns the SHA-1 name of an object of a kind, such as "commit".
func HashOf(kind string, data []byte) Hash {
	sum := sha1.New()
	sum.Write([]byte(kind + " " + strconv.Itoa(len(data)) + "\x00"))
	sum.Write(data)
	return Hash(hex.EncodeToString(sum.Sum(nil)))
}
