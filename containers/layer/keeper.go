package layer

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// The kinds of error of this package.
var (
	// ErrUnable: this machine, kernel or file system cannot do it; callers go the portable way.
	ErrUnable = errors.New("layers cannot be used here")
	// ErrGone: the process, or what was bound in it, is not there any more.
	ErrGone = errors.New("the container is gone")
	// ErrTooMany: an upper holds more than the bound that was given.
	ErrTooMany = errors.New("too many changes")
)

// Keeper does what needs root beside the engine. Methods are safe for concurrent use.
// Folders are absolute paths of the host below the one that the Keeper was made for;
// others are refused.
type Keeper interface {
	// Name is "root" or "helper", for people.
	Name() string
	// Check tells whether it works here, by doing it once in a scratch folder; the error is [ErrUnable] and
	// says why.
	Check(ctx context.Context) error
	// Bind makes b's folders where they are missing, writes Fill, and mounts the tree in
	// the mount namespace of process b.PID. When it returns the tree is in place for
	// processes that are started from then on. On error nothing is mounted.
	Bind(ctx context.Context, b Binding) error
	// Put writes files through the mounted tree of a binding that was made before (also
	// by an earlier process), each replaced atomically by rename, folders made as
	// needed, all owned by b.UID.
	Put(ctx context.Context, b Binding, files []File) error
	// Changes lists what an upper holds, parents before what they hold, siblings sorted by name as bytes.
	// More than max entries is [ErrTooMany].
	Changes(ctx context.Context, upper string, max int) ([]Change, error)
	// Open opens a regular file of an upper for reading, by its slash-separated path; a
	// link on the way, or anything but a regular file, is an error.
	Open(ctx context.Context, upper, path string) (*os.File, error)
	// Fill writes files, whiteouts among them, to a folder that no container has or had, made
	// where it is missing: what becomes a layer. All is owned by uid. What is there already is
	// an error and stays.
	Fill(ctx context.Context, dir string, uid int, files []File) error
	// Own gives a tree that was written under ramus's own rights to uid, as far as it
	// lies on one file system.
	Own(ctx context.Context, dir string, uid int) error
	// Usage adds up what a container has written, on the file systems that its folders
	// lie on: what is mounted below them is not looked into, nor, without root's rights, what its owner may
	// not read. Nothing is told of files that are deleted and still open. When more than most names were
	// counted it returns what was counted so far. Folders that lie too deep are [ErrTooMany],
	// and an end of ctx its cause, both with what was counted.
	Usage(ctx context.Context, s Storage, most int64) (Usage, error)
	// Remove deletes a folder with whatever hostile commands built below it, at the lowest
	// priority and, where it is large, in the half of the time: others come first. One that is
	// gone is no error. When ctx ends first it returns its cause; a part of the folder is left then.
	Remove(ctx context.Context, dir string) error
	io.Closer
}

// Binding is a tree for one place in one container.
type Binding struct {
	// PID is a process of the container as the host counts, its process 1; Start its
	// start time in clock ticks since boot (/proc/PID/stat, field 22), which together
	// name it for ever. Start 0 says that its process is not known here by that number,
	// ramus being in a container itself: a Local refuses it, a Helper's other side,
	// which has the host's processes, takes the number alone.
	PID   int
	Start uint64
	// Lowers are base layers, the topmost first. None: Dir/upper itself is mounted, writable.
	Lowers []string
	// Dir is the caller's folder; upper and work below it are made when missing.
	Dir string
	// Target is the place inside, "/work". It must be there, and no link.
	Target string
	// UID owns what is made, with the group of the same number.
	UID int
	// ReadOnly mounts the tree so that nobody can write.
	ReadOnly bool
	// Fill is written to the upper before it is mounted: what the caller's branch
	// changes in the base. Ignored where the upper is there already.
	Fill []File
}

// Upper is the folder of a binding's changes.
func (b Binding) Upper() string { return b.Dir + "/upper" }

// File is one thing to be written.
type File struct {
	Path string // slash-separated, relative, without "..", "." and empty parts
	// Kind is KindFile, KindLink, KindFolder or KindWhiteout (only where it is filled).
	Kind Kind
	Exec bool
	Data []byte // content, or the link's target
	// Source, when set, is a file of the host that is copied instead of Data.
	Source string
	Time   time.Time // of modification; zero: now
}

// Kind is what an entry is.
type Kind byte

// The kinds of entries.
const (
	KindFile     Kind = 'f'
	KindLink     Kind = 'l'
	KindFolder   Kind = 'd'
	KindWhiteout Kind = 'w' // hides what the layers below have by that name
	KindOther    Kind = 'o' // a socket, a pipe, a device: nothing for git
)

// Change is one entry of an upper.
type Change struct {
	Path string // slash-separated, relative to the work tree; any bytes but NUL
	Kind Kind
	Exec bool  // the owner's x bit of a file
	Size int64 // of a file
	// Inode, MTime and CTime (nanoseconds) change when the content does: the change
	// time cannot be set from inside.
	Inode        uint64
	MTime, CTime int64
	Link         string // a link's target
	// Closed is a file that its owner may not read, or a folder where it may not do all it wants.
	Closed bool
	// Opaque folders hide all that the layers below have in their place.
	Opaque bool
	// Redirect of a folder that was renamed: the path, in the layers below, of the
	// folder whose content it shows; "" means its own path. Slash-separated, relative.
	Redirect string
}
