package gitd

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/object"
	gossh "golang.org/x/crypto/ssh"
)

var robot = Person{Name: "ramus", Email: "ramus@localhost"}

func newSigner(t testing.TB) *CommitSigner {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := gossh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewCommitSigner(pem.EncodeToMemory(block))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// verified returns the output of stock git about a commit's signature.
func verified(t testing.TB, dir string, s *CommitSigner, commit Hash) (string, error) {
	t.Helper()
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("cannot run here: there is no ssh-keygen")
	}
	allowed := filepath.Join(t.TempDir(), "allowed_signers")
	write(t, allowed, s.AllowedSigner(robot))
	return gittest.Try(dir, "-c", "gpg.ssh.allowedSignersFile="+allowed, "verify-commit", "-v", string(commit))
}

func TestSignedCommits(t *testing.T) {
	ctx := t.Context()
	s := newServer(t)
	r, err := s.Create(ctx, "r")
	if err != nil {
		t.Fatal(err)
	}
	plain := commit(t, r, "main", "Plain", "a", "1\n")
	if out, err := verified(t, r.Dir(), newSigner(t), plain); err == nil {
		t.Error("an unsigned commit is good:", out)
	}
	s.Signer = newSigner(t)
	signed := []Hash{commit(t, r, "main", "Signed\n\nWith a body.\n\nRamus-Run: 1", "b", "1\n")}
	if _, err := r.WriteCommit(ctx, NewCommit{Author: robot, Message: ""}); err != nil {
		t.Error("without a message:", err)
	}
	for i, strategy := range []Strategy{StrategyMerge, StrategySquash, StrategyRebase} {
		name := string(strategy)
		if err := r.Update(ctx, RefUpdate{Name: "refs/heads/" + name, New: plain}); err != nil {
			t.Fatal(err)
		}
		commit(t, r, name, "On "+name, name, "1\n")
		res, err := r.Merge(ctx, MergeRequest{From: name, Into: "main", Strategy: strategy, Committer: robot,
			When: time.Unix(1700000000+int64(i), 0)})
		if err != nil || !res.Merged {
			t.Fatal(res, err)
		}
		signed = append(signed, res.Commit)
	}
	clone := filepath.Join(t.TempDir(), "clone")
	git(t, "", "clone", "-q", r.Dir(), clone)
	for _, h := range signed {
		if out, err := verified(t, clone, s.Signer, h); err != nil || !strings.Contains(out, `Good "git" signature for ramus@localhost`) {
			t.Errorf("%s: %v\n%s", h, err, out)
		}
		if out, err := verified(t, clone, newSigner(t), h); err == nil {
			t.Error("another key made it, too:", out)
		}
	}
	// Git sees the same message and headers as before.
	if c, err := r.Commit(ctx, string(signed[0])); err != nil || c.Subject != "Signed" || c.Trailer("Ramus-Run") != "1" {
		t.Error(c, err)
	}
}

