package gitd

import "context"

// UpstreamPush says what to do to a branch of upstream.
type UpstreamPush struct {
	Upstream
	// Branch at upstream, without refs/heads/. Upstream.Branch does not count.
	Branch string
	// Commit the branch is to point to; empty: it is deleted.
	Commit Hash
	// Old is what the branch has to point to before: the zero Hash that it must not
	// be there. Nil: whatever it is, as long as the push is a fast-forward.
	Old *Hash
}

// PushUpstream sends a commit to a branch of upstream, never by force: what
// somebody else put there stays, and is ErrConflict. A branch that is there already
// as wanted, or gone, is no error. It returns when upstream has acknowledged it.
// The credential is in no argument, URL or file.
func (r *Repo) PushUpstream(ctx context.Context, p UpstreamPush) error { panic("not built") }

// FetchUpstream fetches a branch of upstream and returns its tip. The commits are
// kept, durably, by refs/ramus/upstream/BRANCH, which follows the branch wherever it
// goes. A branch that is not there is ErrNotFound; the ref stays then.
func (r *Repo) FetchUpstream(ctx context.Context, u Upstream, branch string) (Hash, error) {
	panic("not built")
}

// Descends tells whether commit is ancestor or has it in its history.
func (r *Repo) Descends(ctx context.Context, commit, ancestor Hash) (bool, error) {
	panic("not built")
}
