package session

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
)

// sealNote encrypts a note with a key that follows from the id of a session. Nil stays nil.
func sealNote(session string, secret, note []byte) ([]byte, error) {
	if note == nil {
		return nil, nil
	}
	aead, err := noteCipher(secret)
	if err != nil {
		return nil, err
	}
	return aead.Seal(nil, nil, note, []byte(session)), nil
}

// openNote decrypts a note.
func openNote(session string, secret, sealed []byte) ([]byte, error) {
	if sealed == nil {
		return nil, nil
	}
	aead, err := noteCipher(secret)
	if err != nil {
		return nil, err
	}
	note, err := aead.Open(nil, nil, sealed, []byte(session))
	if err != nil {
		return nil, fmt.Errorf("cannot open the note of a session: %w", err)
	}
	return note, nil
}

func noteCipher(secret []byte) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, "ramus session note 1", 32)
	if err != nil {
		return nil, fmt.Errorf("cannot derive the key of a note: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