// TestSignCommit has another git sign commits with our answer. The signature is as good
// as our own.
func TestSignCommit(t *testing.T) {
	ctx := t.Context()
	s := newServer(t)
	s.Signer = newSigner(t)
	r, err := s.Create(ctx, "r")
	if err != nil {
		t.Fatal(err)
	}
	base := commit(t, r, "main", "Base", "a", "1\n")
	if err := r.Update(ctx, RefUpdate{Name: "refs/heads/mine", New: base}, RefUpdate{Name: "refs/heads/theirs", New: base}); err != nil {
		t.Fatal(err)
	}
	mine, theirs := commit(t, r, "mine", "Mine", "b", "1\n"), commit(t, r, "theirs", "Theirs", "c", "1\n")
	tree, unknown := git(t, r.Dir(), "rev-parse", "main^{tree}"), strings.Repeat("7", 40)
	const at = " 1700000000 +0100"
	good := func(parents ...string) string {
		text := "tree " + tree + "\n"
		for _, p := range parents {
			text += "parent " + p + "\n"
		}
		return text + "author Ann <ann@example.com>" + at + "\ncommitter ramus <ramus@localhost>" + at +
			"\n\nSubject\n\nBody\n"
	}
	cases := []struct {
		name, text string
		want       error
	}{
		{"on its own branch", good(string(mine)), nil},
		{"on the base", good(string(base)), nil},
		{"not pushed yet", good(unknown), nil},
		{"a merge", good(unknown, string(base)), nil},
		{"without a message", strings.TrimSuffix(good(unknown), "Subject\n\nBody\n"), nil},
		{"another's branch", good(string(theirs)), ErrDenied},
		{"merges another's branch", good(string(mine), string(theirs)), ErrDenied},
		{"no parent", good(), ErrDenied},
		{"many parents", good(strings.Split(strings.Repeat(unknown+" ", 17), " ")[:17]...), ErrInvalid},
		{"another committer", strings.Replace(good(string(mine)), "committer ramus", "committer Ann", 1), ErrDenied},
		{"another address", strings.Replace(good(string(mine)), "ramus@localhost", "ann@example.com", 1), ErrDenied},
		{"a second committer", strings.Replace(good(string(mine)), "\n\n",
			"\ncommitter ramus <ramus@localhost>"+at+"\n\n", 1), ErrInvalid},
		{"committer without a time", strings.Replace(good(string(mine)), "localhost>"+at, "localhost>", 1), ErrDenied},
		{"author without an address", strings.Replace(good(string(mine)), " <ann@example.com>", "", 1), ErrInvalid},
		{"signed already", strings.Replace(good(string(mine)), "\n\n", "\ngpgsig x\n\n", 1), ErrInvalid},
		{"another header", strings.Replace(good(string(mine)), "\n\n", "\nx y\n\n", 1), ErrInvalid},
		{"a NUL", good(string(mine)) + "\x00", ErrInvalid},
		{"half a parent", good("1234"), ErrInvalid},
		{"a tag", "object " + string(mine) + "\ntype commit\ntag v1\ntagger ramus <ramus@localhost>" + at + "\n\nv1\n",
			ErrInvalid},
		{"a push certificate", "certificate version 0.1\npusher x\n\n", ErrInvalid},
		{"nothing", "", ErrInvalid},
		{"too long", good(string(mine)) + strings.Repeat("x", commitMax), ErrTooLarge},
	}
	for _, c := range cases {
		sig, err := r.SignCommit(ctx, []byte(c.text), robot, "mine", "main", "gone")
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if (err == nil) != bytes.HasPrefix(sig, []byte("-----BEGIN SSH SIGNATURE-----\n")) {
			t.Errorf("%s: %q", c.name, sig)
		}
		if err != nil {
			continue
		}
		file := filepath.Join(t.TempDir(), "commit")
		if err := os.WriteFile(file, withSignature([]byte(c.text), sig), 0o600); err != nil {
			t.Fatal(err)
		}
		h := git(t, r.Dir(), "hash-object", "-t", "commit", "-w", "--literally", file)
		if out, err := verified(t, r.Dir(), s.Signer, Hash(h)); err != nil {
			t.Errorf("%s: %v\n%s", c.name, err, out)
		}
		if err := os.Remove(filepath.Join(r.Dir(), "objects", h[:2], h[2:])); err != nil { // its parent may not exist here
			t.Fatal(err)
		}
	}
	s.Signer = nil
	if _, err := r.SignCommit(ctx, []byte(cases[0].text), robot, "mine"); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

func TestNewCommitSigner(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8 := func(k any) []byte {
		der, err := x509.MarshalPKCS8PrivateKey(k)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	}
	locked, err := gossh.MarshalPrivateKeyWithPassphrase(key, "", []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	if s, err := NewCommitSigner(pkcs8(key)); err != nil ||
		!strings.HasPrefix(s.AllowedSigner(Person{Name: "x", Email: "a*b c@d\n"}),
			`a_b_c@d_ namespaces="git" ssh-ed25519 AAAA`) {
		t.Error(s, err)
	}
	for name, text := range map[string][]byte{"RSA": pkcs8(rsaKey), "locked": pem.EncodeToMemory(locked),
		"nothing": nil, "words": []byte("hunter2"),
		"public": []byte(newSigner(t).PublicKey())} {
		if _, err := NewCommitSigner(text); !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzSignCommit(f *testing.F) {
	f.Add([]byte("tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nparent 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor a <a> 1 +0000\ncommitter ramus <ramus@localhost> 1 +0000\n\nx\n"))
	f.Add([]byte("tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n\n"))
	f.Add([]byte("\n\n"))
	r := newRepo(f)
	r.server.Signer = newSigner(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		sig, err := r.SignCommit(t.Context(), text, robot, "main")
		if err != nil {
			return
		}
		// The signed text is one commit of ours, and is still one with the signature in
		// it.
		c, err := object.ParseCommit(withSignature(text, sig))
		if err != nil || !strings.HasPrefix(c.Committer, robot.Ident()+" ") || len(c.Parents) == 0 || !bytes.Equal(c.Encode(), text) {
			t.Errorf("%q", text)
		}
	})
}

func BenchmarkSignCommit(b *testing.B) {
	r := newRepo(b)
	r.server.Signer = newSigner(b)
	tip := commit(b, r, "main", "Base", "a", "1\n")
	text := []byte("tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nparent " + string(tip) +
		"\nauthor a <a> 1 +0000\ncommitter ramus <ramus@localhost> 1 +0000\n\nx\n")
	for b.Loop() {
		if _, err := r.SignCommit(b.Context(), text, robot, "main"); err != nil {
			b.Fatal(err)
		}
	}
}
