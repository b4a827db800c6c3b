package gitd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
)

// Refreshed is the result of [Server.Refresh]. Old and New are the same if the base did not move.
type Refreshed struct {
	Branch string `json:"branch"`
	Old    Hash   `json:"old"`
	New    Hash   `json:"new"`
	// Commit is the goal of the refresh, either the commit that was asked for or the newest one of upstream. The
	// base may contain it without being at it.
	Commit Hash `json:"commit"`
	// Own are the commits of the base that upstream lacked, oldest first, if the base was repaired.
	Own []Replayed `json:"own,omitempty"`
	// Kept is the ref that keeps the base as it was before it was repaired. It is empty if nothing was left out or
	// replayed.
	Kept string `json:"kept,omitempty"`
}

// refreshRequest asks for a refresh. Its zero value fetches the newest commit from the source of the import.
type refreshRequest struct {
	from   Upstream
	commit Hash // empty for the newest
	repair Repair
	by     Person // of replayed commits
}

// Refresh fast-forwards the base branch of the repository from its upstream. It never forces. Returns
// [ErrConflict] with an explanation if the base has diverged.
func (s *Server) Refresh(ctx context.Context, name string, progress io.Writer) (Refreshed, error) {
	return s.RefreshFrom(ctx, name, Upstream{}, "", progress)
}

// RefreshFrom is Refresh from an upstream, up to a certain commit. An empty URL means the source of the import.
// The commit must be on the branch of upstream, because an upstream may send commits by name that nobody ever
// accepted there. If the base contains the commit already, it stays where it is. A shallow repository is
// completed.
func (s *Server) RefreshFrom(ctx context.Context, name string, up Upstream, commit Hash, progress io.Writer) (Refreshed, error) {
	r, err := s.Repo(name)
	if err != nil {
		return Refreshed{}, fmt.Errorf("cannot refresh: %w", err)
	}
	res, err := r.refresh(ctx, refreshRequest{from: up, commit: commit}, progress)
	if err != nil {
		return res, fmt.Errorf("cannot refresh %s: %w", name, err)
	}
	return res, nil
}

// incomingRefs has fetched refs until the base has their commits.
const incomingRefs = "refs/ramus/incoming"

// Shallow reports whether the repository lacks history that upstream has.
func (r *Repo) Shallow() bool {
	_, err := os.Lstat(filepath.Join(r.dir, "shallow"))
	return !errors.Is(err, fs.ErrNotExist)
}

func (r *Repo) refresh(ctx context.Context, req refreshRequest, progress io.Writer) (res Refreshed, err error) {
	up := req.from
	if req.commit != "" {
		if err := CheckHash(req.commit); err != nil {
			return res, err
		}
	}
	if up.URL == "" {
		if up.URL, err = r.Upstream(ctx); err != nil {
			return res, err
		}
	}
	if up.URL == "" {
		return res, fmt.Errorf("it was created here and has no upstream: %w", ErrInvalid)
	}

	base, err := r.Base(ctx)
	if err != nil {
		return res, err
	}
	if up.Branch == "" {
		up.Branch = base
	}
	if err := CheckRef("refs/heads/" + up.Branch); err != nil {
		return res, err
	}

	done, err := takeTurn(ctx, r.refreshing)
	if err != nil {
		return res, err
	}
	defer done()
	src, err := up.resolveSource(ctx)
	if err != nil {
		return res, err
	}
	if src.local {
		if err := r.server.refusePartial(ctx, src.location); err != nil {
			return res, err
		}
	}

	// A killed server may have left some. Their objects would stay forever.
	if err := r.dropIncoming(ctx); err != nil {
		return res, err
	}
	defer func() {
		// This is done even if ctx has ended.
		if e := r.dropIncoming(context.WithoutCancel(ctx)); e != nil && err == nil {
			err = e
		}
	}()
	fetched, whole, err := r.fetchIncoming(ctx, src, up.Branch, progress)
	if err != nil {
		return res, src.redactError(gitcmd.ExplainFullDisk(err, r.dir))
	}
	if res, err = r.fastForward(ctx, req, base, up.Branch, fetched+"/heads/"+up.Branch); err != nil {
		return res, err
	}
	if whole {
		if err := r.adoptIncoming(ctx, fetched); err != nil {
			return res, err
		}
	}
	return res, r.recordRefresh(ctx, src)
}

