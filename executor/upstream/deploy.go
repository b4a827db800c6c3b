package upstream

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Deploy reports that a commit of a repository was deployed.
type Deploy struct {
	Repo        string    `json:"repo"`
	Commit      gitd.Hash `json:"commit"` // whole
	ImageDigest string    `json:"image_digest,omitempty"`
	// SchemaHash is the hash of the generated client or schema. SchemaFiles are the files that it is made of, if it is not given.
	SchemaHash  string    `json:"schema_hash,omitempty"`
	SchemaFiles []string  `json:"schema_files,omitempty"`
	Environment string    `json:"environment,omitempty"`
	DeployedAt  time.Time `json:"deployed_at,omitzero"`
	// SentAt is when the sender signed the message. A second Deploy with the same commit and time is the same message again.
	SentAt time.Time `json:"-"`
}

// Check returns an error if d is not whole, or too large for a manifest.
func (d Deploy) Check() error {
	if err := gitd.CheckName(d.Repo); err != nil {
		return err
	}
	if err := gitd.CheckHash(d.Commit); err != nil {
		return fmt.Errorf("%w commit %.80q: want all of its 40 hexadecimal digits", record.ErrInvalid, d.Commit)
	}
	for _, text := range append([]string{d.ImageDigest, d.SchemaHash, d.Environment}, d.SchemaFiles...) {
		if len(text) > 500 || strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			return fmt.Errorf("%w text %.80q: at most 500 bytes without control characters", record.ErrInvalid, text)
		}
	}
	if len(d.SchemaFiles) > 100 {
		return fmt.Errorf("%w deploy: it names %d schema files, allowed are 100", record.ErrInvalid, len(d.SchemaFiles))
	}
	if d.SchemaHash != "" && len(d.SchemaFiles) > 0 {
		return fmt.Errorf("%w deploy: it has a schema hash and schema files: want one", record.ErrInvalid)
	}
	return nil
}

// same reports whether the manifest b has the same data about the commit as d.
func (d Deploy) same(b gitd.Base) bool {
	if d.Commit != b.Commit {
		return false
	}
	if !d.SentAt.IsZero() && d.SentAt.Equal(b.SentAt) {
		return true
	}
	return d.Environment == b.Environment && d.ImageDigest == b.ImageDigest &&
		(d.SchemaHash == "" || d.SchemaHash == b.Schema)
}

// waitingDeploy is a deploy that was accepted. It is in a file of its own until it is done.
type waitingDeploy struct {
	Deploy
	Sent     time.Time `json:"sent,omitzero"`
	Accepted time.Time `json:"accepted"`
	Tries    int       `json:"tries,omitempty"`
	// Fetched is the commit that the base has got for it. Only the dependencies are still to be fetched then. It is
	// empty if the base has not got the commit.
	Fetched gitd.Hash `json:"fetched,omitempty"`
	next    time.Time // of the next attempt
	file    string
}

// sameAs reports whether both deploys ask for the same.
func (w *waitingDeploy) sameAs(o *waitingDeploy) bool {
	return w.Commit == o.Commit && w.Environment == o.Environment && w.ImageDigest == o.ImageDigest &&
		w.SchemaHash == o.SchemaHash &&
		slices.Equal(w.SchemaFiles, o.SchemaFiles)
}

// name returns a name for the deploy's file. Names are in the order of acceptance, and hold nothing that came from outside.
func (w *waitingDeploy) name() string {
	sum := sha256.Sum256([]byte(w.Repo + "\x00" + string(w.Commit)))
	return w.Accepted.Format("20060102-150405.000000000") + "-" + hex.EncodeToString(sum[:8]) + ".json"
}

// keep makes a waiting deploy durable.
func (b *Bases) keep(w *waitingDeploy) error {
	if err := os.MkdirAll(b.Dir, 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(w)
	if err != nil {
		return err
	}
	path := filepath.Join(b.Dir, w.file)
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return err
	}
	dir, err := os.Open(b.Dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// kept returns the deploys that an earlier process accepted, in that order. It removes files that cannot be read.
func (b *Bases) kept() (list []*waitingDeploy, err error) {
	entries, err := os.ReadDir(b.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the deploys that wait: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(b.Dir, e.Name())
		text, err := os.ReadFile(path)
		w := &waitingDeploy{file: e.Name()}
		if err == nil && strings.HasSuffix(e.Name(), ".json") {
			err = json.Unmarshal(text, w)
		}
		if err != nil || w.Repo == "" {
			b.Log.Warn("removed a deploy that cannot be read", "file", path, "err", err)
			_ = os.Remove(path)
			continue
		}
		w.SentAt = w.Sent
		list = append(list, w)
	}
	return list, nil
}

// discard removes the file of a deploy that is done.
func (b *Bases) discard(w *waitingDeploy) {
	if err := os.Remove(filepath.Join(b.Dir, w.file)); err != nil && !errors.Is(err, os.ErrNotExist) {
		b.Log.Error("cannot remove a deploy that is done", "repo", w.Repo, "err", err)
	}
}
