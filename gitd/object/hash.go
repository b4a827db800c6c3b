package object

import "fmt"

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