// fetchIncoming fetches a branch of upstream to refs of its own and returns their folder. Of a shallow
// repository it fetches everything, which completes it.
func (r *Repo) fetchIncoming(ctx context.Context, src source, branch string, progress io.Writer) (folder string, whole bool, err error) {
	bytes, err := gitcmd.FreeSpace(r.dir)
	if err != nil {
		return "", false, err
	}
	folder = incomingRefs + "/" + rand.Text()
	f := fetchRequest{dir: r.dir, specs: []string{"+refs/heads/" + branch + ":" + folder + "/heads/" + branch}}
	if r.Shallow() {
		whole, f.depth = true, "--unshallow"
		f.specs = []string{"+refs/heads/*:" + folder + "/heads/*", "+refs/tags/*:" + folder + "/tags/*"}
	}
	lines, done := src.progressWriter(progress)
	defer done()
	err = r.server.runFetch(ctx, src, f, bytes, lines)
	if gitcmd.ExitCode(err) > 0 && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", err, ErrUpstream)
	}
	return folder, whole, err
}

// adoptIncoming creates the branches and tags that do not exist here. It leaves existing ones, to which callers
// may have added commits. It creates no branch of a caller: upstream may still list one that was pushed from here and
// that was removed here after the fetch began.
func (r *Repo) adoptIncoming(ctx context.Context, folder string) error {
	refs, err := r.Refs(ctx, folder)
	if err != nil {
		return err
	}
	var updates []RefUpdate
	none := Hash("")
	for _, ref := range refs {
		name := "refs" + strings.TrimPrefix(ref.Name, folder)
		if strings.HasPrefix(name, ownBranches) {
			continue
		}
		if _, err := r.readRef(ctx, name); errors.Is(err, ErrNotFound) {
			updates = append(updates, RefUpdate{Name: name, New: ref.Hash, Old: &none})
		} else if err != nil {
			return err
		}
	}
	return r.Update(ctx, updates...)
}

func (r *Repo) dropIncoming(ctx context.Context) error {
	refs, err := r.Refs(ctx, incomingRefs)
	if err != nil {
		return err
	}
	var updates []RefUpdate
	for _, ref := range refs {
		updates = append(updates, RefUpdate{Name: ref.Name})
	}
	return r.Update(ctx, updates...)
}

// fastForward moves the base to a fetched commit if that is ahead of it, or repairs the base as req asks for. The
// commit "" means the fetched tip.
func (r *Repo) fastForward(ctx context.Context, req refreshRequest, base, branch, fetched string) (Refreshed, error) {
	commit := req.commit
	res := Refreshed{Branch: base, Commit: commit}
	tip, err := r.readRef(ctx, fetched)
	if err != nil {
		return res, err
	}
	if commit == "" {
		res.Commit = tip
	} else if err := r.checkOnBranch(ctx, commit, tip); err != nil {
		return res, fmt.Errorf("upstream's %s, which is at %s, does not contain the commit %s: %w", branch, tip, commit, err)
	}

	for range mergeTries {
		res.Old, err = r.readRef(ctx, "refs/heads/"+base)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return res, err
		}
		res.New = res.Commit
		if res.Old != "" {
			ok, failed := r.isAncestor(ctx, res.Old, res.New)
			if failed != nil {
				return res, failed
			}
			if !ok {
				done, failed := r.keepOwn(ctx, req, res)
				if err = failed; errors.Is(err, errMoved) {
					continue
				}
				return done, err
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

// checkOnBranch returns nil if commit is reachable from tip.
func (r *Repo) checkOnBranch(ctx context.Context, commit, tip Hash) error {
	if _, err := r.objects.Commit(ctx, commit); err != nil {
		return err
	}
	ok, err := r.isAncestor(ctx, commit, tip)
	if err == nil && !ok {
		err = ErrNotFound
	}
	return err
}
