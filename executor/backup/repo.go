package backup

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/ramus-dev/ramus/gitd"
)

// repo copies a repository. Packs of the snapshot before are shared, and a new pack has the objects that they lack.
func (w *writer) repo(ctx context.Context, st gitd.RepoState) error {
	name := "repos/" + st.Repo.Name() + ".git"
	packs := w.packs(name)
	var had []gitd.Ref
	if len(packs) > 0 && len(packs) <= 2*packsMax { // a pack has two files
		had = w.oldRefs(name)
	}
	if len(had) > 0 {
		for _, p := range packs {
			done, err := w.share(ctx, p)
			if err != nil {
				return err
			}
			if !done { // nothing of the snapshot before can be relied on
				had = nil
				break
			}
		}
	}
	if err := st.CopyTo(ctx, w.pathOf(name), had); err != nil {
		return err
	}
	w.manifest.Repos = append(w.manifest.Repos, RepoInfo{Name: st.Repo.Name(), Refs: len(st.Refs)})
	return w.listNew(ctx, name)
}

// packs returns the files of the packs of a repository in the snapshot before.
func (w *writer) packs(repo string) []string {
	var list []string
	for p := range w.has {
		if path.Dir(p) == repo+"/objects/pack" {
			list = append(list, p)
		}
	}
	return list
}

// oldRefs returns the refs of a repository in the snapshot before.
func (w *writer) oldRefs(repo string) []gitd.Ref {
	f, err := os.Open(filepath.Join(w.shared, dataName, filepath.FromSlash(repo), "packed-refs"))
	if err != nil {
		return nil
	}
	defer f.Close()
	var refs []gitd.Ref
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		hash, name, ok := strings.Cut(lines.Text(), " ")
		if ok && gitd.CheckHash(gitd.Hash(hash)) == nil {
			refs = append(refs, gitd.Ref{Name: name, Hash: gitd.Hash(hash)})
		}
	}
	if lines.Err() != nil {
		return nil
	}
	return refs
}

// listNew adds the files of a copied repository that are not shared to the manifest.
func (w *writer) listNew(ctx context.Context, repo string) error {
	known := make(map[string]bool)
	for _, f := range w.manifest.Files {
		known[f.Path] = true
	}
	root := w.pathOf("")
	return filepath.WalkDir(w.pathOf(repo), func(file string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if known[rel] {
			return nil
		}
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		info, err := f.Stat()
		if err != nil {
			return errors.Join(err, f.Close())
		}
		n, sum, err := sumOf(io.Discard, reader{ctx, f})
		w.manifest.Files = append(w.manifest.Files, File{rel, n, info.Mode().Perm(), sum})
		w.copied += n
		return errors.Join(err, f.Close())
	})
}
