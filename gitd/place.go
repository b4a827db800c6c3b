package gitd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ramus-dev/ramus/internal/durable"
)

// Remove removes a repository. It waits for pushes, merges and maintenance. The repository is there as a whole or not
// at all, also if the process is killed. When Remove returns it is gone for good.
func (s *Server) Remove(ctx context.Context, name string) error {
	err := s.checkDuty(ctx, name)
	if err == nil {
		err = s.remove(ctx, name)
	}
	if err == nil {
		err = s.dropped(ctx, name)
	}
	if err != nil {
		return fmt.Errorf("cannot remove the repository %.120q: %w", name, err)
	}
	return nil
}

// Discard removes the copy of a repository that another server owns, as [Server.Remove] removes a repository.
func (s *Server) Discard(ctx context.Context, name string) error {
	if err := s.remove(ctx, name); err != nil {
		return fmt.Errorf("cannot discard the copy of the repository %.120q: %w", name, err)
	}
	return nil
}

// MoveOut moves the copy of a repository that another server owns to a free place in the same file system, as
// [Server.Remove] removes a repository. Nobody is told that the name is free.
func (s *Server) MoveOut(ctx context.Context, name, to string) error {
	err := s.moveAway(ctx, name, func(r *Repo) error { return os.Rename(r.dir, to) })
	if err == nil {
		err = durable.Folder(filepath.Dir(to))
	}
	if err != nil {
		return fmt.Errorf("cannot move the copy of the repository %.120q out: %w", name, err)
	}
	return nil
}

func (s *Server) remove(ctx context.Context, name string) error {
	nursery, err := s.makeScratch()
	if err != nil {
		return err
	}
	// If the process is killed, the next start removes the folder.
	grave, err := os.MkdirTemp(nursery, "removed-*")
	if err != nil {
		return err
	}
	err = s.moveAway(ctx, name, func(r *Repo) error {
		return os.Rename(r.dir, filepath.Join(grave, "repo.git"))
	})
	if err == nil {
		err = durable.Folder(nursery)
	}
	return errors.Join(err, os.RemoveAll(grave))
}

// Rename gives a repository another name. It waits for pushes, merges and maintenance. The repository has one of both
// names, also if the process is killed. Returns [ErrExists] if another repository has the new name.
func (s *Server) Rename(ctx context.Context, name, to string) (*Repo, error) {
	err := CheckName(to)
	place := filepath.Join(s.Root, filepath.FromSlash(to)+".git")
	if err == nil {
		err = s.moveAway(ctx, name, func(r *Repo) error {
			if err := s.checkDuty(ctx, name); err != nil {
				return err
			}
			if err := s.claimName(ctx, to); err != nil {
				return err
			}
			if err := s.moveIntoPlace(r.dir, place); err != nil {
				if errors.Is(err, ErrExists) { // which has the claim
					return err
				}
				return errors.Join(err, s.dropped(ctx, to))
			}
			return durable.Folder(filepath.Dir(place))
		})
	}
	if err == nil {
		// The folder above may be new.
		err = syncfs(s.Root)
	}
	if err == nil {
		err = s.dropped(ctx, name)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot rename the repository %.120q to %.120q: %w", name, to, err)
	}
	return s.Repo(to)
}

// moveAway calls move while nothing writes in the repository, and forgets the repository.
func (s *Server) moveAway(ctx context.Context, name string, move func(r *Repo) error) error {
	r, err := s.Repo(name)
	if err != nil {
		return err
	}
	for _, token := range []chan struct{}{r.maintaining, r.merging, r.refreshing} {
		done, err := takeTurn(ctx, token)
		if err != nil {
			return err
		}
		defer done()
	}
	r.pushing.Lock()
	defer r.pushing.Unlock()
	r.locking.Lock()
	defer r.locking.Unlock()
	if !r.there() {
		return ErrNoRepository
	}
	if err := move(r); err != nil {
		return err
	}
	if err := durable.Folder(filepath.Dir(r.dir)); err != nil {
		return err
	}
	_, err = s.Repo(name)
	if err == nil || !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("another repository took its place: %w", errors.Join(ErrConflict, err))
	}
	return nil
}
