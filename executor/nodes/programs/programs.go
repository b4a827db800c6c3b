package programs

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/pattern"
)

// Space and Principal are the namespace of the signature, and the principal of the key in a file of allowed signers.
const (
	Space     = "ramus-programs"
	Principal = "ramus"
)

// Bounds of a folder.
const (
	maxPrograms = 100     // of one architecture
	maxSize     = 1 << 30 // bytes of a program
)

// Programs are the programs of a server. Its exported fields are its options, which may be changed until the first
// call. Methods are safe for concurrent use.
type Programs struct {
	// Dir has a folder for each architecture, "amd64" and "arm64", with programs. Empty means that there are none but Own.
	Dir string
	// Own is this server's program. It is served as "ramus" for its architecture unless Dir has one. Empty means none.
	Own string
	// Version is that of the server.
	Version string
	// URL is where machines reach the server.
	URL string
	// Sign signs the sums in [Space], and Key is the public key, as a line of authorized_keys.
	Sign func(text []byte) ([]byte, error)
	Key  string

	mu   sync.Mutex // guards sums, and lets one goroutine read the programs
	sums map[string]sum
}

// sum is the sum of a file, which is that of its path as long as size and time are the same.
type sum struct {
	size int64
	time time.Time
	sha  string
}

// Program is one file.
type Program struct {
	Name string `json:"name"`
	Arch string `json:"arch"` // as Go names it
	Size int64  `json:"size"` // bytes
	SHA  string `json:"sha256"`

	path string
}

// Archs are the architectures.
func Archs() []string { return []string{"amd64", "arm64"} }

var validName = pattern.New(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// List returns all programs, by architecture and name. Other files in the folders are left out.
func (p *Programs) List(ctx context.Context) ([]Program, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []Program
	for _, arch := range Archs() {
		some, err := p.of(ctx, arch)
		if err != nil {
			return nil, fmt.Errorf("cannot list the programs of nodes: %w", err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// of returns the programs of an architecture. p.mu is held.
func (p *Programs) of(ctx context.Context, arch string) ([]Program, error) {
	paths := make(map[string]string)
	if p.Own != "" && arch == runtime.GOARCH {
		paths["ramus"] = p.Own
	}
	if p.Dir != "" {
		files, err := os.ReadDir(filepath.Join(p.Dir, arch))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, f := range files {
			if f.Type().IsRegular() && validName.MatchString(f.Name()) {
				paths[f.Name()] = filepath.Join(p.Dir, arch, f.Name())
			}
		}
	}
	if len(paths) > maxPrograms {
		return nil, fmt.Errorf("%s has more than %d files", filepath.Join(p.Dir, arch), maxPrograms)
	}
	var all []Program
	for name, path := range paths {
		s, err := p.sum(ctx, path)
		if err != nil {
			return nil, err
		}
		all = append(all, Program{Name: name, Arch: arch, Size: s.size, SHA: s.sha, path: path})
	}
	slices.SortFunc(all, func(a, b Program) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// sum returns the sum of a file. p.mu is held.
func (p *Programs) sum(ctx context.Context, path string) (sum, error) {
	f, err := os.Open(path)
	if err != nil {
		return sum{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return sum{}, err
	}
	if info.Size() > maxSize {
		return sum{}, fmt.Errorf("%s has more than %d bytes", path, maxSize)
	}
	if s := p.sums[path]; s.size == info.Size() && s.time.Equal(info.ModTime()) {
		return s, nil
	}
	h := sha256.New()
	buf := make([]byte, 1<<20)
	for {
		if err := ctx.Err(); err != nil {
			return sum{}, err
		}
		n, err := f.Read(buf)
		h.Write(buf[:n])
		if err == io.EOF {
			break
		}
		if err != nil {
			return sum{}, err
		}
	}
	s := sum{info.Size(), info.ModTime(), hex.EncodeToString(h.Sum(nil))}
	if p.sums == nil {
		p.sums = make(map[string]sum)
	}
	p.sums[path] = s
	return s, nil
}

// Sums returns the sums of all programs, as sha256sum writes them, and their signature, as ssh-keygen -Y verify reads
// it. Names are "ARCH/NAME".
func (p *Programs) Sums(ctx context.Context) (text, signature []byte, err error) {
	all, err := p.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	var b strings.Builder
	for _, x := range all {
		fmt.Fprintf(&b, "%s  %s/%s\n", x.SHA, x.Arch, x.Name)
	}
	text = []byte(b.String())
	if signature, err = p.Sign(text); err != nil {
		return nil, nil, fmt.Errorf("cannot sign the sums of programs: %w", err)
	}
	return text, signature, nil
}

// Open opens a program for reading.
func (p *Programs) Open(ctx context.Context, arch, name string) (*os.File, Program, error) {
	if slices.Contains(Archs(), arch) {
		p.mu.Lock()
		some, err := p.of(ctx, arch)
		p.mu.Unlock()
		if err != nil {
			return nil, Program{}, err
		}
		for _, x := range some {
			if x.Name == name {
				f, err := os.Open(x.path)
				return f, x, err
			}
		}
	}
	return nil, Program{}, fmt.Errorf("%w: there is no program %q for %q; /api/agent lists them", record.ErrNotFound, name, arch)
}

// AllowedSigner returns the line of a file for ssh-keygen -Y verify, without the line end.
func (p *Programs) AllowedSigner() string {
	return fmt.Sprintf("%s namespaces=%q %s", Principal, Space, p.Key)
}

//go:embed install.sh
var installer string

// Installer returns the script that installs programs from this server.
func (p *Programs) Installer() string {
	return strings.NewReplacer("@URL@", strings.TrimSuffix(p.URL, "/"), "@SIGNER@", p.AllowedSigner()).Replace(installer)
}
