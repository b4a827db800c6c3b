package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"os"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/text"
)

// Describe returns the entry of a manifest for the file at path, under the name name. The type of the file follows
// from its content, because a name does not determine how a browser reads it.
func Describe(name, path string) (m record.ManifestFile, err error) {
	f, err := os.Open(path)
	if err != nil {
		return m, err
	}
	defer f.Close()
	h := sha256.New()
	var head bytes.Buffer
	size, err := io.Copy(io.MultiWriter(h, &text.Limit{W: &head, Left: 512}), f)
	kind := http.DetectContentType(head.Bytes())
	return record.ManifestFile{Name: name, Size: size, SHA256: hex.EncodeToString(h.Sum(nil)), Type: kind}, err
}
