package lookup

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// DerivedRunID returns the id of a run that follows from another run, such as its retry. id is the id of the other
// run. A long id is hashed, because an id may have at most 100 bytes.
func DerivedRunID(id, suffix string) string {
	const most = 90 // an id may have at most 100 bytes
	if len(id)+len(suffix) <= most {
		return id + suffix
	}
	sum := sha256.Sum256([]byte(id + suffix))
	return strings.TrimRight(id[:min(len(id), 50)], ".-") + "-" + hex.EncodeToString(sum[:8])
}
