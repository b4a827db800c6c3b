package sshsig

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd/object"
	"golang.org/x/crypto/ssh"
)

// TestVerify changes each part of a good signature.
func TestVerify(t *testing.T) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	message := []byte("message")
	good, err := Sign(key, "test", message)
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(public, "test", message, good); err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(good)
	var parts signature
	if err := ssh.Unmarshal(block.Bytes[len(magic):], &parts); err != nil {
		t.Fatal(err)
	}
	armoured := func(kind, start string, change func(*signature)) []byte {
		s := parts
		change(&s)
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: append([]byte(start), ssh.Marshal(s)...)})
	}
	same := func(*signature) {}
	if err := Verify(public, "test", message, armoured(armour, magic, same)); err != nil {
		t.Fatalf("the same parts: %v", err)
	}
	for want, sig := range map[string][]byte{
		"it is not an SSH signature": armoured("SIGNATURE", magic, same),
		"is not an SSH signature":    armoured(armour, "SSHGIS", same),
		"not an SSH signature":       []byte("none"),
		"is damaged":                 pem.EncodeToMemory(&pem.Block{Type: armour, Bytes: []byte(magic + "x")}),
		"signature is damaged":       armoured(armour, magic, func(s *signature) { s.Signature = []byte("x") }),
		"is of version 2":            armoured(armour, magic, func(s *signature) { s.Version = 2 }),
		`over "sha256"`:              armoured(armour, magic, func(s *signature) { s.Hash = "sha256" }),
		`is for "other"`:             armoured(armour, magic, func(s *signature) { s.Namespace = "other" }),
		"signed by another key":      armoured(armour, magic, func(s *signature) { s.PublicKey = s.PublicKey[1:] }),
		"does not match": armoured(armour, magic, func(s *signature) {
			s.Signature = append([]byte(nil), s.Signature...)
			s.Signature[len(s.Signature)-1] ^= 1
		}),
		"too large": append(armoured(armour, magic, same), strings.Repeat("x", MaxBytes)...),
	} {
		err := Verify(public, "test", message, sig)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if errors.Is(err, object.ErrTooLarge) != (want == "too large") {
			t.Errorf("the kind of %v", err)
		}
	}
	limit := append(armoured(armour, magic, same), strings.Repeat("\n", MaxBytes)...)[:MaxBytes]
	if err := Verify(public, "test", message, limit); err != nil {
		t.Errorf("a signature of the largest size: %v", err)
	}
	if err := Verify(other, "test", message, good); err == nil {
		t.Error("another key admits it")
	}
	if err := Verify(public, "test", []byte("messages"), good); err == nil {
		t.Error("it fits another message")
	}
	if err := Verify(public, "tests", message, good); err == nil {
		t.Error("it fits another namespace")
	}
}

// TestOpenSSH has OpenSSH check a signature of this package, and this package one of OpenSSH.
func TestOpenSSH(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("ssh-keygen is not installed")
	}
	dir := t.TempDir()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	line, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	message := []byte("the message\n")
	sig, err := Sign(key, "test", message)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"key": pem.EncodeToMemory(block), "message": message, "sig": sig,
		"allowed": []byte("otter " + string(ssh.MarshalAuthorizedKey(line)))} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(input string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "ssh-keygen", args...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	run(string(message), "-Y", "verify", "-f", "allowed", "-I", "otter", "-n", "test", "-s", "sig")
	run("", "-Y", "sign", "-f", "key", "-n", "test", "message")
	theirs, err := os.ReadFile(filepath.Join(dir, "message.sig"))
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(public, "test", message, theirs); err != nil {
		t.Error(err)
	}
}

func FuzzVerify(f *testing.F) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	message := []byte("message")
	good, err := Sign(key, "test", message)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte("-----BEGIN SSH SIGNATURE-----\nU1NIU0lH\n-----END SSH SIGNATURE-----\n"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, sig []byte) {
		if err := Verify(key.Public().(ed25519.PublicKey), "test", message, sig); err != nil {
			return
		}
		if err := Verify(key.Public().(ed25519.PublicKey), "test", []byte("another"), sig); err == nil {
			t.Error("one signature fits two messages")
		}
	})
}
