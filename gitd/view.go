package gitd

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/pack"
)

// openView prepares the view of the refs.
func (r *Repo) openView() {
	r.view.Dir, r.view.Name, r.view.Objects = r.dir, r.name, &r.objects
	r.view.Unreached = r.unreached
	r.view.Deleted = func(tips map[Hash]bool) { r.server.clones.Forget(cloneRepo{r}, tips) }
}

// followDeleted is called when this server has deleted refs. Replies that are kept for wants at these refs are forgotten
// at once, not at the next request.
func (r *Repo) followDeleted(ctx context.Context) {
	if err := r.view.FollowDeleted(ctx); err != nil {
		r.server.log().Warn("cannot follow deleted refs", "repo", r.name, "err", err)
	}
}

// unreached returns one of the commits that no tip reaches, or "" if there is none.
func (r *Repo) unreached(ctx context.Context, commits, tips []Hash) (Hash, error) {
	var in bytes.Buffer
	for _, h := range commits {
		in.WriteString(string(h) + "\n")
	}
	for _, h := range tips {
		in.WriteString("^" + string(h) + "\n")
	}
	limits := r.server.limits
	ctx, stop := context.WithTimeoutCause(ctx, limits.Time, errChildTime)
	defer stop()
	// Children come before their parents, so the first line is one of the commits.
	out, err := r.server.git.Output(ctx, gitcmd.Command{
		Repo: r.dir, Args: []string{"rev-list", "--max-count=1", "--ignore-missing", "--stdin"}, In: &in,
		CPU: limits.CPU, Memory: limits.Memory,
	})
	if err != nil {
		return "", fmt.Errorf("cannot check which commits the refs of %s reach: %w", r.name, err)
	}
	if len(out) == 0 {
		return "", nil
	}
	if bad := Hash(pack.FirstLine(out)); slices.Contains(commits, bad) {
		return bad, nil
	}
	return commits[0], nil
}
