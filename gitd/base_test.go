package gitd

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd/grant"
	"github.com/ramus-dev/ramus/gitd/sshsig"
)

// based returns a repository whose base has lock files, and the base's tip.
func based(t *testing.T) (*Repo, Hash) {
	t.Helper()
	r := newRepo(t)
	return r, commit(t, r, "main", "Base", "go.sum", "sums\n", "web/package-lock.json", "{}\n",
		"node_modules/x/package-lock.json", "{}",
		"api/a.json", "1\n", "api/v/b.json", "2\n", "notgo.sum", "x")
}

var author = Person{Name: "T", Email: "t@example.org"}

func TestBaseManifest(t *testing.T) {
	ctx := t.Context()
	r, tip := based(t)
	locks, err := r.Lockfiles(ctx, tip)
	if err != nil || len(locks) != 2 || locks["go.sum"] != sum("sums\n") || locks["web/package-lock.json"] != sum("{}\n") {
		t.Fatal(locks, err)
	}
	if _, err := r.LatestBase(ctx); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	at := time.Date(2024, 5, 6, 7, 8, 9, 123e6, time.UTC)
	first, err := r.PutBase(ctx, Base{Branch: "main", Commit: tip, Head: tip, Lockfiles: locks, Time: at}, author)
	if err != nil || first.Ref != "refs/ramus/bases/20240506-070809.123-"+string(tip) {
		t.Fatal(first, err)
	}
	second, err := r.PutBase(ctx,
		Base{Branch: "main", Commit: tip, Head: tip, Lockfiles: locks, Time: at, Environment: "prod"}, author)
	if err != nil || second.Ref == first.Ref || second.Previous != first.Hash {
		t.Fatal(second, err)
	}
	list, err := r.Bases(ctx, 0)
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	latest, err := r.LatestBase(ctx)
	if err != nil || latest.Hash != second.Hash || latest.Environment != "prod" {
		t.Fatal(latest, err)
	}
	for _, b := range list {
		if err := r.CheckBase(ctx, b.Hash); err != nil {
			t.Error(err)
		}
	}

	// Stock OpenSSH accepts the signature in git.
	dir := t.TempDir()
	text := git(t, r.Dir(), "show", latest.Ref+":base.json") + "\n"
	write(t, filepath.Join(dir, "sig"), git(t, r.Dir(), "show", latest.Ref+":base.json.sig")+"\n")
	write(t, filepath.Join(dir, "signers"), r.server.BaseKey())
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("cannot run here: no ssh-keygen is installed")
	}
	for _, c := range []struct {
		text, space string
		ok          bool
	}{{text, "ramus-base", true}, {strings.Replace(text, "prod", "test", 1), "ramus-base", false}, {text, "git", false}} {
		cmd := exec.Command("ssh-keygen", "-Y", "verify", "-f", filepath.Join(dir, "signers"), "-I", "ramus", "-n",
			c.space, "-s", filepath.Join(dir, "sig"))
		cmd.Stdin = strings.NewReader(c.text)
		if out, err := cmd.CombinedOutput(); (err == nil) != c.ok {
			t.Errorf("%q: %v\n%s", c.space, err, out)
		}
	}
}

func sum(text string) string {
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:])
}

