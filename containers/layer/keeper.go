package layer

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// Kinds of error of this package.
var (
	// ErrUnable means that this machine, kernel or file system cannot bind work trees. Callers then use the portable
	// way.
	ErrUnable = errors.New("layers cannot be used here")
	// ErrGone means that the process, or the tree bound in it, no longer exists.
	ErrGone = errors.New("the container is gone")
	// ErrTooMany means that an upper has more entries than the given bound.
	ErrTooMany = errors.New("too many changes")
)

// Keeper does the work that needs root on the engine's machine. Methods are safe for concurrent use. Folders are
// absolute paths of the host below the root of the Keeper. Others are refused.
type Keeper interface {
	// Name returns "root" or "helper", for people.
	Name() string
	// Check reports whether the Keeper works here, by one trial in a scratch folder. The error is [ErrUnable] and names
	// the cause.
	Check(ctx context.Context) error
	// Bind makes missing folders of b, writes Fill, and mounts the tree in the mount namespace of process b.PID.
	// Processes that start after Bind has returned see the tree. After an error nothing is mounted.
	Bind(ctx context.Context, b Binding) error
	// Put writes files through the mounted tree of an earlier binding, which an earlier process may have made. Each
	// file is replaced atomically by rename. Missing folders are made. Everything is owned by b.UID.
	Put(ctx context.Context, b Binding, files []File) error
	// Changes returns the entries of an upper. Parents come before their children, and siblings are sorted by name as
	// bytes. Returns [ErrTooMany] if there are more than max entries.
	Changes(ctx context.Context, upper string, max int) ([]Change, error)
	// Open opens a regular file of an upper for reading, by its slash-separated path. A link on the path, or anything
	// but a regular file, is an error.
	Open(ctx context.Context, upper, path string) (*os.File, error)
	// Fill writes files, including whiteouts, to a folder that no container uses or used. The folder becomes a layer. A
	// missing folder is made. Everything is owned by uid. An existing file is an error and stays.
	Fill(ctx context.Context, dir string, uid int, files []File) error
	// Own gives a tree that was written with ramus's own rights to uid, without other file systems below it.
	Own(ctx context.Context, dir string, uid int) error
	// Usage returns the disk space that a container takes, on the file systems of its folders. It excludes file systems
	// mounted below them, deleted files that are still open, and, without root's rights, files that their owner may not
	// read. If more than most names were counted, Usage returns the sum so far. Folders that are nested too deeply are
	// [ErrTooMany], and an end of ctx is its cause. Both come with the sum so far.
	Usage(ctx context.Context, s Storage, most int64) (Usage, error)
	// Remove deletes a folder with everything that hostile commands made below it. It works at the lowest priority, and
	// pauses half of the time if the folder is large, so that other work comes first. Removing a folder that does not
	// exist is no error. If ctx ends first, Remove returns its cause, and a part of the folder is left.
	Remove(ctx context.Context, dir string) error
	io.Closer
}

// Binding is a tree for one path in one container.
type Binding struct {
	// PID is process 1 of the container as numbered on the host. Start is its start time in clock ticks since boot
	// (/proc/PID/stat, field 22). Both together identify the process forever. Start 0 means that ramus runs in a
	// container itself and does not know the process by that number. A Local refuses it. The other side of a Helper,
	// which sees the host's processes, uses the number alone.
	PID   int
	Start uint64
	// Lowers are base layers, the topmost first. If there are none, Dir/upper itself is mounted, writable.
	Lowers []string
	// Dir is the caller's folder. Missing folders upper and work are made below it.
	Dir string
	// Target is the path inside, "/work". It must exist and must not be a link.
	Target string
	// UID owns the files that are made, with the group of the same number.
	UID int
	// ReadOnly mounts the tree read-only.
	ReadOnly bool
	// Fill is written to a new upper before it is mounted. It has the changes of the caller's branch against the base.
	// It is ignored if the upper exists.
	Fill []File
}

// Upper returns the folder of a binding's changes.
func (b Binding) Upper() string { return b.Dir + "/upper" }

// File is an entry to be written.
type File struct {
	Path string // slash-separated, relative, without "..", "." and empty parts
	// Kind is KindFile, KindLink, KindFolder or KindWhiteout. KindWhiteout is allowed only in Fill.
	Kind Kind
	Exec bool
	Data []byte // content, or the target of a link
	// Source, if not empty, is a file of the host that is copied instead of Data.
	Source string
	Time   time.Time // of modification; zero means now
}

// Kind is the kind of an entry.
type Kind byte

// Kinds of entries.
const (
	KindFile     Kind = 'f'
	KindLink     Kind = 'l'
	KindFolder   Kind = 'd'
	KindWhiteout Kind = 'w' // hides an entry of that name in the layers below
	KindOther    Kind = 'o' // a socket, a pipe or a device; git ignores it
)

// Change is one entry of an upper.
type Change struct {
	Path string // slash-separated, relative to the work tree; any bytes but NUL
	Kind Kind
	Exec bool  // the owner's x bit of a file
	Size int64 // of a file
	// Inode, MTime and CTime (nanoseconds) change with the content. Processes inside cannot set the change time.
	Inode        uint64
	MTime, CTime int64
	Link         string // target of a link
	// Closed marks a file that its owner may not read, or a folder that its owner may not read, write and enter.
	Closed bool
	// Opaque folders hide all entries of the layers below at their path.
	Opaque bool
	// Redirect is set for a renamed folder. It is the path, in the layers below, of the folder whose content it shows.
	// If it is "", that is its own path. It is slash-separated and relative.
	Redirect string
}
