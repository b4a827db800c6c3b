package lfs

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// Object is a content that git has a pointer to.
type Object struct {
	OID  string `json:"oid"`  // SHA-256, 64 lower-case digits
	Size int64  `json:"size"` // in bytes
}

// PointerMax bounds the bytes of a pointer. Longer files are contents.
const PointerMax = 1024

// pointerVersions are the versions of pointers that clients read. They write the first one.
var pointerVersions = []string{
	"https://git-lfs.github.com/spec/v1",
	"https://hawser.github.com/spec/v1",
	"http://git-media.io/v/2",
}

// Pointer returns the pointer to an object, as clients write it. The pointer to the empty content is empty.
func (o Object) Pointer() []byte {
	if o.Size == 0 {
		return nil
	}
	return fmt.Appendf(nil, "version %s\noid sha256:%s\nsize %d\n", pointerVersions[0], o.OID, o.Size)
}

// ParsePointer returns the object that a pointer names. It returns false for a file that is no pointer. Lines of
// extensions are ignored.
func ParsePointer(text []byte) (Object, bool) {
	if len(text) > PointerMax || !bytes.HasPrefix(text, []byte("version ")) {
		return Object{}, false
	}
	var o Object
	known, sized := false, false
	for i, line := range strings.Split(strings.TrimRight(string(text), "\n"), "\n") {
		key, value, ok := strings.Cut(line, " ")
		switch {
		case !ok:
			return Object{}, false
		case i == 0:
			for _, v := range pointerVersions {
				known = known || value == v
			}
		case key == "oid":
			o.OID, _ = strings.CutPrefix(value, "sha256:")
		case key == "size":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return Object{}, false
			}
			o.Size, sized = n, true
		}
	}
	return o, known && sized && o.Check() == nil
}

// Check returns [object.ErrInvalid] for an object that cannot exist.
func (o Object) Check() error {
	if !validOID(o.OID) {
		return refuseObject("%.80q is no SHA-256 in lower-case digits", o.OID)
	}
	if o.Size < 0 {
		return refuseObject("the object %s has a negative size", o.OID)
	}
	return nil
}

func validOID(oid string) bool {
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
