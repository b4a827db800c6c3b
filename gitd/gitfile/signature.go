package gitfile

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// Signature identifies a state of a file. The zero Signature is that of a missing file.
type Signature struct {
	dev, ino, size int64
	mtime, ctime   unix.Timespec
	// young means that the file was read so soon after its last change that a further change could have the same
	// times. Such a Signature matches no other.
	young bool
}

// youngFor is longer than the clock ticks of file systems.
const youngFor = 100 * time.Millisecond

// Stat returns the signature of a file. Of a missing file it is the zero Signature.
func Stat(path string) (Signature, error) {
	var st unix.Stat_t
	for {
		err := unix.Lstat(path, &st)
		switch {
		case err == nil:
			return SignatureOf(&st), nil
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
			return Signature{}, nil
		case !errors.Is(err, unix.EINTR):
			return Signature{}, &fs.PathError{Op: "lstat", Path: path, Err: err}
		}
	}
}

// SignatureOf returns the signature of a file with a state that was read from the file itself.
func SignatureOf(st *unix.Stat_t) Signature {
	s := Signature{dev: int64(st.Dev), ino: int64(st.Ino), size: st.Size, mtime: st.Mtim, ctime: st.Ctim}
	// Times of files are those of the system's clock, and not of the server's.
	limit := time.Now().Add(-youngFor).UnixNano()
	s.young = st.Mtim.Nano() > limit || st.Ctim.Nano() > limit
	return s
}

// IsMissing reports whether there was no file.
func (s Signature) IsMissing() bool { return s == Signature{} }

// Matches reports whether a file with the signature now surely has the same content as one with s.
func (s Signature) Matches(now Signature) bool {
	if s.young {
		return false
	}
	now.young = false
	return s == now
}

// String returns the signature as part of a key.
func (s Signature) String() string {
	return fmt.Sprintf("%x.%x.%x.%x.%x", s.dev, s.ino, s.size, s.mtime.Nano(), s.ctime.Nano())
}
