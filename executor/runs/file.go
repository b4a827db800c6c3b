package runs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/ramus-dev/ramus/executor/attachment"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/gitd"
)

// Output opens a command's whole output. stream is "stdout" or "stderr". Of a command that is at work it gives the output so far.
func (rd *Reader) Output(ctx context.Context, run, step, stream string) (io.ReadCloser, error) {
	if stream != "stdout" && stream != "stderr" {
		return nil, fmt.Errorf("%w stream %q: stdout or stderr", record.ErrInvalid, stream)
	}
	r, err := rd.Run(ctx, run)
	if err != nil {
		return nil, err
	}
	var seq int64 = -1
	for e, err := range rd.Events(ctx, r.Name(), 0, false) {
		if err != nil {
			return nil, err
		}
		if e.Step == step && e.Type == record.EventStepStarted {
			seq = e.Seq
		}
	}
	if seq < 0 {
		return nil, fmt.Errorf("step %q of %s: %w", step, r.Name(), record.ErrNotFound)
	}
	name := fmt.Sprintf("%04d-%s.%s", seq, record.FileName(step), stream)
	f, err := os.Open(filepath.Join(rd.Folder.Output(r), name))
	if err == nil {
		return f, nil
	}
	out, err := rd.Artifact(ctx, r.Name(), "output/"+name)
	if errors.Is(err, record.ErrNotFound) {
		return io.NopCloser(bytes.NewReader(nil)), nil // it printed nothing
	}
	return out, err
}

// Artifact opens a file of a run's evidence by its name in the manifest, such as "artifacts/report.html". The run must have ended
// or wait for a person.
func (rd *Reader) Artifact(ctx context.Context, run, name string) (*store.File, error) {
	r, err := rd.Run(ctx, run)
	if err != nil {
		return nil, err
	}
	m, err := rd.Manifest(ctx, r.Name())
	if err != nil {
		return nil, err
	}
	for _, f := range m.Files {
		if f.Name == name {
			return rd.OpenFile(ctx, r, f)
		}
	}
	return nil, fmt.Errorf("artifact %q of %s: %w", name, r.Name(), record.ErrNotFound)
}

// OpenFile opens a file that a run's manifest names, from git or the artifact store.
func (rd *Reader) OpenFile(ctx context.Context, r record.Run, f record.ManifestFile) (*store.File, error) {
	if f.Stored {
		return rd.Artifacts.Open(ctx, f)
	}
	repo, err := rd.Git.Repo(r.Repo)
	if err != nil {
		return nil, err
	}
	return store.OpenFile(f, func() (io.ReadCloser, error) {
		in, _, err := repo.OpenFile(ctx, record.RunRef(r.Caller, r.ID), f.Name)
		if errors.Is(err, gitd.ErrNotFound) {
			err = fmt.Errorf("cannot open %q: %w: it is not in the run's ref", f.Name, record.ErrDamaged)
		}
		return in, err
	})
}

// Manifest returns the evidence of a run that has ended or waits for a person.
func (rd *Reader) Manifest(ctx context.Context, run string) (record.Manifest, error) {
	r, err := rd.Run(ctx, run)
	if err != nil {
		return record.Manifest{}, err
	}
	repo, err := rd.Git.Repo(r.Repo)
	if err != nil {
		return record.Manifest{}, err
	}
	var m record.Manifest
	text, err := repo.ReadFile(ctx, record.RunRef(r.Caller, r.ID), record.ManifestPath, record.MaxManifest)
	if errors.Is(err, gitd.ErrNotFound) {
		return m, fmt.Errorf("the evidence of %s: %w: it is made when the run ends", r.Name(), record.ErrNotFound)
	}
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return m, fmt.Errorf("cannot read the evidence of %s: %w", r.Name(), err)
	}
	return m, nil
}

// Words reads the standard output of a step, from one byte to the one before another. seq is the number of the step's
// EventStepStarted. It returns fewer bytes if there are no more. The bytes do not change while the step works, and stay the same
// when the run has ended and after a restart of the server, if the step is a turn of an agent of ProtocolACP.
func (rd *Reader) Words(ctx context.Context, run, step string, seq, from, to int64) ([]byte, error) {
	if from < 0 || to <= from {
		return nil, nil
	}
	r, err := rd.Run(ctx, run)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%04d-%s.stdout", seq, record.FileName(step))
	if f, err := os.Open(filepath.Join(rd.Folder.Output(r), name)); err == nil {
		defer f.Close()
		return readPart(f, from, to)
	}
	f, err := rd.Artifact(ctx, r.Name(), "output/"+name)
	if errors.Is(err, record.ErrNotFound) {
		return nil, nil // it printed nothing
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the words of %s: %w", r.Name(), err)
	}
	defer f.Close()
	return readPart(f, from, to)
}

// PromptFile opens a file that came with a prompt of a run.
func (rd *Reader) PromptFile(ctx context.Context, run, key, name string) (io.ReadCloser, error) {
	q, err := rd.Queue(ctx, run)
	if err != nil {
		return nil, err
	}
	at := q.Index(key)
	if at < 0 || !slices.ContainsFunc(q.Prompts[at].Files, func(f record.Attachment) bool { return f.Name == name }) {
		return nil, fmt.Errorf("file %.100q of a prompt of %s: %w", name, run, record.ErrNotFound)
	}
	r, err := rd.Run(ctx, run)
	if err != nil {
		return nil, err
	}
	return rd.Attachments(r).Open(ctx, q.Prompts[at], name)
}

// Attachments returns the files of a run's prompts.
func (rd *Reader) Attachments(r record.Run) attachment.Files {
	return attachment.Files{Run: r, Git: rd.Git, Output: rd.Folder.Output(r),
		Stored: func(ctx context.Context, name string) (io.ReadCloser, error) {
			return rd.Artifact(ctx, r.Name(), name)
		}}
}

// readPart reads a part of a file that may be shorter.
func readPart(f io.Reader, from, to int64) ([]byte, error) {
	if s, ok := f.(io.Seeker); ok {
		if _, err := s.Seek(from, io.SeekStart); err != nil {
			return nil, err
		}
	} else if _, err := io.CopyN(io.Discard, f, from); err != nil {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, to-from))
}
