package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/ramus-dev/ramus/executor/lfs"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/gitd"
)

// newLFS returns the Git LFS objects of a configuration. They are in the artifact store. If bucket is nil, that is the
// folder artifacts of the data folder, which is read in any case. source returns the upstream of a repository, and the
// hosts of its objects.
func newLFS(c Config, bucket store.Bucket, source func(repo string) (gitd.Upstream, []string), log *slog.Logger) (*lfs.Objects, error) {
	x := &lfs.Objects{Bucket: bucket, Log: log, Source: source}
	dir := filepath.Join(c.Data, "artifacts")
	if _, err := os.Stat(dir); bucket != nil && errors.Is(err, fs.ErrNotExist) {
		return x, nil
	}
	folder, err := store.OpenFolder(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot open the store of Git LFS objects: %w", err)
	}
	if bucket == nil {
		x.Bucket = folder
	} else {
		x.Earlier = folder
	}
	return x, nil
}

// lfsSource returns the upstream of a repository, and the hosts of its Git LFS objects.
func (i *installation) lfsSource(repo string) (gitd.Upstream, []string) {
	return i.executor.Bases.Source(repo).Upstream, i.now().Repos[repo].LFSHosts
}