// TestForgedManifests checks manifests with a false statement. Each is detected,
// also one that was signed by the right key for another purpose.
func TestForgedManifests(t *testing.T) {
	ctx := t.Context()
	r, tip := based(t)
	other := commit(t, r, "other", "Elsewhere", "a", "1")
	locks, err := r.Lockfiles(ctx, tip)
	if err != nil {
		t.Fatal(err)
	}
	good := Base{Branch: "main", Commit: tip, Head: tip, Lockfiles: locks, Time: time.Unix(1_700_000_000, 0)}
	put := func(b Base) SignedBase {
		t.Helper()
		s, err := r.PutBase(ctx, b, author)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	signed := put(good)
	text, err := r.ReadFile(ctx, string(signed.Hash), baseFile, 0)
	if err != nil {
		t.Fatal(err)
	}
	sig, err := r.ReadFile(ctx, string(signed.Hash), baseSig, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, stranger, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	by := func(key ed25519.PrivateKey, space string, text []byte) []byte {
		t.Helper()
		sig, err := sshsig.Sign(key, space, text)
		if err != nil {
			t.Fatal(err)
		}
		return sig
	}
	commitOf := func(text, sig []byte, parents ...Hash) Hash {
		t.Helper()
		h, err := r.WriteCommit(ctx, NewCommit{Parents: parents, Author: author, Message: "forged",
			Put: []File{{Path: baseFile, Content: text}, {Path: baseSig, Content: sig}}})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	own := r.server.baseKey
	changed := func(from, to string) []byte { return bytes.Replace(text, []byte(from), []byte(to), 1) }
	with := func(change func(*Base)) Hash {
		b := good
		b.Lockfiles = map[string]string{}
		for k, v := range locks {
			b.Lockfiles[k] = v
		}
		change(&b)
		return put(b).Hash
	}
	for name, c := range map[string]struct {
		hash Hash
		why  string
	}{
		"changed":            {commitOf(changed(string(tip), string(other)), sig), "does not match"},
		"by a stranger":      {commitOf(text, by(stranger, baseSpace, text)), "another key"},
		"for something else": {commitOf(text, by(own, "git", text)), "is for"},
		"of a grant":         {commitOf(text, by(r.server.key, baseSpace, text)), "another key"},
		"no signature":       {commitOf(text, nil), "not an SSH signature"},
		"long signature":     {commitOf(text, bytes.Repeat([]byte("x"), sshsig.MaxBytes+1)), "too large"},
		"another type": {commitOf(changed(BaseType, "ramus-base/0"),
			by(own, baseSpace, changed(BaseType, "ramus-base/0"))), "it is a"},
		"another repository": {commitOf(changed(`"`+r.Name()+`"`, `"elsewhere"`),
			by(own, baseSpace, changed(`"`+r.Name()+`"`, `"elsewhere"`))), "of the repository"},
		"out of its chain":    {commitOf(text, sig, tip), "does not follow"},
		"no JSON":             {commitOf([]byte("{"), by(own, baseSpace, []byte("{"))), "damaged"},
		"not on the base":     {with(func(b *Base) { b.Commit = other }), "does not contain"},
		"head elsewhere":      {with(func(b *Base) { b.Head = other }), "does not contain"},
		"no such branch":      {with(func(b *Base) { b.Branch = "none" }), "not found"},
		"another lock file":   {with(func(b *Base) { b.Lockfiles["go.sum"] = sum("") }), "another hash"},
		"a lock file missing": {with(func(b *Base) { delete(b.Lockfiles, "go.sum") }), "names 1 lock files"},
	} {
		if err := r.CheckBase(ctx, c.hash); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, want …%s…", name, err, c.why)
		}
	}
	if err := r.CheckBase(ctx, signed.Hash); err != nil {
		t.Error(err)
	}
	// Removing the key of grants revokes all tokens, and no manifest.
	if grant.KeyID(r.server.key.Public().(ed25519.PublicKey)) == grant.KeyID(own.Public().(ed25519.PublicKey)) {
		t.Error("one key for both")
	}
}

func TestManyManifestsAtOnce(t *testing.T) {
	r, tip := based(t)
	locks, err := r.Lockfiles(t.Context(), tip)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	var mu sync.Mutex // guards kept
	kept := 0
	for range 4 {
		group.Go(func() {
			_, err := r.PutBase(context.Background(), Base{Branch: "main", Commit: tip, Head: tip, Lockfiles: locks,
				Time: time.Unix(1_700_000_000, 0)}, author)
			if err != nil && !errors.Is(err, ErrConflict) {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				kept++
			}
		})
	}
	group.Wait()
	list, err := r.Bases(t.Context(), 0)
	if err != nil || len(list) != kept || kept == 0 {
		t.Errorf("%d manifests of %d that were kept: %v", len(list), kept, err)
	}
	for _, b := range list {
		if err := r.CheckBase(t.Context(), b.Hash); err != nil {
			t.Error(err)
		}
	}
}

func TestHashFiles(t *testing.T) {
	ctx := t.Context()
	r, tip := based(t)
	dir := t.TempDir()
	git(t, dir, "clone", "-q", "-b", "main", r.Dir(), "w")
	// Anybody can compute the hash with common tools.
	cmd := exec.Command("sh", "-c", "sha256sum api/a.json api/v/b.json go.sum | sha256sum | cut -d' ' -f1")
	cmd.Dir = filepath.Join(dir, "w")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.HashFiles(ctx, tip, []string{"go.sum", "api", "api/a.json"})
	if err != nil || got != strings.TrimSpace(string(out)) {
		t.Errorf("%s %v, sha256sum says %s", got, err, out)
	}
	for _, p := range []string{"", "none", "../x", "a/../b"} {
		if p == "" {
			continue
		}
		if _, err := r.HashFiles(ctx, tip, []string{p}); err == nil {
			t.Errorf("%q has a hash", p)
		}
	}
}

// TestBaseKeyStays checks that the key of manifests is kept. Signatures from
// before a restart are valid after it.
func TestBaseKeyStays(t *testing.T) {
	dir := t.TempDir()
	var keys []string
	for range 2 {
		s := &Server{Root: filepath.Join(dir, "repos"), BaseKeyFile: filepath.Join(dir, "bases.pem")}
		if err := s.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, s.BaseKey())
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if keys[0] != keys[1] || !strings.HasPrefix(keys[0], `ramus namespaces="ramus-base" ssh-ed25519 `) {
		t.Error(keys)
	}
	if info, err := os.Stat(filepath.Join(dir, "bases.pem")); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
}
