// Package largefile reads and writes the pointers of Git LFS. A pointer is a short text that a repository has in place of a large
// file.
package largefile

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// Pointer names the content of a large file.
type Pointer struct {
	OID  string // SHA-256, 64 lower-case digits
	Size int64  // in bytes
}

// MaxSize bounds the bytes of a pointer. Longer files are contents.
const MaxSize = 1024

// versions are the first lines of pointers that clients read. They write the first one.
var versions = []string{
	"https://git-lfs.github.com/spec/v1",
	"https://hawser.github.com/spec/v1",
	"http://git-media.io/v/2",
}

// Text returns the pointer as clients write it. The pointer to the empty content is empty.
func (p Pointer) Text() []byte {
	if p.Size == 0 {
		return nil
	}
	return fmt.Appendf(nil, "version %s\noid sha256:%s\nsize %d\n", versions[0], p.OID, p.Size)
}

// Parse reads a pointer. It returns false for a file that is no pointer. Lines of extensions are ignored.
func Parse(text []byte) (Pointer, bool) {
	if len(text) > MaxSize || !bytes.HasPrefix(text, []byte("version ")) {
		return Pointer{}, false
	}
	var p Pointer
	known, sized := false, false
	for i, line := range strings.Split(strings.TrimRight(string(text), "\n"), "\n") {
		key, value, ok := strings.Cut(line, " ")
		switch {
		case !ok:
			return Pointer{}, false
		case i == 0:
			for _, v := range versions {
				known = known || value == v
			}
		case key == "oid":
			p.OID, _ = strings.CutPrefix(value, "sha256:")
		case key == "size":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return Pointer{}, false
			}
			p.Size, sized = n, true
		}
	}
	return p, known && sized && p.Size >= 0 && ValidOID(p.OID)
}

// ValidOID reports whether a text is a SHA-256 in lower-case digits.
func ValidOID(oid string) bool {
	if len(oid) != 64 {
		return false
	}
	for _, c := range []byte(oid) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
