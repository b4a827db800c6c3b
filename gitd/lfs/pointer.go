package lfs

import "github.com/ramus-dev/ramus/internal/largefile"

// Object is a content that git has a pointer to.
type Object struct {
	OID  string `json:"oid"`  // SHA-256, 64 lower-case digits
	Size int64  `json:"size"` // in bytes
}

// PointerMax bounds the bytes of a pointer. Longer files are contents.
const PointerMax = largefile.MaxSize

// Pointer returns the pointer to an object, as clients write it. The pointer to the empty content is empty.
func (o Object) Pointer() []byte { return largefile.Pointer{OID: o.OID, Size: o.Size}.Text() }

// ParsePointer returns the object that a pointer names. It returns false for a file that is no pointer. Lines of
// extensions are ignored.
func ParsePointer(text []byte) (Object, bool) {
	p, ok := largefile.Parse(text)
	return Object{OID: p.OID, Size: p.Size}, ok
}

// Check returns [object.ErrInvalid] for an object that cannot exist.
func (o Object) Check() error {
	if !largefile.ValidOID(o.OID) {
		return refuseObject("%.80q is no SHA-256 in lower-case digits", o.OID)
	}
	if o.Size < 0 {
		return refuseObject("the object %s has a negative size", o.OID)
	}
	return nil
}
