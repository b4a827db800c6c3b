package worktree_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gittest"
	gossh "golang.org/x/crypto/ssh"
)

var alice = gitd.Person{Name: "Alice Example", Email: "alice@example.com"}

// newServer opens a server on an empty folder and closes it at the end of the test, which fails if a repository
// is damaged.
func newServer(t testing.TB) *gitd.Server {
	t.Helper()
	s := &gitd.Server{Root: t.TempDir()}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		repos, err := s.Repos(context.Background())
		if err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		for _, r := range repos {
			if out, err := exec.Command("git", "-C", r.Dir(), "fsck", "--strict", "--no-dangling").CombinedOutput(); err != nil {
				t.Errorf("fsck of %s: %v\n%s", r.Name(), err, out)
			}
		}
	})
	return s
}

func newRepo(t testing.TB) *gitd.Repo {
	t.Helper()
	r, err := newServer(t).Create(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// git runs stock git.
func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	return gittest.Run(t, dir, args...)
}

// commit writes files as the next commit of a branch. files are pairs of path and content.
func commit(t testing.TB, r *gitd.Repo, branch, message string, files ...string) gitd.Hash {
	t.Helper()
	c := gitd.NewCommit{Author: alice, When: time.Unix(1700000000, 0).UTC(), Message: message}
	old := gitd.Hash("")
	if tip, err := r.Resolve(t.Context(), "refs/heads/"+branch); err == nil {
		c.From, c.Parents, old = tip, []gitd.Hash{tip}, tip
	} else if !errors.Is(err, gitd.ErrNotFound) {
		t.Fatal(err)
	}
	for i := 0; i < len(files); i += 2 {
		c.Put = append(c.Put, gitd.File{Path: files[i], Content: []byte(files[i+1])})
	}
	h, err := r.WriteCommit(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/" + branch, New: h, Old: &old}); err != nil {
		t.Fatal(err)
	}
	return h
}

// splitName returns the folder and the name of a path.
func splitName(path string) (folder, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 0)], path[i+1:]
}

// newSigner returns a signer with a key of its own.
func newSigner(t testing.TB) *gitd.CommitSigner {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := gossh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	s, err := gitd.NewCommitSigner(pem.EncodeToMemory(block))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// verified lets stock git check the signature of a commit.
func verified(t testing.TB, dir string, s *gitd.CommitSigner, commit gitd.Hash) (string, error) {
	t.Helper()
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("cannot run here: there is no ssh-keygen")
	}
	allowed := filepath.Join(t.TempDir(), "allowed_signers")
	if err := os.WriteFile(allowed, []byte(s.AllowedSigner(alice)), 0o600); err != nil {
		t.Fatal(err)
	}
	return gittest.Try(dir, "-c", "gpg.ssh.allowedSignersFile="+allowed, "verify-commit", "-v", string(commit))
}
