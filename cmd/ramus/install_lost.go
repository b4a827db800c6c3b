package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/executor/backup"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/replica"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/durable"
)

// A replica that owns repositories and finds its data folder empty has lost its volume. It takes the newest snapshot of
// replicas.backups, and names the losses.

// lostFile is the file of a data folder that names the losses, until a person removes it.
const lostFile = "lost.json"

// restoreVolume fills an empty data folder from the newest snapshot. The lease of the replica is held.
func (o *opening) restoreVolume(ctx context.Context) error {
	from, data, group := o.config.Replicas.Backups, o.config.Data, o.replicas.group
	_, err := os.Lstat(filepath.Join(data, "repos"))
	unfinished := backup.CheckFinished(data) != nil
	if err == nil && !unfinished || len(group.Owned()) == 0 {
		return nil
	}
	o.volumeLost = true
	if from == "" {
		o.log.Error("the data folder is empty, and this replica owns repositories; replicas.backups names no backup to restore",
			"repos", len(group.Owned()))
		return nil
	}
	snapshot, err := backup.Find(filepath.Join(from, o.config.Replicas.Name))
	if errors.Is(err, record.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		o.log.Error("the data folder is empty, and there is no backup of this replica", "err", err)
		return nil
	}
	if err != nil {
		return err
	}
	o.log.Warn("the data folder is empty; restoring the last backup", "snapshot", snapshot)
	begun := time.Now()
	r, err := backup.Restore(ctx, snapshot, data)
	if err != nil {
		return fmt.Errorf("%w; without replicas.backups the replica starts without the repositories that it lost", err)
	}
	o.log.Warn("restored the last backup", "snapshot", snapshot, "repos", r.Repos, "took", time.Since(begun).Round(time.Millisecond))
	o.restored = r.Manifest
	return nil
}

// nameLosses records the losses with the volume. missing are the repositories of this replica that it does not have.
func (o *opening) nameLosses(missing []string) error {
	path := filepath.Join(o.config.Data, lostFile)
	losses, err := readLosses(path)
	if err != nil {
		return err
	}
	if o.volumeLost {
		before := o.replicas.group.Before()
		var found []replica.Loss
		for _, repo := range o.replicas.group.Owned() {
			l := replica.Loss{Repo: repo, Replica: o.config.Replicas.Name, Changed: before.Changed[repo], Seen: before.Seen}
			if o.restored != nil && !slices.Contains(missing, repo) {
				l.Backup = o.restored.MadeAt
				if !l.Changed.IsZero() && l.Changed.Before(l.Backup) {
					continue // it did not change after the backup
				}
			}
			found = append(found, l)
		}
		if losses = found; len(losses) > 0 {
			b, err := json.MarshalIndent(losses, "", " ")
			if err == nil {
				err = durable.Replace(path, b, true)
			}
			if err != nil {
				return fmt.Errorf("cannot note what was lost: %w", err)
			}
		}
	}
	for _, l := range losses {
		o.log.Error("work was lost with the volume of this replica", "repo", l.Repo, "what", l.String())
	}
	o.replicas.front.Losses = losses
	return nil
}

// readLosses reads the file of losses. A file that does not exist has nothing.
func readLosses(path string) (losses []replica.Loss, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &losses)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read what was lost: %w", err)
	}
	return losses, nil
}

// claimNew claims the name of a new repository. It refuses an empty repository in place of one that is lost.
func (o *opening) claimNew(claim func(context.Context, string) error) func(context.Context, string) error {
	return func(ctx context.Context, repo string) error {
		if err := o.replicas.front.Lost(repo); err != nil {
			return fmt.Errorf("%w: %w", gitd.ErrExists, err)
		}
		err := claim(ctx, repo)
		if err == nil {
			o.replicas.group.Note(repo)
		}
		return err
	}
}
