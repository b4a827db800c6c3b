package transfer

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gitd"
)

// Format is the format of an archive.
type Format string

// The formats of archives.
const (
	FormatZip Format = "zip"
	FormatTar Format = "tar.gz"
)

// Limits of an archive.
const (
	MaxPackBytes = 512 << 20 // of all files together, before compression
	MaxPackFiles = 20_000    // with folders
)

// maxPackDepth bounds the folders in each other of an archive.
const maxPackDepth = 64

// ErrArchive is the error of a folder that is too large for an archive.
var ErrArchive = errors.New("the folder is too large for an archive")

// Plan is the content of an archive, found before its first byte is sent.
type Plan struct {
	Files []Entry
	Bytes int64
	// Left is the number of entries that are left out. Links, submodules and special files are, because their targets
	// would be resolved on the machine that unpacks them. Names are that another system could take for another file,
	// and those of git, whose settings run programs.
	Left int

	seen int // entries with the folders, which may hold nothing
}

// Find lists the files of a folder with all folders below. It returns an [ErrArchive] if there are too many.
func Find(ctx context.Context, t Tree, folder string) (Plan, error) {
	var p Plan
	if folder != "" && (!isPackable(path.Base(folder)) || hasGit(folder)) {
		return p, fmt.Errorf("%.200q is no name for an archive: %w", folder, gitd.ErrInvalid)
	}
	err := p.find(ctx, t, folder, 0)
	return p, err
}

func (p *Plan) find(ctx context.Context, t Tree, folder string, depth int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	list, err := t.List(ctx, folder, MaxPackFiles)
	if errors.Is(err, ErrTooMany) || depth > maxPackDepth {
		return p.tooLarge()
	}
	if err != nil {
		return err
	}
	if p.seen += len(list); p.seen > MaxPackFiles {
		return p.tooLarge()
	}
	for _, e := range list {
		if !isPackable(path.Base(e.Path)) {
			p.Left++
			continue
		}
		switch e.Kind {
		case KindFolder:
			if err := p.find(ctx, t, e.Path, depth+1); err != nil {
				return err
			}
		case KindFile:
			p.Files = append(p.Files, e)
			if p.Bytes += e.Size; p.Bytes > MaxPackBytes {
				return p.tooLarge()
			}
		default:
			p.Left++
		}
	}
	return nil
}

func (p *Plan) tooLarge() error {
	return fmt.Errorf("an archive has at most %d files and folders, %d MiB and %d folders in each other; clone "+
		"the branch: %w", MaxPackFiles, MaxPackBytes>>20, maxPackDepth, errors.Join(ErrArchive, gitd.ErrTooLarge))
}

// Pack writes an archive of the files of a plan. Their paths begin with name, and go on below folder. After an error
// the archive has no end, so that readers detect it.
func Pack(ctx context.Context, w io.Writer, f Format, t Tree, p Plan, folder, name string, at time.Time) error {
	a := newArchive(w, f, at)
	left := int64(MaxPackBytes)
	for _, e := range p.Files {
		if err := ctx.Err(); err != nil {
			return err
		}
		in, size, err := t.Open(ctx, e.Path)
		if errors.Is(err, gitd.ErrNotFound) {
			continue // removed since
		}
		if err != nil {
			return err
		}
		if left -= size; left < 0 {
			return errors.Join(p.tooLarge(), in.Close()) // it grew
		}
		to := path.Join(name, strings.TrimPrefix(strings.TrimPrefix(e.Path, folder), "/"))
		if err := errors.Join(a.add(to, size, e.Run, in), in.Close()); err != nil {
			return fmt.Errorf("cannot add %.200q: %w", e.Path, err)
		}
	}
	return a.end()
}

// archive writes one of the formats.
type archive struct {
	zip *zip.Writer
	tar *tar.Writer
	gz  *gzip.Writer
	at  time.Time
}

func newArchive(w io.Writer, f Format, at time.Time) *archive {
	if f == FormatZip {
		return &archive{zip: zip.NewWriter(w), at: at}
	}
	gz := gzip.NewWriter(w)
	return &archive{tar: tar.NewWriter(gz), gz: gz, at: at}
}

func (a *archive) add(name string, size int64, run bool, in io.Reader) error {
	mode := int64(0o644)
	if run {
		mode = 0o755
	}
	if a.zip != nil {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: a.at}
		h.SetMode(fs.FileMode(mode))
		w, err := a.zip.CreateHeader(h)
		if err != nil {
			return err
		}
		return CopyFile(w, in, size)
	}
	h := &tar.Header{Name: name, Size: size, Mode: mode, ModTime: a.at, Format: tar.FormatPAX}
	if err := a.tar.WriteHeader(h); err != nil {
		return err
	}
	return CopyFile(a.tar, in, size)
}

// CopyFile copies a file that [Tree.Open] opened. It returns an error if the file became shorter meanwhile.
func CopyFile(w io.Writer, in io.Reader, size int64) error {
	n, err := io.Copy(w, in)
	if err == nil && n < size {
		err = fmt.Errorf("the file became shorter while it was read: %w", gitd.ErrConflict)
	}
	return err
}

func (a *archive) end() error {
	if a.zip != nil {
		return a.zip.Close()
	}
	return errors.Join(a.tar.Close(), a.gz.Close())
}
