package gitd

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/gitd/protocol"
)

// wantError is a want that is not served. Either there is no such object, or the client may not know of it.
// Clients cannot tell which.
type wantError struct{ want Hash }

func (e *wantError) Error() string { return "upload-pack: not our ref " + string(e.want) }

// packet returns the message to the client, in the words of git.
func (e *wantError) packet() []byte { return protocol.AppendLine(nil, "ERR ", e.Error()) }

// wantVerdict names the question whether a want that is no tip may be served under a grant.
type wantVerdict struct {
	sight string
	want  Hash
}

// verdictsMax bounds the verdicts that are remembered of a repository.
const verdictsMax = 10_000

// sightOf returns a name for the refs that a grant shows. Two grants that show the same may have two
// names.
func sightOf(g Grant) string {
	if len(g.Read) == 0 {
		return ""
	}
	sight := strings.Join(g.Read, "\n") + "\n\n" + strings.Join(g.Write, "\n")
	if g.Veil != nil {
		sight += "\n\n" + strings.Join(g.Veil.Hidden(), "\n")
	}
	return sight
}

// checkWants returns nil if a grant shows all wants. It shows tips, the commits that they reach, and, if it may
// read all refs, blobs and trees, for which a partial clone asks one by one. Git itself checks less. With protocol
// v2 it sends any object of the repository, even commits of deleted branches. The error may be a [wantError].
func (v *refView) checkWants(ctx context.Context, g Grant, wants []Hash) error {
	// The sight is that of before the look at the refs, so that a ref which is hidden meanwhile leaves no verdict.
	sight := sightOf(g)
	unknown, turn, tips := v.unknownWants(g, sight, wants)
	if len(unknown) == 0 {
		return nil
	}
	kinds, err := v.repo.objects.Kinds(ctx, unknown)
	if err != nil {
		return err
	}
	var commits []Hash
	for _, h := range unknown {
		switch kinds[h].Kind {
		case "commit":
			commits = append(commits, h)
		case "blob", "tree":
			if len(g.Read) > 0 {
				return &wantError{h}
			}
		default: // a tag that no ref is at
			return &wantError{h}
		}
	}

	bad, err := v.findUnreachable(ctx, commits, tips)
	if err != nil {
		return err
	}
	v.mu.Lock()
	if v.verdictVersion != turn || len(v.verdicts)+len(commits) > verdictsMax || v.verdicts == nil {
		v.verdicts, v.verdictVersion = map[wantVerdict]bool{}, turn
	}
	for _, h := range commits[:min(len(commits), verdictsMax)] {
		if bad == "" || bad == h {
			v.verdicts[wantVerdict{sight, h}] = bad == ""
		}
	}
	v.mu.Unlock()
	if bad != "" {
		return &wantError{bad}
	}
	return nil
}

// unknownWants returns the wants that are neither tips nor known to be reachable. If there are any, it returns the
// tips that the grant shows.
func (v *refView) unknownWants(g Grant, sight string, wants []Hash) (unknown []Hash, turn uint64, tips []Hash) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	known := func(h Hash) bool { return v.verdictVersion == v.version && v.verdicts[wantVerdict{sight, h}] }
	if len(g.Read) == 0 {
		for _, h := range wants {
			if v.tips[h] == 0 && h != v.head.hash && !known(h) {
				unknown = append(unknown, h)
			}
		}
	} else {
		shown := make([]bool, len(wants)) // wants are sorted
		mark := func(h Hash) {
			if i, ok := slices.BinarySearch(wants, h); ok {
				shown[i] = true
			}
		}
		v.eachRef(g, nil, func(r *shownRef) {
			mark(r.hash)
			mark(r.peeled)
		})
		for i, h := range wants {
			if !shown[i] && !known(h) {
				unknown = append(unknown, h)
			}
		}
	}
	if len(unknown) > 0 {
		if v.head.hash != "" && len(g.Read) == 0 {
			tips = append(tips, v.head.hash)
		}
		v.eachRef(g, nil, func(r *shownRef) { tips = append(tips, r.hash) })
	}
	return unknown, v.version, tips
}

// findUnreachable returns one of the commits that no tip reaches, or "" if there is none.
func (v *refView) findUnreachable(ctx context.Context, commits, tips []Hash) (Hash, error) {
	if len(commits) == 0 {
		return "", nil
	}
	var in bytes.Buffer
	for _, h := range commits {
		in.WriteString(string(h) + "\n")
	}
	for _, h := range tips {
		in.WriteString("^" + string(h) + "\n")
	}
	limits := v.repo.server.limits
	ctx, stop := context.WithTimeoutCause(ctx, limits.Time, errChildTime)
	defer stop()
	// Children come before their parents, so the first line is one of the commits.
	out, err := v.repo.server.git.Output(ctx, gitcmd.Command{
		Repo: v.repo.dir, Args: []string{"rev-list", "--max-count=1", "--ignore-missing", "--stdin"}, In: &in,
		CPU: limits.CPU, Memory: limits.Memory,
	})
	if err != nil {
		return "", fmt.Errorf("cannot check which commits the refs of %s reach: %w", v.repo.name, err)
	}
	if len(out) == 0 {
		return "", nil
	}
	if bad := Hash(pack.FirstLine(out)); slices.Contains(commits, bad) {
		return bad, nil
	}
	return commits[0], nil
}
