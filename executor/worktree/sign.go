package worktree

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/ramus-dev/ramus/gitd"
)

// Commits made in a container are signed on the host, with a key that never enters the container. git runs ramus's
// own binary as its signer there, and that binary sends the commit to the door. The host signs only commits of ramus
// on the caller's branch, which the container could also push without a signature. So a signature proves that ramus
// ordered this commit for a caller. It does not prove that anybody has reviewed it.

// signMax bounds a commit that a container sends to be signed, in bytes. gitd has a limit of its own.
const signMax = 1 << 20

// ServeSign serves the door's path for signatures. The body of the request is a commit, that of the answer its signature.
func (t *Tree) ServeSign(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "ramus: POST only", http.StatusMethodNotAllowed)
		return
	}
	commit, err := io.ReadAll(http.MaxBytesReader(w, r.Body, signMax))
	if err != nil {
		http.Error(w, fmt.Sprintf("ramus: cannot read the commit, of which there may be %d bytes", signMax),
			http.StatusBadRequest)
		return
	}
	signature, err := t.Repo.SignCommit(r.Context(), commit, t.store.Identity.Bot, t.Caller.Branch(), t.Base)
	switch {
	case err == nil:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write(signature) // the container may have gone
	case errors.Is(err, gitd.ErrDenied):
		http.Error(w, "ramus: "+err.Error(), http.StatusForbidden)
	case errors.Is(err, gitd.ErrInvalid), errors.Is(err, gitd.ErrTooLarge):
		http.Error(w, "ramus: "+err.Error(), http.StatusBadRequest)
	default:
		t.store.Log.Error("cannot sign a commit", "caller", t.Caller, "err", err)
		http.Error(w, "ramus: the server cannot sign now", http.StatusInternalServerError)
	}
}
