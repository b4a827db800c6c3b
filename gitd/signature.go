package gitd

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// signature identifies a state of a file. The zero signature is that of a missing file.
type signature struct {
	dev, ino, size int64
	mtime, ctime   unix.Timespec
	// young means that the file was read so soon after its last change that a further change could have the same
	// times. Such a signature matches no other.
	young bool
}

// youngFor is longer than the clock ticks of file systems.
const youngFor = 100 * time.Millisecond

// statSignature returns the signature of a file.
func statSignature(path string) (signature, error) {
	var st unix.Stat_t
	for {
		err := unix.Lstat(path, &st)
		switch {
		case err == nil:
			return signatureOf(&st), nil
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
			return signature{}, nil
		case !errors.Is(err, unix.EINTR):
			return signature{}, &fs.PathError{Op: "lstat", Path: path, Err: err}
		}
	}
}

func signatureOf(st *unix.Stat_t) signature {
	s := signature{dev: int64(st.Dev), ino: int64(st.Ino), size: st.Size, mtime: st.Mtim, ctime: st.Ctim}
	// Times of files are those of the system's clock, and not of the server's.
	limit := time.Now().Add(-youngFor).UnixNano()
	s.young = st.Mtim.Nano() > limit || st.Ctim.Nano() > limit
	return s
}

// isMissing reports whether there was no file.
func (s signature) isMissing() bool { return s == signature{} }

// matches reports whether a file with the signature now surely has the same content as one with s.
func (s signature) matches(now signature) bool {
	if s.young {
		return false
	}
	now.young = false
	return s == now
}

// String returns the signature as part of a key.
func (s signature) String() string {
	return fmt.Sprintf("%x.%x.%x.%x.%x", s.dev, s.ino, s.size, s.mtime.Nano(), s.ctime.Nano())
}
