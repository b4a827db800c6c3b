package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"

	"github.com/ramus-dev/ramus/executor/backup"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/bytesize"
)

func backupCommand() command {
	var ask backup.Request
	return command{
		name: "backup", args: "[--keys] [--full] DIR",
		short: "copy the data folder to DIR, also while a server uses it",
		long: `
DIR gets one more snapshot, a folder named by the time. A snapshot has all
repositories, the runs at work and the artifacts of one moment. So everything that was
acknowledged before is in it. Files that did not change are links to those of the
snapshot before. Old snapshots may be removed by "rm -r" at any time.

Without --keys the keys of the server are not in the snapshot. A server that is
restored without them makes new keys. Then all tokens and links that it gave are
invalid, manifests of earlier bases cannot be verified, and the secrets of
"ramus secret" cannot be read. With --keys everybody who
can read DIR can sign tokens for this server.

Secrets that the configuration names by environment variables or files are not in the
snapshot. Nor is an artifact store that is not in the data folder (artifacts.url).`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.BoolVar(&ask.Keys, "keys", false, "include the keys that sign tokens and links")
			fs.BoolVar(&ask.Full, "full", false, "copy everything again, and share nothing with earlier snapshots")
			fs.BoolVar(&e.json, "json", false, "as JSON")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 1, 1, "DIR"); err != nil {
				return err
			}
			far, err := remote(ctx, e)
			if err != nil {
				return err
			}
			if far != nil {
				return usage("a backup is made on the server's machine; unset RAMUS_URL there")
			}
			if ask.Dir, err = filepath.Abs(args[0]); err != nil {
				return err
			}
			c, err := e.client(ctx)
			if err != nil {
				return err
			}
			s, err := c.Backup(ctx, ask)
			if err != nil {
				return err
			}
			if e.json {
				return e.writeJSON(s)
			}
			fmt.Fprintf(e.out, "%s: %s with %s, %s, of which %s are new\n", s.Path,
				plural(s.Repos, "repository", "repositories"),
				count(s.Refs, "ref"), bytesize.Text(s.Bytes), bytesize.Text(s.Copied))
			switch {
			case s.Keys:
				fmt.Fprintln(e.err, "The keys are included. A reader of the snapshot can sign tokens for this server.")
			default:
				fmt.Fprintln(e.err, "The keys are not included (--keys). After a restoration all tokens and links are invalid.")
			}
			if s.Elsewhere {
				fmt.Fprintln(e.err, "The artifacts in the store of artifacts.url are not included.")
			}
			return nil
		},
	}
}

func restoreCommand() command {
	var check bool
	return command{
		name: "restore", args: "[--check] DIR",
		short: "make an empty data folder what a backup holds",
		long: `
DIR is a snapshot, or the folder of "ramus backup", of which the newest snapshot is
taken. Every file is compared with its checksum, and "git fsck" examines every
repository, before the data folder has any of it. The data folder may have a
configuration and keys, which stay. No server may run on it.

Runs that were at work continue when the next server starts. Their containers are
gone, so commands that ran end as container_lost, and steps of workflows begin again.
Do not start a server on a copy while the original one runs, because both would do the
same work.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.BoolVar(&check, "check", false, "only compare the checksums and examine the repositories")
			fs.BoolVar(&e.json, "json", false, "as JSON")
		},
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 1, 1, "DIR"); err != nil {
				return err
			}
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			r, err := restoreSnapshot(ctx, e, dir, check)
			if err != nil {
				return restoreStatus(err)
			}
			if e.json {
				return e.writeJSON(r)
			}
			verb := "restored"
			if check {
				verb = "good"
			}
			fmt.Fprintf(e.out, "%s is %s: %s, %s, %s\n", r.Snapshot, verb,
				plural(r.Repos, "repository", "repositories"), count(r.Files, "file"), bytesize.Text(r.Bytes))
			if !r.Keys && !check {
				fmt.Fprintln(e.err, "There are no keys. The server makes new ones, and tokens and links from before are invalid.")
			}
			if r.Manifest.Elsewhere {
				fmt.Fprintln(e.err, "Artifacts were in a store outside of the data folder. Set artifacts.url to it.")
			}
			return nil
		},
	}
}

// restoreSnapshot restores the snapshot that dir names, or checks it.
func restoreSnapshot(ctx context.Context, e *env, dir string, check bool) (backup.Restored, error) {
	snapshot, err := backup.Find(dir)
	if err != nil || check {
		if err != nil {
			return backup.Restored{}, err
		}
		return backup.Check(ctx, snapshot)
	}
	c, err := e.config()
	if err != nil {
		return backup.Restored{}, err
	}
	lock, err := lockFolder(c.Data)
	if errors.Is(err, errLocked) {
		return backup.Restored{}, &exitStatus{exitInTheWay,
			fmt.Errorf("cannot restore to %s: another ramus%s uses it", c.Data, owner(c.Data))}
	} else if err != nil {
		return backup.Restored{}, err
	}
	r, err := backup.Restore(ctx, snapshot, c.Data)
	return r, errors.Join(err, lock.Close())
}

// restoreStatus returns an error with the exit status of its kind.
func restoreStatus(err error) error {
	switch {
	case errors.Is(err, record.ErrConflict):
		return &exitStatus{exitInTheWay, err}
	case errors.Is(err, record.ErrNotFound):
		return &exitStatus{exitNotFound, err}
	}
	return err
}

// plural returns a number with the form of a noun that fits to it.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
