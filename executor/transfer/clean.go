package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ramus-dev/ramus/gitd"
)

// Clean returns a tree without the values of secrets. They are replaced in files, which are kept on the host while they
// are read. Entries with a value in their name are of [KindOther], so that archives leave them out.
func (s *Spool) Clean(t Tree) Tree {
	if s.Secrets.Empty() {
		return t
	}
	return cleanTree{t, s}
}

type cleanTree struct {
	Tree
	spool *Spool
}

// List implements [Tree].
func (t cleanTree) List(ctx context.Context, folder string, most int) ([]Entry, error) {
	list, err := t.Tree.List(ctx, folder, most)
	for i, e := range list {
		if t.spool.Secrets.String(e.Path) != e.Path {
			list[i].Kind = KindOther
		}
	}
	return list, err
}

// Open implements [Tree]. The size is that of the file without secrets.
func (t cleanTree) Open(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	in, size, err := t.Tree.Open(ctx, name)
	if err != nil {
		return nil, 0, err
	}
	defer in.Close()
	if size > MaxPackBytes {
		return nil, 0, fmt.Errorf("%.200q has %d bytes: %w", name, size, errors.Join(ErrArchive, gitd.ErrTooLarge))
	}
	f, err := t.spool.create()
	if err != nil {
		return nil, 0, err
	}
	whole := &io.LimitedReader{R: in, N: size}
	_, err = t.spool.Secrets.Copy(f, whole)
	if err == nil && whole.N > 0 {
		err = CopyFile(io.Discard, in, whole.N)
	}
	if err == nil {
		size, err = f.Seek(0, io.SeekEnd)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, size, nil
}
