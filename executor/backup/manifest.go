package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
)

// Format is the format of snapshots. A later ramus reads all earlier ones.
const Format = 1

// The names of files in a snapshot. The second has the SHA-256 of the first, as sha256sum writes it.
const (
	manifestName = "manifest.json"
	sumName      = "manifest.sha256"
	dataName     = "data" // the folder of the copied files
)

// maxManifest bounds a manifest, in bytes. It has about 150 bytes for each file.
const maxManifest = 1 << 30

// Manifest lists the content of a snapshot.
type Manifest struct {
	Format  int       `json:"format"`
	Version string    `json:"version"` // of the ramus that made it
	MadeAt  time.Time `json:"made_at"`
	// Keys reports whether the keys of the server are in the snapshot.
	Keys bool `json:"keys"`
	// Elsewhere reports whether artifacts are in a store outside of the data folder. They are not in the snapshot.
	Elsewhere bool       `json:"artifacts_elsewhere,omitempty"`
	Repos     []RepoInfo `json:"repos"`
	Files     []File     `json:"files"` // sorted by path
}

// RepoInfo is a repository of a snapshot.
type RepoInfo struct {
	Name string `json:"name"`
	Refs int    `json:"refs"`
}

// File is a file of a snapshot.
type File struct {
	Path   string      `json:"path"` // in the data folder, with slashes
	Size   int64       `json:"size"`
	Mode   fs.FileMode `json:"mode"`
	SHA256 string      `json:"sha256"`
}

// write writes the manifest and its sum to a snapshot.
func (m *Manifest) write(dir string) error {
	b, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	sum := sha256.Sum256(b)
	if err := writeSynced(filepath.Join(dir, manifestName), b); err != nil {
		return err
	}
	return writeSynced(filepath.Join(dir, sumName), []byte(hex.EncodeToString(sum[:])+"  "+manifestName+"\n"))
}

func writeSynced(name string, b []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}

// ReadManifest reads the manifest of a snapshot and compares it with its sum. Returns [record.ErrDamaged] if they differ.
func ReadManifest(dir string) (*Manifest, error) {
	m, err := readManifest(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the manifest of %s: %w", dir, err)
	}
	return m, nil
}

func readManifest(dir string) (*Manifest, error) {
	b, err := readFile(filepath.Join(dir, manifestName), maxManifest)
	if err != nil {
		return nil, err
	}
	line, err := readFile(filepath.Join(dir, sumName), 4<<10)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	if have, _, _ := strings.Cut(string(line), " "); have != hex.EncodeToString(sum[:]) {
		return nil, fmt.Errorf("%w: it does not have the sum in %s", record.ErrDamaged, sumName)
	}
	return parseManifest(b)
}

// parseManifest reads the text of a manifest. It refuses names that lead out of a folder.
func parseManifest(b []byte) (*Manifest, error) {
	m := new(Manifest)
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(m); err != nil {
		return nil, fmt.Errorf("%w: %w", record.ErrDamaged, err)
	}
	if m.Format < 1 || m.Format > Format {
		return nil, fmt.Errorf("%w: its format is %d, and this ramus reads formats up to %d; use a newer ramus",
			record.ErrInvalid, m.Format, Format)
	}
	before := ""
	for _, f := range m.Files {
		if !filepath.IsLocal(f.Path) || f.Path != filepath.ToSlash(filepath.Clean(f.Path)) || f.Path == "." || f.Size < 0 ||
			f.Path <= before || f.Mode != f.Mode.Perm() || len(f.SHA256) != 2*sha256.Size {
			return nil, fmt.Errorf("%w: the entry %.200q is wrong", record.ErrDamaged, f.Path)
		}
		before = f.Path
	}
	for _, r := range m.Repos {
		if !filepath.IsLocal(r.Name) || r.Name != filepath.ToSlash(filepath.Clean(r.Name)) {
			return nil, fmt.Errorf("%w: the repository %.200q is wrong", record.ErrDamaged, r.Name)
		}
	}
	return m, nil
}

// readFile reads a file of at most a number of bytes, and follows no link to it.
func readFile(name string, most int64) ([]byte, error) {
	info, err := os.Lstat(name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: %s is no file", record.ErrDamaged, filepath.Base(name))
	case info.Size() > most:
		return nil, fmt.Errorf("%w: %s has more than %d bytes", record.ErrDamaged, filepath.Base(name), most)
	}
	return os.ReadFile(name)
}

// sumOf copies a reader, and returns the number of bytes and their SHA-256.
func sumOf(w io.Writer, r io.Reader) (int64, string, error) {
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, h), r)
	return n, hex.EncodeToString(h.Sum(nil)), err
}
