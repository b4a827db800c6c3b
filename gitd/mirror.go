package gitd

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
)

// Mirrored has the changes of a mirror.
type Mirrored struct {
	Updated int `json:"updated"` // branches and tags that were made or moved
	Removed int `json:"removed"`
}

// ownBranches are the branches of callers. No mirror touches them, here or there, and no refresh makes one.
const ownBranches = "refs/heads/ramus/"

// mirrorBatch is how many refs one push names.
const mirrorBatch = 200

// MirrorFrom makes the branches and tags those of upstream, also by force, and removes the others. It leaves the base,
// which [Server.RefreshFrom] moves, and the branches of callers. An empty URL means the source of the import.
func (r *Repo) MirrorFrom(ctx context.Context, up Upstream, progress io.Writer) (Mirrored, error) {
	res, err := r.mirrorFrom(ctx, up, progress)
	if err != nil {
		return res, fmt.Errorf("cannot mirror the branches of upstream in %s: %w", r.name, err)
	}
	return res, nil
}

func (r *Repo) mirrorFrom(ctx context.Context, up Upstream, progress io.Writer) (res Mirrored, err error) {
	base, err := r.Base(ctx)
	if err != nil {
		return res, err
	}
	src, err := r.upstreamSource(ctx, up, base)
	if err != nil {
		return res, err
	}
	done, err := takeTurn(ctx, r.refreshing)
	if err != nil {
		return res, err
	}
	defer done()
	if err := r.dropIncoming(ctx); err != nil {
		return res, err
	}
	defer func() {
		// This is done even if ctx has ended.
		if e := r.dropIncoming(context.WithoutCancel(ctx)); e != nil && err == nil {
			err = e
		}
	}()
	room, err := gitcmd.FreeSpace(r.dir)
	if err != nil {
		return res, err
	}
	folder := incomingRefs + "/" + rand.Text()
	lines, flush := src.progressWriter(progress)
	defer flush()
	err = r.server.runFetch(ctx, src, fetchRequest{dir: r.dir, specs: []string{
		"+refs/heads/*:" + folder + "/heads/*", "+refs/tags/*:" + folder + "/tags/*"}}, room, lines)
	if err != nil {
		if gitcmd.ExitCode(err) > 0 && ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", err, ErrUpstream)
		}
		return res, src.redactError(gitcmd.ExplainFullDisk(err, r.dir))
	}
	incoming, err := r.Refs(ctx, folder)
	if err != nil {
		return res, err
	}
	theirs := make(map[string]Hash, len(incoming))
	for _, ref := range incoming {
		theirs["refs"+strings.TrimPrefix(ref.Name, folder)] = ref.Hash
	}
	ours, err := r.mirrored(ctx)
	if err != nil {
		return res, err
	}
	for batch := range mirrorBatches(mirrorUpdates(ours, theirs, "refs/heads/"+base, &res)) {
		if err := r.Update(ctx, batch...); err != nil {
			return res, err
		}
	}
	return res, nil
}

// mirrorUpdates returns the changes that make ours equal to theirs, apart from the ref except and the branches of
// callers. It counts them in res.
func mirrorUpdates(ours, theirs map[string]Hash, except string, res *Mirrored) []RefUpdate {
	var updates []RefUpdate
	for name, h := range theirs {
		old := ours[name]
		if name == except || strings.HasPrefix(name, ownBranches) || old == h {
			continue
		}
		updates = append(updates, RefUpdate{Name: name, New: h, Old: &old})
		res.Updated++
	}
	for name, h := range ours {
		if _, there := theirs[name]; there || name == except || strings.HasPrefix(name, ownBranches) {
			continue
		}
		updates = append(updates, RefUpdate{Name: name, Old: &h})
		res.Removed++
	}
	slices.SortFunc(updates, func(a, b RefUpdate) int {
		if (a.New == "") != (b.New == "") {
			return map[bool]int{true: -1, false: 1}[a.New == ""]
		}
		return strings.Compare(a.Name, b.Name)
	})
	return updates
}

