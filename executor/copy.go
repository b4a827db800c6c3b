package executor

import (
	"context"

	"github.com/ramus-dev/ramus/executor/backup"
)

// Backup makes a snapshot of the data folder while it is in use, see [backup.Maker.Make]. Prune waits meanwhile, and one
// that is at work is waited for.
func (x *Executor) Backup(ctx context.Context, r backup.Request) (backup.Snapshot, error) {
	if err := x.life.err(); err != nil {
		return backup.Snapshot{}, err
	}
	release, err := x.runs.lock(ctx, pruneLock)
	if err != nil {
		return backup.Snapshot{}, err
	}
	defer release()
	m := backup.Maker{Data: x.Data, Git: x.Git, Elsewhere: x.Store != nil, Now: x.Now}
	return m.Make(ctx, r)
}

// RotateSecrets seals all secrets with a new key, see [secret.Store.Rotate]. No backup is made meanwhile, which could
// have the keys of one moment and the secrets of another.
func (x *Executor) RotateSecrets(ctx context.Context) (int, error) {
	if err := x.life.err(); err != nil {
		return 0, err
	}
	release, err := x.runs.lock(ctx, pruneLock)
	if err != nil {
		return 0, err
	}
	defer release()
	return x.SecretStore.Rotate()
}

// pruneLock is the name of the lock under which Prune, Backup and RotateSecrets work. No run has it.
const pruneLock = "prune"
