package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/ramus-dev/ramus/executor/attachment"
	"github.com/ramus-dev/ramus/executor/record"
)

// Words reads the standard output of a step, from one byte to the one before another. seq is the number of the step's
// EventStepStarted. It returns fewer bytes if there are no more. The bytes do not change while the step works, and stay the same
// when the run has ended and after a restart of the server, if the step is a turn of an agent of ProtocolACP.
func (x *Executor) Words(ctx context.Context, run, step string, seq, from, to int64) ([]byte, error) {
	if from < 0 || to <= from {
		return nil, nil
	}
	r, err := x.Run(ctx, run)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%04d-%s.stdout", seq, record.FileName(step))
	if f, err := os.Open(filepath.Join(x.folder.Output(r), name)); err == nil {
		defer f.Close()
		return readPart(f, from, to)
	}
	f, err := x.Artifact(ctx, r.Name(), "output/"+name)
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
func (x *Executor) PromptFile(ctx context.Context, run, key, name string) (io.ReadCloser, error) {
	q, err := x.Queue(ctx, run)
	if err != nil {
		return nil, err
	}
	at := q.Index(key)
	if at < 0 || !slices.ContainsFunc(q.Prompts[at].Files, func(f record.Attachment) bool { return f.Name == name }) {
		return nil, fmt.Errorf("file %.100q of a prompt of %s: %w", name, run, record.ErrNotFound)
	}
	r, err := x.Run(ctx, run)
	if err != nil {
		return nil, err
	}
	return x.attachments(r).Open(ctx, q.Prompts[at], name)
}

// attachments returns the files of a run's prompts.
func (x *Executor) attachments(r record.Run) attachment.Files {
	return attachment.Files{Run: r, Git: x.Git, Output: x.folder.Output(r),
		Stored: func(ctx context.Context, name string) (io.ReadCloser, error) {
			return x.Artifact(ctx, r.Name(), name)
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
