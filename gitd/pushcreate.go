package gitd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
)

// mayCreate reports whether a push under the grant makes the repository name.
func (s *Server) mayCreate(g Grant, name string) bool {
	if s.OwnConfig || CheckName(name) != nil || !g.MayWrite(name) || !ownsBranches(g) {
		return false
	}
	return g.Has(ScopeAdmin) && g.Repo == "*" || slices.Contains(s.CreateOnPush, g.Subject) ||
		slices.Contains(s.CreateOnPush, "*")
}

// ownsBranches reports whether the grant is for all branches.
func ownsBranches(g Grant) bool {
	return len(g.Read) == 0 && (slices.Contains(g.Write, "refs/*") || slices.Contains(g.Write, "refs/heads/*"))
}

// createOnPush makes the repository that a client is about to push to. It stays, empty, if the push is refused.
func (s *Server) createOnPush(ctx context.Context, path string, g Grant) (access, error) {
	name := strings.TrimSuffix(path, ".git")
	if _, err := s.Create(ctx, name); err == nil {
		s.log().Info("repository created by a push", "repo", name, "subject", g.Subject)
	} else if !errors.Is(err, ErrExists) {
		return access{name: name}, err
	}
	return s.locateRepo(path)
}

// settleBase makes a pushed branch the base of a repository whose base does not exist yet. The branches of callers
// are none, and who may not write all refs does not choose the base.
func (s *Server) settleBase(ctx context.Context, a access) error {
	if a.repo == nil || !ownsBranches(a.grant) {
		return nil
	}
	r := a.repo
	base, err := r.Base(ctx)
	if err != nil {
		return nil // its HEAD is detached, which somebody did on purpose
	}
	if _, err := r.readRef(ctx, "refs/heads/"+base); !errors.Is(err, ErrNotFound) {
		return err
	}
	next, err := r.chooseBase(ctx, Ref{})
	if err != nil || next == base || strings.HasPrefix(next, "ramus/") {
		return err
	}
	if err := s.git.Run(ctx, gitcmd.Command{Repo: r.dir, Args: []string{"symbolic-ref", "HEAD", "refs/heads/" + next}}); err != nil {
		return fmt.Errorf("cannot make %s the base of %s: %w", next, r.name, err)
	}
	return syncRefs(r.dir, "HEAD")
}
