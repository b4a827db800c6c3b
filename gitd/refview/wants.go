package refview

import (
	"context"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/gitd/grant"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/protocol"
)

// WantError is a want that is not served. Either there is no such object, or the client may not know of it.
// Clients cannot tell which.
type WantError struct{ Want object.Hash }

func (e *WantError) Error() string { return "upload-pack: not our ref " + string(e.Want) }

// Packet returns the message to the client, in the words of git.
func (e *WantError) Packet() []byte { return protocol.AppendLine(nil, "ERR ", e.Error()) }

// wantVerdict names the question whether a want that is no tip may be served under a grant.
type wantVerdict struct {
	sight string
	want  object.Hash
}

// verdictsMax bounds the verdicts that are remembered of a repository.
const verdictsMax = 10_000

// sightOf returns a name for the refs that a grant shows. Two grants that show the same may have two
// names.
func sightOf(g grant.Grant) string {
	if len(g.Read) == 0 {
		return ""
	}
	sight := strings.Join(g.Read, "\n") + "\n\n" + strings.Join(g.Write, "\n")
	if g.Veil != nil {
		sight += "\n\n" + strings.Join(g.Veil.Hidden(), "\n")
	}
	return sight
}

// CheckWants returns nil if a grant shows all wants. It shows tips, the commits that they reach, and, if it may
// read all refs, blobs and trees, for which a partial clone asks one by one. Git itself checks less. With protocol
// v2 it sends any object of the repository, even commits of deleted branches. The error may be a [WantError].
func (v *View) CheckWants(ctx context.Context, g grant.Grant, wants []object.Hash) error {
	// The sight is that of before the look at the refs, so that a ref which is hidden meanwhile leaves no verdict.
	sight := sightOf(g)
	unknown, turn, tips := v.unknownWants(g, sight, wants)
	if len(unknown) == 0 {
		return nil
	}
	kinds, err := v.Objects.Kinds(ctx, unknown)
	if err != nil {
		return err
	}
	var commits []object.Hash
	for _, h := range unknown {
		switch kinds[h].Kind {
		case "commit":
			commits = append(commits, h)
		case "blob", "tree":
			if len(g.Read) > 0 {
				return &WantError{h}
			}
		default: // a tag that no ref is at
			return &WantError{h}
		}
	}

	var bad object.Hash
	if len(commits) > 0 {
		bad, err = v.Unreached(ctx, commits, tips)
	}
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
		return &WantError{bad}
	}
	return nil
}

// unknownWants returns the wants that are neither tips nor known to be reachable. If there are any, it returns the
// tips that the grant shows.
func (v *View) unknownWants(g grant.Grant, sight string, wants []object.Hash) (unknown []object.Hash, turn uint64, tips []object.Hash) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	known := func(h object.Hash) bool { return v.verdictVersion == v.version && v.verdicts[wantVerdict{sight, h}] }
	if len(g.Read) == 0 {
		for _, h := range wants {
			if v.tips[h] == 0 && h != v.head.hash && !known(h) {
				unknown = append(unknown, h)
			}
		}
	} else {
		shown := make([]bool, len(wants)) // wants are sorted
		mark := func(h object.Hash) {
			if i, ok := slices.BinarySearch(wants, h); ok {
				shown[i] = true
			}
		}
		v.eachRef(g, nil, func(r *Ref) {
			mark(r.Hash)
			mark(r.Peeled)
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
		v.eachRef(g, nil, func(r *Ref) { tips = append(tips, r.Hash) })
	}
	return unknown, v.version, tips
}
