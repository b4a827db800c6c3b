package executor

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/executor/record"
)

// git inside a bound work tree asks what may have changed since its index was written
// (githooks(5), fsmonitor-watchman), and the host knows without looking at any file that
// did not: all that differs from the base layer lies in the upper, and what the index
// has that the layer has not was noted when the host wrote it. Of an index that git wrote
// itself nothing is known, and all is said to have changed.

const (
	// fsmonitorPaths is how many changes are told one by one.
	fsmonitorPaths = 20_000
	// fsmonitorTokens is how many of its indexes the host remembers: a command may
	// have put one aside.
	fsmonitorTokens = 8
	fsmonitorToken  = 1 << 10 // bytes of a token that is asked about
	// fsmonitorSpent is told of an index that git may write next.
	fsmonitorSpent = "ramus-spent"
)

// issueLocked makes the token of an index that differs from the layer's in these paths.
func (b *binding) issueLocked(paths []string) string {
	token := "ramus-" + record.NewToken()
	if b.tokens == nil {
		b.tokens = make(map[string][]string)
	}
	b.tokens[token] = paths
	b.order = append(b.order, token)
	if len(b.order) > fsmonitorTokens {
		delete(b.tokens, b.order[0])
		b.order = b.order[1:]
	}
	return token
}

// fsmonitor answers git at the door.
func (t *target) fsmonitor(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "ramus: POST only", http.StatusMethodNotAllowed)
		return
	}
	token, err := io.ReadAll(http.MaxBytesReader(w, r.Body, fsmonitorToken))
	if err != nil {
		http.Error(w, "ramus: cannot read the token", http.StatusBadRequest)
		return
	}
	answer := []byte(fsmonitorSpent + "\x00")
	if changed, ok := t.changedSince(r.Context(), string(token)); ok {
		answer = append(answer, changed...)
	} else {
		answer = append(answer, "/\x00"...)
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(answer) // the container may have gone
}

// changedSince lists the paths that may differ from an index, each with a NUL behind it;
// false when that may be any.
func (t *target) changedSince(ctx context.Context, token string) ([]byte, bool) {
	b := t.binding()
	if b == nil {
		return nil, false
	}
	b.mu.Lock()
	paths, known := b.tokens[token]
	b.mu.Unlock()
	if !known && token != b.layer.Token {
		return nil, false
	}
	changes, err := t.x.layers.keeper.Changes(ctx, b.at.Upper(), fsmonitorPaths)
	if err != nil {
		return nil, false
	}
	if under := b.layer.under; under != nil {
		// The index of a branch's layer has of the one below what that knows of folders: those
		// that the branch removed are there no more.
		differ, err := t.repo.Compare(ctx, under.Commit, b.layer.Commit, bindChanges)
		if err != nil {
			return nil, false
		}
		paths = slices.Clone(paths)
		for _, c := range differ {
			paths = append(paths, c.Path)
		}
	}
	var out bytes.Buffer
	tell := func(path string) {
		out.WriteString(path)
		out.WriteByte(0)
	}
	for _, path := range paths {
		tell(path)
	}
	for _, c := range changes {
		if inGit(c.Path) {
			continue
		}
		switch {
		case c.Redirect != "":
			// What it holds is not in the upper.
			return nil, false
		case c.Kind != layer.KindFolder:
			// Also as a folder: it may be in the place of one.
			tell(c.Path)
			tell(c.Path + "/")
		case c.Opaque:
			// A new one: what is in it is told below. In the place of one of the layer's
			// it hides files that nobody tells.
			for _, tree := range b.layer.trees() {
				if _, err := os.Lstat(filepath.Join(tree, c.Path)); err == nil || !os.IsNotExist(err) {
					return nil, false
				}
			}
			tell(c.Path + "/")
		}
	}
	return out.Bytes(), true
}
