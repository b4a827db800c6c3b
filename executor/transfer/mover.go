package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"syscall"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/text"
)

// uploadStep is the step in the trailers of commits of uploads.
const uploadStep = "upload"

// Mover moves files between people and the containers of callers, and commits them as the people's. Its fields are set before
// the first use. All are required unless their comment describes the zero value. Methods are safe for concurrent use.
type Mover struct {
	// Context ends with the server.
	Context context.Context
	Git     *gitd.Server
	// Dir is the folder of uploads on their way here.
	Dir string
	// Awake returns a lease of a caller's container, which is made if there is none.
	Awake func(ctx context.Context, c record.Caller, by gitd.Person) (*step.Target, *containers.Lease, error)
	// Alone returns an error if a caller works in several repositories, in which what cannot work.
	Alone func(ctx context.Context, c record.Caller, what string) error
	// Bot commits the files of people without a name.
	Bot gitd.Person
	// Secrets are removed from messages and names. Nil means that there are none.
	Secrets *redact.Secrets
	// Quiet is how long files must be quiet to be committed.
	Quiet time.Duration
	// Turn is how long an upload waits for its turn in the container.
	Turn time.Duration
}

// Uploaded is the result of [Mover.Upload].
type Uploaded struct {
	Caller record.Caller `json:"caller"`
	Paths  []string      `json:"paths"`
	Bytes  int64         `json:"bytes"`
	// Commit is the tip of the branch, which has the files. It is empty if nothing changed.
	Commit gitd.Hash `json:"commit,omitempty"`
	// Ignored are the files that no commit has, because the .gitignore files leave them out. They are in the
	// container until it goes.
	Ignored []string `json:"ignored,omitempty"`
	// Notes are those of git and of the server about the commit, such as that the value of a secret was taken out of
	// a file.
	Notes string `json:"notes,omitempty"`
}

// Uploads returns the spool for files that people send to callers.
func (m *Mover) Uploads() *Spool {
	return &Spool{Dir: m.Dir, Secrets: m.Secrets}
}

// Upload writes the files of an upload to a caller's work tree, and commits them as the person's, in one commit
// without other changes. A container is made if there is none. Files with mistakes are a [Refused]. After
// an error nothing is changed, unless the error says which files stay.
func (m *Mover) Upload(ctx context.Context, c record.Caller, by gitd.Person, u *Upload) (Uploaded, error) {
	done, err := m.upload(ctx, c, by, u)
	if err != nil {
		return done, fmt.Errorf("cannot upload to %s: %w", c, err)
	}
	return done, nil
}

func (m *Mover) upload(ctx context.Context, c record.Caller, by gitd.Person, u *Upload) (Uploaded, error) {
	done := Uploaded{Caller: c, Paths: u.Paths(), Bytes: u.Bytes()}
	if err := u.Check(); err != nil {
		return done, err
	}
	if err := m.Alone(ctx, c, "an upload"); err != nil {
		return done, err
	}
	waiting, cancel := m.waitingUpload(ctx, c)
	defer cancel()
	t, lease, err := m.Awake(waiting, c, by)
	if err != nil {
		return done, overdue(waiting, err)
	}
	defer lease.Release()
	h, own, free, err := t.Interject(waiting)
	if err != nil {
		return done, overdue(waiting, err)
	}
	defer free()
	// The files have arrived. A person who leaves now gets all of them or none.
	ctx = context.WithoutCancel(ctx)
	tip, err := t.Tip(ctx)
	if err != nil {
		return done, err
	}
	if own {
		h.At = cmp.Or(t.At(), tip)
	}
	placed, err := m.placeUpload(ctx, t, lease, h.At, tip, u)
	if err != nil {
		return done, err
	}
	// A commit that has begun is not cut.
	ctx, end := context.WithTimeout(ctx, worktree.Housekeeping)
	defer end()
	made, err := t.CommitAll(ctx, lease.Host, h.At, by.Or(m.Bot), m.uploadText(t, done.Paths), done.Paths)
	if err != nil {
		if e := placed.Undo(ctx); e != nil {
			err = errors.Join(err, fmt.Errorf("files of the upload stay in the container: %w", e))
		}
		return done, uncommitted(err)
	}
	h.At = cmp.Or(made.At, h.At)
	done.Notes = text.Clip(m.Secrets.String(made.Notes), 4<<10)
	if err := placed.Keep(ctx); err != nil {
		done.Notes += fmt.Sprintf("temporary files of the upload stay in the container: %v\n", err)
	}
	if made.Tip != tip {
		done.Commit = made.Tip
	}
	done.Ignored, err = missingIn(ctx, t.Repo, made.Tip, done.Paths)
	return done, err
}

