package gitd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/refview"
	"github.com/ramus-dev/ramus/internal/durable"
)

// A replica of a repository has the same refs and the same small files. It gets the objects first, by name, and then
// changes the refs.

// replicaBatch is how many objects one fetch names.
const replicaBatch = 500

// FetchObjects fetches the objects that are missing, with all that they reach. The other side must serve objects by name.
// No ref changes.
func (r *Repo) FetchObjects(ctx context.Context, up Upstream, want []Hash) error {
	if err := r.fetchObjects(ctx, up, want); err != nil {
		return fmt.Errorf("cannot fetch objects of %s: %w", r.name, gitcmd.ExplainFullDisk(err, r.dir))
	}
	return nil
}

func (r *Repo) fetchObjects(ctx context.Context, up Upstream, want []Hash) error {
	var missing []string
	for _, h := range want {
		if err := CheckHash(h); err != nil {
			return err
		}
		if _, err := r.objects.Kind(ctx, h); errors.Is(err, ErrNotFound) {
			missing = append(missing, string(h))
		} else if err != nil {
			return err
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	src, err := up.resolveSource(ctx)
	if err != nil {
		return err
	}
	done, err := takeTurn(ctx, r.refreshing)
	if err != nil {
		return err
	}
	defer done()
	room, err := gitcmd.FreeSpace(r.dir)
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(slices.Compact(missing), replicaBatch) {
		end := r.expectForeign()
		err := r.server.runFetch(ctx, src, fetchRequest{dir: r.dir, specs: batch}, room, newProgress(nil))
		r.objects.Packs.Changed()
		end()
		if err != nil {
			return src.redactError(mirrorFault(ctx, err))
		}
		r.countWrite()
	}
	return nil
}

// Replace makes the refs and the small files those of another repository, whose objects are there. Only the named refs
// change; an empty hash removes one. Files are those of [RepoState]; nil leaves them all. It may be repeated after any
// failure.
func (r *Repo) Replace(ctx context.Context, refs []Ref, files map[string][]byte) error {
	var removed, updated []RefUpdate
	for _, ref := range refs {
		is, err := r.readRef(ctx, ref.Name)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return fmt.Errorf("cannot replace the refs of %s: %w", r.name, err)
		}
		switch {
		case is == ref.Hash:
		case ref.Hash == "":
			removed = append(removed, RefUpdate{Name: ref.Name})
		default:
			updated = append(updated, RefUpdate{Name: ref.Name, New: ref.Hash})
		}
	}
	// Removals come first, because a ref may get the name of the folder of removed ones.
	for _, batch := range [][]RefUpdate{removed, updated} {
		if err := r.Update(ctx, batch...); err != nil {
			return err
		}
	}
	if files == nil {
		return nil
	}
	if err := r.replaceFiles(files); err != nil {
		return fmt.Errorf("cannot replace the files of %s: %w", r.name, err)
	}
	return nil
}

func (r *Repo) replaceFiles(files map[string][]byte) error {
	changed := make(map[string]bool)
	for _, name := range copiedFiles {
		path := filepath.Join(r.dir, filepath.FromSlash(name))
		want, wanted := files[name]
		have, err := readBounded(path, copiedMax)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if wanted == (err == nil) && bytes.Equal(have, want) {
			continue
		}
		changed[filepath.Dir(path)] = true
		if !wanted {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := durable.Replace(path, want, true); err != nil {
			return err
		}
	}
	return syncFolders(changed)
}

// PlainFiles returns the small files of the state for a copy that keeps its refs in files.
func (st RepoState) PlainFiles() map[string][]byte {
	if !refview.HasReftable(st.Repo.dir) {
		return st.Files
	}
	files := make(map[string][]byte, len(st.Files))
	for name, b := range st.Files {
		files[name] = b
	}
	var plain []byte
	for line := range bytes.Lines(st.Files["config"]) {
		if !strings.HasPrefix(strings.ToLower(strings.TrimSpace(string(line))), "refstorage") {
			plain = append(plain, line...)
		}
	}
	files["config"] = plain
	return files
}

// settle returns nil when a change of refs that is on disk may be acknowledged.
func (s *Server) settle(ctx context.Context, repo string) error {
	if s.Settle == nil {
		return nil
	}
	return s.Settle(ctx, repo)
}

// checkDuty returns an error if the server may not change refs of a repository now.
func (s *Server) checkDuty(ctx context.Context, repo string) error {
	if s.Duty == nil {
		return nil
	}
	return s.Duty(ctx, repo)
}

// claimName returns nil if a repository may get the name.
func (s *Server) claimName(ctx context.Context, repo string) error {
	if s.Claim == nil {
		return nil
	}
	return s.Claim(ctx, repo)
}

// dropped tells the owner of the server that a name is free.
func (s *Server) dropped(ctx context.Context, repo string) error {
	if s.Dropped == nil {
		return nil
	}
	return s.Dropped(context.WithoutCancel(ctx), repo)
}
