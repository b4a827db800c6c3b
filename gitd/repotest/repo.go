// Package repotest makes repositories for tests that need a Git server and no gateway.
package repotest

import (
	"path/filepath"
	"testing"

	"github.com/ramus-dev/ramus/gitd"
)

// NewServer returns an open Git server without repositories. It is closed when the test ends.
func NewServer(t testing.TB) *gitd.Server {
	t.Helper()
	dir := t.TempDir()
	s := &gitd.Server{Root: filepath.Join(dir, "repos"), KeyFile: filepath.Join(dir, "key.pem")}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// NewRepo returns the empty repository app on a server of its own.
func NewRepo(t testing.TB) *gitd.Repo {
	t.Helper()
	repo, err := NewServer(t).Create(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	return repo
}
