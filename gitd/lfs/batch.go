package lfs

import (
	"encoding/json"
	"errors"
	"io"
	"slices"

	"github.com/ramus-dev/ramus/gitd/object"
)

// MediaType is the type of requests and answers.
const MediaType = "application/vnd.git-lfs+json"

// Basic is the name of the only transfer that is spoken here.
const Basic = "basic"

// Bounds of one request. Clients send 100 objects at most.
const (
	RequestMax = 1 << 20 // bytes
	ObjectsMax = 1000
)

// The operations of a batch.
const (
	Download = "download"
	Upload   = "upload"
)

// Batch is a request for objects.
type Batch struct {
	Operation string   `json:"operation"`
	Transfers []string `json:"transfers,omitempty"`
	// Ref is the ref that the objects belong to. Nil means that the client does not say.
	Ref     *Ref     `json:"ref,omitempty"`
	Objects []Object `json:"objects"`
	HashAlg string   `json:"hash_algo,omitempty"`
}

// Ref names a ref in full.
type Ref struct {
	Name string `json:"name"`
}

// Reply is the answer to a [Batch].
type Reply struct {
	Transfer string  `json:"transfer"`
	Objects  []Offer `json:"objects"`
	HashAlg  string  `json:"hash_algo,omitempty"`
}

// Offer has the actions of a client for an object. Without actions and error it does nothing.
type Offer struct {
	Object
	Authenticated bool              `json:"authenticated,omitempty"`
	Actions       map[string]Action `json:"actions,omitempty"`
	Error         *Fault            `json:"error,omitempty"`
}

// Action is a request that transfers or verifies an object.
type Action struct {
	Href      string            `json:"href"`
	Header    map[string]string `json:"header,omitempty"`
	ExpiresIn int               `json:"expires_in,omitempty"` // seconds
}

// Fault is the reason why an object cannot be transferred. Code is that of HTTP.
type Fault struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// ParseBatch reads a request. Its error is for the client.
func ParseBatch(r io.Reader) (Batch, error) {
	var b Batch
	if err := decode(r, RequestMax, &b); err != nil {
		return Batch{}, err
	}
	switch {
	case b.Operation != Download && b.Operation != Upload:
		return Batch{}, refuseObject("the operation is %.40q, not download or upload", b.Operation)
	case len(b.Transfers) > 0 && !slices.Contains(b.Transfers, Basic):
		return Batch{}, refuseObject("the transfer basic is the only one that is spoken here")
	case b.HashAlg != "" && b.HashAlg != "sha256":
		return Batch{}, refuseObject("the hash %.40q is not known, sha256 is", b.HashAlg)
	case len(b.Objects) == 0:
		return Batch{}, refuseObject("the request names no objects")
	case len(b.Objects) > ObjectsMax:
		return Batch{}, object.Refuse(object.ErrTooLarge, "the request names %d objects, allowed are %d",
			len(b.Objects), ObjectsMax)
	case b.Ref != nil && b.Ref.Name != "" && object.CheckRef(b.Ref.Name) != nil:
		return Batch{}, refuseObject("%.80q is no name of a ref", b.Ref.Name)
	}
	return b, nil
}

// RefName returns the ref of the request, or "".
func (b Batch) RefName() string {
	if b.Ref == nil {
		return ""
	}
	return b.Ref.Name
}

// ParseObject reads the request of an object to be verified. Its error is for the client.
func ParseObject(r io.Reader) (Object, error) {
	var o Object
	if err := decode(r, 64<<10, &o); err != nil {
		return Object{}, err
	}
	return o, o.Check()
}

// decode reads one JSON value of at most most bytes.
func decode(r io.Reader, most int64, v any) error {
	text, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return err
	}
	if int64(len(text)) > most {
		return object.Refuse(object.ErrTooLarge, "the request has more than %d bytes", most)
	}
	if err := json.Unmarshal(text, v); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			return refuseObject("%s cannot be a %s", kind.Field, kind.Value)
		}
		return refuseObject("the request is no JSON")
	}
	return nil
}

// refuseObject returns an [object.ErrInvalid] whose text is for the client.
func refuseObject(format string, args ...any) error {
	return object.Refuse(object.ErrInvalid, format, args...)
}
