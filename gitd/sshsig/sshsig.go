// Package sshsig signs texts with SSH keys, and checks such signatures.
//
// The signatures are those of OpenSSH (PROTOCOL.sshsig), so that anybody can check one with `ssh-keygen -Y verify`, without ramus. The namespace
// keeps a signature for one purpose from being valid for another.
//
// A signature is untrusted input until [Verify] returns nil.
package sshsig

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha512"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/ramus-dev/ramus/gitd/object"
	"golang.org/x/crypto/ssh"
)

// MaxBytes bounds a signature before it is decoded.
const MaxBytes = 4 << 10

const (
	magic    = "SSHSIG"
	armour   = "SSH SIGNATURE"
	hashName = "sha512"
)

// signature is a signature in its armour, after the magic.
type signature struct {
	Version   uint32
	PublicKey []byte
	Namespace string
	Reserved  string
	Hash      string
	Signature []byte
}

// signedData returns the data over which a signature is made.
func signedData(namespace string, message []byte) []byte {
	sum := sha512.Sum512(message)
	return append([]byte(magic), ssh.Marshal(struct {
		Namespace, Reserved, Hash string
		Sum                       []byte
	}{namespace, "", hashName, sum[:]})...)
}

// Sign returns the signature of a message for a namespace, in PEM.
func Sign(key ed25519.PrivateKey, namespace string, message []byte) ([]byte, error) {
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return nil, err
	}
	sig, err := signer.Sign(nil, signedData(namespace, message))
	if err != nil {
		return nil, err
	}
	blob := append([]byte(magic), ssh.Marshal(signature{Version: 1, PublicKey: signer.PublicKey().Marshal(),
		Namespace: namespace, Hash: hashName, Signature: ssh.Marshal(sig)})...)
	return pem.EncodeToMemory(&pem.Block{Type: armour, Bytes: blob}), nil
}

// Verify returns nil if a signature in PEM is one of the key, for the namespace and the message. The error describes the fault, and is
// [object.ErrTooLarge] for one of more than [MaxBytes].
func Verify(key ed25519.PublicKey, namespace string, message, armoured []byte) error {
	if len(armoured) > MaxBytes {
		return fmt.Errorf("the signature has %d bytes: %w", len(armoured), object.ErrTooLarge)
	}
	block, _ := pem.Decode(armoured)
	if block == nil || block.Type != armour {
		return errors.New("it is not an SSH signature")
	}
	blob, ok := bytes.CutPrefix(block.Bytes, []byte(magic))
	if !ok {
		return errors.New("it is not an SSH signature")
	}

	var s signature
	var inner ssh.Signature
	if err := ssh.Unmarshal(blob, &s); err != nil {
		return fmt.Errorf("the signature is damaged: %w", err)
	}
	if err := ssh.Unmarshal(s.Signature, &inner); err != nil {
		return fmt.Errorf("the signature is damaged: %w", err)
	}
	trusted, err := ssh.NewPublicKey(key)
	if err != nil {
		return err
	}

	switch {
	case s.Version != 1 || s.Hash != hashName:
		return fmt.Errorf("the signature is of version %d over %q, want 1 over %s", s.Version, s.Hash, hashName)
	case s.Namespace != namespace:
		return fmt.Errorf("the signature is for %q, not for %q", s.Namespace, namespace)
	case !bytes.Equal(s.PublicKey, trusted.Marshal()):
		return errors.New("it was signed by another key")
	}
	if err := trusted.Verify(signedData(namespace, message), &inner); err != nil {
		return errors.New("the signature does not match the data")
	}
	return nil
}
