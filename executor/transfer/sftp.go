package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// filesStep is the step in the trailers of commits of files that came by SFTP.
const filesStep = "sftp"

// Serve connects conn with the files of a caller's container, by SFTP, until conn ends. A container is made if there is none.
// Changes are committed when they have been quiet for a minute, and at the end, as the person's.
func (m *Mover) Serve(ctx context.Context, c record.Caller, by gitd.Person, conn io.ReadWriter) error {
	if err := m.Alone(ctx, c, "SFTP"); err != nil {
		return fmt.Errorf("cannot open the files of %s: %w", c, err)
	}
	t, lease, err := m.Awake(ctx, c, by)
	if err != nil {
		return fmt.Errorf("cannot open the files of %s: %w", c, err)
	}
	defer lease.Release()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.Context, cancel)()
	files, err := lease.Host.FilesConn(ctx)
	if err != nil {
		return fmt.Errorf("cannot open the files of %s: %w", c, err)
	}
	var sent atomic.Int64
	in := make(chan struct{})
	go func() { // ends with conn, which the caller closes
		defer close(in)
		_, _ = io.Copy(io.MultiWriter(files, counter{&sent}), conn)
		_ = files.CloseWrite()
	}()
	out := make(chan struct{})
	go func() {
		defer close(out)
		_, _ = io.Copy(conn, files)
	}()
	stop := context.AfterFunc(ctx, func() { files.Close() })
	defer stop()
	quiet := time.NewTicker(m.Quiet)
	defer quiet.Stop()
	seen, kept := int64(0), int64(0)
	for open := true; open; {
		select {
		case <-quiet.C:
			if now := sent.Load(); now != seen {
				seen = now
			} else if seen != kept {
				kept = seen
				err = errors.Join(err, m.commitFiles(t, lease, by))
			}
		case <-out:
			open = false
		}
	}
	files.Close()
	if sent.Load() != kept {
		err = errors.Join(err, m.commitFiles(t, lease, by))
	}
	return err
}

// counter counts bytes.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// commitFiles commits the work tree of a container as a person's.
func (m *Mover) commitFiles(t *step.Target, lease *containers.Lease, by gitd.Person) error {
	h, own, free, err := t.Interject(m.Context)
	if err != nil {
		return err
	}
	defer free()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.Context), worktree.Housekeeping)
	defer cancel()
	if own {
		tip, err := t.Tip(ctx)
		if err != nil {
			return err
		}
		h.At = cmp.Or(t.At(), tip)
	}
	message := step.CommitText(m.Secrets,
		fmt.Sprintf("Files by SFTP\n\n%s: %s\n%s: %s\n", record.TrailerCaller, t.Caller, record.TrailerStep, filesStep))
	made, err := t.Commit(ctx, lease.Host, h.At, by.Or(m.Bot), text.Clip(message, 4<<10), nil)
	if err != nil {
		return fmt.Errorf("cannot commit the files of %s: %w", t.Caller, err)
	}
	h.At = cmp.Or(made.At, h.At)
	return nil
}
