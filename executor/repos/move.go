package repos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ramus-dev/ramus/executor/index"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/gitd"
)

// A repository goes from one server to another with its branches, its runs and their artifacts. Everything else that
// belongs to it keeps it here.

// HandOver ends the containers of a repository that another server is about to take. It is an [record.ErrConflict] if a run
// in it has not ended, or if it has something that cannot go along.
func (rs *Repos) HandOver(ctx context.Context, name string, by gitd.Person) error {
	if err := rs.handOver(ctx, name, by); err != nil {
		return fmt.Errorf("cannot move %s: %w", name, err)
	}
	return nil
}

func (rs *Repos) handOver(ctx context.Context, name string, by gitd.Person) error {
	if err := rs.endWork(ctx, name, false, by); err != nil {
		return err
	}
	for _, r := range rs.Runs.Current() {
		if r.Repo == name && rs.Hides != nil && rs.Hides(r.Caller) {
			return fmt.Errorf("%w: the workspace %s is private, and its owner is known here alone", record.ErrConflict, r.Caller)
		}
	}
	if rs.SecretStore != nil {
		for _, s := range rs.SecretStore.List(secret.OfRepository(name)) {
			if s.Owner == secret.OfRepo(name) {
				return fmt.Errorf("%w: it has the credential %s, which is sealed here; remove it first", record.ErrConflict, s.Name)
			}
		}
	}
	repo, err := rs.Git.Repo(name)
	if err == nil && !rs.Shared && repo.Marked() {
		err = fmt.Errorf("%w: its Git LFS objects are in this server's folder; artifacts.url gives all servers one store", record.ErrConflict)
	}
	return err
}

// Carried returns the artifacts that another server needs with a repository. Returns none if all servers have the same
// store.
func (rs *Repos) Carried(ctx context.Context, name string) ([]record.ManifestFile, error) {
	if rs.Shared {
		return nil, nil
	}
	var files []record.ManifestFile
	for _, r := range rs.Runs.Current() {
		if r.Repo != name || !r.Ended() {
			continue
		}
		m, err := rs.Runs.Manifest(ctx, r.Name())
		if errors.Is(err, record.ErrNotFound) || errors.Is(err, gitd.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot list the artifacts of %s: %w", name, err)
		}
		for _, f := range m.Files {
			if f.Stored {
				files = append(files, f)
			}
		}
	}
	return files, nil
}

// CheckIdle returns an [record.ErrConflict] if a run in a repository has not ended.
func (rs *Repos) CheckIdle(name string) error {
	for _, r := range rs.Runs.Current() {
		if r.Repo == name && (!r.Ended() || rs.works(r)) {
			return fmt.Errorf("%w: the run %s has begun meanwhile", record.ErrConflict, r.Name())
		}
	}
	return nil
}

// Leave forgets a repository that another server owns now, and discards its copy.
func (rs *Repos) Leave(ctx context.Context, name string) error {
	err := rs.Git.Discard(ctx, name)
	if err == nil || errors.Is(err, gitd.ErrNotFound) {
		err = rs.forgetRuns(name)
		rs.dropLayers(name)
		err = errors.Join(err, rs.Deps.Forget(ctx, name))
	}
	if err != nil {
		return fmt.Errorf("cannot leave %s to another server: %w", name, err)
	}
	return nil
}

// TakeOver lists the runs of a repository that came from another server.
func (rs *Repos) TakeOver(ctx context.Context, name string) error {
	repo, err := rs.Git.Repo(name)
	var runs []record.Run
	if err == nil {
		runs, err = index.RunsOf(ctx, repo)
	}
	if err == nil {
		err = rs.Runs.Index.Put(runs...)
	}
	if err != nil {
		return fmt.Errorf("%s is here, but its runs cannot be listed: %w; `ramus reindex` repairs that", name, err)
	}
	return nil
}

// arrivals is the pattern of the files of artifacts on their way here.
const arrivals = "artifact-*.tmp"

// ClearArrivals removes the files that [Repos.KeepArtifact] left when the process was killed.
func (rs *Repos) ClearArrivals() error {
	left, err := filepath.Glob(filepath.Join(rs.Data, arrivals))
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// KeepArtifact keeps an artifact that came from another server. in has its content.
func (rs *Repos) KeepArtifact(ctx context.Context, f record.ManifestFile, in io.Reader) error {
	tmp, err := os.CreateTemp(rs.Data, arrivals)
	if err != nil {
		return fmt.Errorf("cannot keep an artifact: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = io.Copy(tmp, io.LimitReader(in, f.Size+1))
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = rs.Artifacts.Put(ctx, tmp.Name(), f.SHA256, f.Size)
	}
	if err != nil {
		return fmt.Errorf("cannot keep an artifact: %w", err)
	}
	return nil
}