// waitingUpload returns the context of an upload until it has the turn. It ends with the executor too.
func (m *Mover) waitingUpload(ctx context.Context, c record.Caller) (context.Context, context.CancelFunc) {
	ctx, end := context.WithTimeoutCause(ctx, m.Turn,
		fmt.Errorf("%s had no time for it within %v; try again when its run has ended: %w",
			c, m.Turn, record.ErrConflict))
	ctx, stop := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(m.Context, func() { stop(record.ErrClosed) })
	return ctx, func() {
		unhook()
		stop(nil)
		end()
	}
}

// overdue returns the cause of ctx if ctx has ended, and err otherwise.
func overdue(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// placeUpload writes the files of an upload to a container whose work tree is at a commit. The branch is at tip.
func (m *Mover) placeUpload(ctx context.Context, t *step.Target, lease *containers.Lease, at, tip gitd.Hash,
	u *Upload) (*Placed, error) {
	if most := m.Git.PackBytes(); u.Bytes() > most {
		return nil, fmt.Errorf("the files have %d bytes together; git.limits.pack_bytes allows %d: %w", u.Bytes(), most,
			gitd.ErrTooLarge)
	}
	ctx, cancel := context.WithTimeout(ctx, PlaceWithin)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(m.Context, func() { stop(record.ErrClosed) })()
	return u.Place(ctx, m.placeOf(t, lease, at, tip))
}

// placeOf returns the place of an upload in a container whose work tree is at a commit. The branch is at tip.
func (m *Mover) placeOf(t *step.Target, lease *containers.Lease, at, tip gitd.Hash) Container {
	return Container{
		Open: lease.Host.Files,
		Root: containers.WorkDir,
		Names: func(ctx context.Context, folder string) ([]string, error) {
			list, err := t.Repo.Tree(ctx, string(tip), folder, false)
			if errors.Is(err, gitd.ErrNotFound) || errors.Is(err, gitd.ErrInvalid) {
				return nil, nil // the branch does not have the folder
			}
			names := make([]string, len(list))
			for i, e := range list {
				names[i] = path.Base(e.Path)
			}
			return names, err
		},
		Pushed: func(ctx context.Context, name string) (bool, error) { return isPushed(ctx, t.Repo, at, tip, name) },
		Allow:  func(name string, size int64) error { return m.Git.Commitable(name, 0o100644, size) },
	}
}

// isPushed reports whether two commits differ in a file, or in the kinds of the entries above it.
func isPushed(ctx context.Context, repo *gitd.Repo, at, tip gitd.Hash, name string) (bool, error) {
	if at == tip {
		return false, nil
	}
	for part := name; part != "."; part = path.Dir(part) {
		old, err := entryAt(ctx, repo, at, part)
		if err != nil {
			return false, err
		}
		now, err := entryAt(ctx, repo, tip, part)
		if err != nil {
			return false, err
		}
		bothFolders := old.Type == "tree" && now.Type == "tree"
		newFolder := old.Type == "" && now.Type == "tree" || old.Type == "tree" && now.Type == ""
		if part == name && old != now && !bothFolders || part != name && old.Type != now.Type && !newFolder {
			return true, nil
		}
	}
	return false, nil
}

// entryAt returns an entry of a commit. The zero value means that there is none.
func entryAt(ctx context.Context, repo *gitd.Repo, commit gitd.Hash, name string) (gitd.TreeEntry, error) {
	e, err := repo.Entry(ctx, string(commit), name)
	if errors.Is(err, gitd.ErrNotFound) || errors.Is(err, gitd.ErrInvalid) {
		return gitd.TreeEntry{}, nil
	}
	return e, err
}

// uploadText returns the message of the commit of an upload.
func (m *Mover) uploadText(t *step.Target, paths []string) string {
	subject := fmt.Sprintf("Upload %s", text.Clip(paths[0], 60))
	if len(paths) > 1 {
		subject = fmt.Sprintf("Upload %d files", len(paths))
	}
	message := step.CommitText(m.Secrets,
		fmt.Sprintf("%s\n\n%s: %s\n%s: %s\n", subject, record.TrailerCaller, t.Caller, record.TrailerStep, uploadStep))
	return text.Clip(message, 4<<10)
}

// uncommitted returns an error of a commit with its kind.
func uncommitted(err error) error {
	var u *worktree.Uncommitted
	if !errors.As(err, &u) {
		return err
	}
	kind := record.ErrConflict
	if u.Reason == record.ReasonDiskFull {
		kind = syscall.ENOSPC
	}
	return fmt.Errorf("the files cannot be committed: %w: %w", err, kind)
}

// missingIn returns the paths that a commit does not have.
func missingIn(ctx context.Context, repo *gitd.Repo, commit gitd.Hash, paths []string) (missing []string, err error) {
	for _, p := range paths {
		if _, err := repo.Entry(ctx, string(commit), p); errors.Is(err, gitd.ErrNotFound) {
			missing = append(missing, p)
		} else if err != nil {
			return missing, err
		}
	}
	return missing, nil
}
