package executor

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/gitd"
)

// Commits made in a container are signed on the host, with a key that never enters
// it: git runs ramus's own binary there for its signer, and that shows the commit at the
// door. What is signed is only a commit of ramus's on the caller's branch; a container
// could as well push it without a signature. So a signature says that ramus had this
// commit made for a caller, and not that anybody has looked at it.

// signMax bounds what a container may want to have signed; gitd has a limit of its own.
const signMax = 1 << 20

// signing is the environment of scripts that make commits.
func (x *Executor) signing() []string {
	if x.Git.Signer == nil {
		return []string{"RAMUS_PROGRAM=" + containers.RunnerProgram}
	}
	return []string{"RAMUS_PROGRAM=" + containers.RunnerProgram, "RAMUS_SIGN=" + x.Git.Signer.PublicKey()}
}

// sign answers at the door: the body is a commit, the answer its signature.
func (t *target) sign(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "ramus: POST only", http.StatusMethodNotAllowed)
		return
	}
	commit, err := io.ReadAll(http.MaxBytesReader(w, r.Body, signMax))
	if err != nil {
		http.Error(w, fmt.Sprintf("ramus: cannot read the commit, of which there may be %d bytes", signMax), http.StatusBadRequest)
		return
	}
	signature, err := t.repo.SignCommit(r.Context(), commit, t.x.Bot, t.caller.Branch(), t.base)
	switch {
	case err == nil:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write(signature) // the container may have gone
	case errors.Is(err, gitd.ErrDenied):
		http.Error(w, "ramus: "+err.Error(), http.StatusForbidden)
	case errors.Is(err, gitd.ErrInvalid), errors.Is(err, gitd.ErrTooLarge):
		http.Error(w, "ramus: "+err.Error(), http.StatusBadRequest)
	default:
		t.x.Log.Error("cannot sign a commit", "caller", t.caller, "err", err)
		http.Error(w, "ramus: the server cannot sign now", http.StatusInternalServerError)
	}
}
