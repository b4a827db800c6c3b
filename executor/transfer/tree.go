package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"slices"
	"sync/atomic"

	"github.com/pkg/sftp"
	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/object"
)

// Entry is a file or a folder of a [Tree].
type Entry struct {
	Path string `json:"path"` // from the top of the work tree
	// Kind is "file", "folder", "link" or "other". A submodule is "other".
	Kind string `json:"kind"`
	Size int64  `json:"size"` // of files, in bytes
	Run  bool   `json:"executable,omitempty"`
}

// The kinds of entries.
const (
	KindFile   = "file"
	KindFolder = "folder"
	KindLink   = "link"
	KindOther  = "other"
)

// Tree has files for people. Paths are slash-separated, and "" is the top.
type Tree interface {
	// List returns the entries of a folder, folders first. It returns an [ErrTooMany] with the first ones if there
	// are more than most.
	List(ctx context.Context, folder string, most int) ([]Entry, error)
	// Look returns one entry. It does not follow a link.
	Look(ctx context.Context, name string) (Entry, error)
	// Open opens a file, and returns its size. The reader may end earlier, if the file became shorter.
	Open(ctx context.Context, name string) (io.ReadCloser, int64, error)
}

// ErrTooMany is the error of a folder with more entries than were wanted.
var ErrTooMany = errors.New("too many entries")

// Committed is the tree of a commit.
type Committed struct {
	Repo   *gitd.Repo
	Commit gitd.Hash
}

// List implements [Tree].
func (t Committed) List(ctx context.Context, folder string, most int) ([]Entry, error) {
	list, err := t.Repo.Tree(ctx, string(t.Commit), folder, false)
	if err != nil {
		return nil, err
	}
	all := make([]Entry, 0, min(len(list), most))
	for _, e := range list {
		all = append(all, committedEntry(e))
	}
	return bounded(all, most)
}

func committedEntry(e gitd.TreeEntry) Entry {
	one := Entry{Path: e.Path, Kind: KindOther, Size: e.Size, Run: e.Mode == "100755"}
	switch {
	case e.Type == "tree":
		one.Kind = KindFolder
	case e.Mode == "120000":
		one.Kind = KindLink
	case e.Type == "blob":
		one.Kind = KindFile
	}
	return one
}

// bounded sorts entries, folders first, and cuts the list.
func bounded(all []Entry, most int) ([]Entry, error) {
	slices.SortFunc(all, func(a, b Entry) int {
		if (a.Kind == KindFolder) != (b.Kind == KindFolder) {
			if a.Kind == KindFolder {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Path, b.Path)
	})
	if len(all) > most {
		return all[:most], ErrTooMany
	}
	return all, nil
}

// Look implements [Tree].
func (t Committed) Look(ctx context.Context, name string) (Entry, error) {
	if name == "" {
		return Entry{Kind: KindFolder}, nil
	}
	e, err := t.Repo.Entry(ctx, string(t.Commit), name)
	if err != nil {
		return Entry{}, err
	}
	return committedEntry(e), nil
}

// Open implements [Tree].
func (t Committed) Open(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	return t.Repo.OpenFile(ctx, string(t.Commit), name)
}

// Live is the work tree in a container, as it is now. It includes files that are not committed. Folders of git are
// left out. Close frees it. It is not safe for concurrent use.
type Live struct {
	files *sftp.Client
	root  string
	meter *meter
}

// maxListing bounds the listing of a folder by a container, in bytes. A hostile container may never end it.
const maxListing = 8 << 20

// OpenLive returns the work tree at root of a container, whose files conn serves by SFTP. Close closes conn.
func OpenLive(conn io.ReadWriteCloser, root string) (*Live, error) {
	m := &meter{Reader: conn}
	m.left.Store(maxListing)
	files, err := sftp.NewClientPipe(m, conn)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot open files: %w", err), conn.Close())
	}
	return &Live{files: files, root: root, meter: m}, nil
}

// meter reads the bytes that are left, and fails then.
type meter struct {
	io.Reader
	left atomic.Int64
}

func (m *meter) Read(b []byte) (int, error) {
	if m.left.Load() <= 0 {
		return 0, ErrTooMany
	}
	n, err := m.Reader.Read(b)
	m.left.Add(int64(-n))
	return n, err
}

// Close closes the connection to the container.
func (t *Live) Close() error { return t.files.Close() }

// List implements [Tree].
func (t *Live) List(ctx context.Context, folder string, most int) ([]Entry, error) {
	if err := t.within(folder); err != nil {
		return nil, err
	}
	t.meter.left.Store(maxListing)
	infos, err := t.files.ReadDirContext(ctx, path.Join(t.root, folder))
	cut := t.meter.left.Load() <= 0 // and the connection has ended
	if err != nil && !cut {
		return nil, answered(folder, err)
	}
	var all []Entry
	for _, info := range infos {
		if !isName(info.Name()) || object.IsDotGit(info.Name()) {
			continue
		}
		all = append(all, liveEntry(path.Join(folder, info.Name()), info))
	}
	all, err = bounded(all, most)
	if cut {
		err = ErrTooMany
	}
	return all, err
}

func liveEntry(name string, info fs.FileInfo) Entry {
	e := Entry{Path: name, Kind: KindOther}
	switch mode := info.Mode(); {
	case mode.IsDir():
		e.Kind = KindFolder
	case mode&fs.ModeSymlink != 0:
		e.Kind = KindLink
	case mode.IsRegular():
		e.Kind, e.Size, e.Run = KindFile, max(info.Size(), 0), mode&0o111 != 0
	}
	return e
}

// within returns an error for a path of a repository itself, or one that leaves the work tree.
func (t *Live) within(name string) error {
	if name == "" {
		return nil
	}
	if !fs.ValidPath(name) || name == "." {
		return fmt.Errorf("%.200q is no path below the work tree: %w", name, gitd.ErrInvalid)
	}
	if hasGit(name) {
		return fmt.Errorf("%.200q: %w", name, gitd.ErrNotFound)
	}
	return nil
}

// answered returns an error of a container's answer with its kind.
func answered(name string, err error) error {
	var refused *sftp.StatusError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%.200q: %w", name, gitd.ErrNotFound)
	case errors.Is(err, sftp.ErrSSHFxConnectionLost):
		return fmt.Errorf("%w: %w", containers.ErrGone, err)
	case errors.As(err, &refused), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the container refuses %.200q: %w: %w", name, gitd.ErrConflict, err)
	}
	return err
}

// Look implements [Tree].
func (t *Live) Look(_ context.Context, name string) (Entry, error) {
	if err := t.within(name); err != nil {
		return Entry{}, err
	}
	t.meter.left.Store(maxListing)
	info, err := t.files.Lstat(path.Join(t.root, name))
	if err != nil {
		return Entry{}, answered(name, err)
	}
	return liveEntry(name, info), nil
}

// Open implements [Tree].
func (t *Live) Open(_ context.Context, name string) (io.ReadCloser, int64, error) {
	if err := t.within(name); err != nil {
		return nil, 0, err
	}
	t.meter.left.Store(math.MaxInt64) // a file is bounded by its size
	f, err := t.files.Open(path.Join(t.root, name))
	if err != nil {
		return nil, 0, answered(name, err)
	}
	info, err := f.Stat()
	if err != nil {
		err = answered(name, err)
	} else if !info.Mode().IsRegular() || info.Size() < 0 {
		err = fmt.Errorf("%.200q is no file: %w", name, gitd.ErrInvalid)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(f, info.Size()), f}, info.Size(), nil
}
