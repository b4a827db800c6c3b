package gitd

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha512"
	"encoding/pem"
	"errors"
	"fmt"

	"golang.org/x/crypto/ssh"
)

// Signatures over files are those of OpenSSH (PROTOCOL.sshsig), so that anybody can check one with `ssh-keygen -Y
// verify`, without ramus. The namespace keeps a signature for one purpose from being valid for another.

const (
	sshsigMagic = "SSHSIG"
	sshsigPEM   = "SSH SIGNATURE"
	sshsigHash  = "sha512"
	// sshsigMax bounds the bytes of a signature before it is decoded.
	sshsigMax = 4 << 10
)

// sshsig is a signature in its armour, after the magic.
type sshsig struct {
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
	return append([]byte(sshsigMagic), ssh.Marshal(struct {
		Namespace, Reserved, Hash string
		Sum                       []byte
	}{namespace, "", sshsigHash, sum[:]})...)
}

// sshSign signs a message.
func sshSign(key ed25519.PrivateKey, namespace string, message []byte) ([]byte, error) {
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return nil, err
	}
	sig, err := signer.Sign(nil, signedData(namespace, message))
	if err != nil {
		return nil, err
	}
	blob := append([]byte(sshsigMagic), ssh.Marshal(sshsig{Version: 1, PublicKey: signer.PublicKey().Marshal(),
		Namespace: namespace, Hash: sshsigHash, Signature: ssh.Marshal(sig)})...)
	return pem.EncodeToMemory(&pem.Block{Type: sshsigPEM, Bytes: blob}), nil
}

// sshVerify checks a signature against the only trusted key.
func sshVerify(key ed25519.PublicKey, namespace string, message, armoured []byte) error {
	if len(armoured) > sshsigMax {
		return fmt.Errorf("the signature has %d bytes: %w", len(armoured), ErrTooLarge)
	}
	block, _ := pem.Decode(armoured)
	if block == nil || block.Type != sshsigPEM {
		return errors.New("it is not an SSH signature")
	}
	blob, ok := bytes.CutPrefix(block.Bytes, []byte(sshsigMagic))
	if !ok {
		return errors.New("it is not an SSH signature")
	}

	var s sshsig
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
	case s.Version != 1 || s.Hash != sshsigHash:
		return fmt.Errorf("the signature is of version %d over %q, want 1 over %s", s.Version, s.Hash, sshsigHash)
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
