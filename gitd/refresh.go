package gitd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
)

// Refreshed is the outcome of [Server.Refresh]. Old and New are the same when
// upstream had nothing new.
type Refreshed struct {
	Branch string `json:"branch"`
	Old    Hash   `json:"old"`
	New    Hash   `json:"new"`
}

// Refresh fast-forwards the repository's base branch from where it was imported.
// It never forces: a base that has diverged is an error that says so, and is [ErrConflict].
func (s *Server) Refresh(ctx context.Context, name string, progress io.Writer) (Refreshed, error) {
	r, err := s.Repo(name)
	if err != nil {
		return Refreshed{}, fmt.Errorf("cannot refresh: %w", err)
	}
	res, err := r.refresh(ctx, progress)
	if err != nil {
		return res, fmt.Errorf("cannot refresh %s: %w", name, err)
	}
	return res, nil
}

func (r *Repo) refresh(ctx context.Context, progress io.Writer) (Refreshed, error) {
	upstream, err := r.Upstream(ctx)
	if err != nil {
		return Refreshed{}, err
	}
	if upstream == "" {
		return Refreshed{}, fmt.Errorf("it was created here and has no upstream: %w", ErrInvalid)
	}
	src, err := parseSource(upstream)
	if err != nil {
		return Refreshed{}, err
	}
	if src.local {
		if err := r.server.refusePartial(ctx, src.where); err != nil {
			return Refreshed{}, err
		}
	}
	base, err := r.Base(ctx)
	if err != nil {
		return Refreshed{}, err
	}
	bytes, err := room(r.dir)
	if err != nil {
		return Refreshed{}, err
	}
	// A ref of its own keeps what was fetched until the base has it, and keeps
	// two refreshes at once apart.
	fetched := "refs/ramus/incoming/" + rand.Text()
	config := append([]string{"fetch.unpackLimit=1", "fetch.fsckObjects=true"}, src.config...)
	for _, sin := range oldSins {
		config = append(config, "fetch.fsck."+sin+"=ignore")
	}
	lines := newProgress(progress)
	err = r.server.run(ctx, child{
		repo: r.dir, config: config, env: src.env, progress: lines, file: bytes,
		args: []string{"fetch", "--progress", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules",
			"--end-of-options", src.where, "+refs/heads/" + base + ":" + fetched},
	})
	lines.flush()
	if err != nil && outgrown(r.dir, bytes) {
		err = fmt.Errorf("it is larger than the %d bytes that the disk has to spare: %w", bytes, ErrTooLarge)
	}
	if err != nil {
		return Refreshed{}, fullDisk(err, r.dir)
	}
	res, err := r.forward(ctx, base, fetched)
	// Also when ctx has ended: a forgotten ref would hold its objects for ever.
	if e := r.Update(context.WithoutCancel(ctx), RefUpdate{Name: fetched}); e != nil && err == nil {
		err = e
	}
	return res, err
}

// forward moves the base to what was fetched, if that is ahead of it.
func (r *Repo) forward(ctx context.Context, base, fetched string) (Refreshed, error) {
	res := Refreshed{Branch: base}
	var err error
	if res.New, err = r.ref(ctx, fetched); err != nil {
		return res, err
	}
	for range mergeTries {
		res.Old, err = r.ref(ctx, "refs/heads/"+base)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return res, err
		}
		if res.Old != "" {
			if ok, err := r.reaches(ctx, res.Old, res.New); err != nil {
				return res, err
			} else if !ok {
				if ahead, err := r.reaches(ctx, res.New, res.Old); err != nil {
					return res, err
				} else if ahead {
					res.New = res.Old // upstream has nothing that is not here
					return res, nil
				}
				return res, fmt.Errorf("%s has diverged: it is at %s, upstream at %s, and neither contains the other; "+
					"merge or rebase one onto the other in a clone and push the result here: %w", base, res.Old, res.New, ErrConflict)
			}
		}
		if res.Old == res.New {
			return res, nil
		}
		old := res.Old
		if err = r.Update(ctx, RefUpdate{Name: "refs/heads/" + base, New: res.New, Old: &old}); !errors.Is(err, ErrConflict) {
			return res, err
		}
	}
	return res, err
}