// mirrorBatches splits sorted updates. Removals come first, in batches of their own, because a branch may get the name
// of the folder of removed ones.
func mirrorBatches(updates []RefUpdate) iter.Seq[[]RefUpdate] {
	removals := 0
	for removals < len(updates) && updates[removals].New == "" {
		removals++
	}
	return func(yield func([]RefUpdate) bool) {
		for _, part := range [][]RefUpdate{updates[:removals], updates[removals:]} {
			for batch := range slices.Chunk(part, mirrorBatch) {
				if !yield(batch) {
					return
				}
			}
		}
	}
}

// mirrored returns the branches and tags, without the branches of callers.
func (r *Repo) mirrored(ctx context.Context) (map[string]Hash, error) {
	all := map[string]Hash{}
	for _, folder := range []string{"refs/heads", "refs/tags"} {
		refs, err := r.Refs(ctx, folder)
		if err != nil {
			return nil, err
		}
		for _, ref := range refs {
			if !strings.HasPrefix(ref.Name, ownBranches) {
				all[ref.Name] = ref.Hash
			}
		}
	}
	return all, nil
}

// MirrorTo makes the branches and tags of another repository those of this one, also by force, and removes the others
// there. It leaves the branches of callers, here and there. It may be repeated after any failure. Returns
// [ErrUpstreamRefused] if a rule of the other side rejects a ref, after the other refs were pushed, and [ErrUpstream]
// for other failures there.
func (r *Repo) MirrorTo(ctx context.Context, up Upstream) (Mirrored, error) {
	res, err := r.mirrorTo(ctx, up)
	if err != nil {
		return res, fmt.Errorf("cannot push the mirror of %s: %w", r.name, err)
	}
	return res, nil
}

func (r *Repo) mirrorTo(ctx context.Context, up Upstream) (res Mirrored, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.server.limits.Time, errUpstreamTime)
	defer cancel()
	src, err := up.resolveSource(ctx)
	if err != nil {
		return res, err
	}
	out, err := r.server.git.Output(ctx, gitcmd.Command{Config: src.config, Env: src.env,
		Args: []string{"ls-remote", "--refs", "--end-of-options", src.location, "refs/heads/*", "refs/tags/*"}})
	if err != nil {
		return res, src.redactError(mirrorFault(ctx, err))
	}
	theirs := map[string]Hash{}
	for line := range bytes.Lines(out) {
		h, name, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), "\t")
		if CheckRef(name) == nil && CheckHash(Hash(h)) == nil {
			theirs[name] = Hash(h)
		}
	}
	ours, err := r.mirrored(ctx)
	if err != nil {
		return res, err
	}
	var all Mirrored
	var refused error
	for batch := range mirrorBatches(mirrorUpdates(theirs, ours, "", &all)) {
		args := []string{"push", "--porcelain", "--no-verify", "--no-signed", "--no-follow-tags",
			"--recurse-submodules=no", "--end-of-options", src.location}
		for _, u := range batch {
			spec := ":" + u.Name
			if u.New != "" {
				spec = "+" + string(u.New) + spec
			}
			args = append(args, spec)
		}
		said := &gitcmd.Tail{Max: gitcmd.StderrMax}
		out, failed := r.server.git.Output(ctx,
			gitcmd.Command{Repo: r.dir, Config: src.config, Env: src.env, Progress: said, Args: args})
		if failed == nil {
			continue
		}
		kind := ErrUpstream
		for _, u := range batch {
			if report := readReport(out, u.Name); report.kind == refRemote {
				kind, failed = ErrUpstreamRefused, fmt.Errorf("%s: %s", u.Name, report.reason(said))
				break
			}
		}
		if refused = src.redactError(fmt.Errorf("%w: %w", failed, kind)); kind == ErrUpstream {
			return res, refused
		}
	}
	return all, refused
}

// mirrorFault adds the kind to an error of git that the other side caused.
func mirrorFault(ctx context.Context, err error) error {
	if gitcmd.ExitCode(err) > 0 && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", err, ErrUpstream)
	}
	return err
}

// WithoutPassword returns a URL without its credentials, for people.
func WithoutPassword(url string) string { return withoutPassword(url) }
