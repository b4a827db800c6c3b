package transfer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Limits of an upload.
const (
	MaxBytes = 64 << 20 // of all files together
	MaxFiles = 200
)

// Mistake is why one file of an upload cannot be taken.
type Mistake struct {
	// Name is the path of the file as it was sent. It is empty for the upload as a whole.
	Name string `json:"name,omitempty"`
	Why  string `json:"why"`
}

// maxMistakes bounds the mistakes that a [Refused] has.
const maxMistakes = 20

// Refused is the error of an upload with mistakes. Nothing was changed.
type Refused struct {
	Kind     error // [gitd.ErrInvalid], [gitd.ErrExists] or [gitd.ErrTooLarge]
	Mistakes []Mistake
	More     int // mistakes that are left out
}

func (r *Refused) Error() string {
	var b strings.Builder
	for i, m := range r.Mistakes {
		if i > 0 {
			b.WriteString("; ")
		}
		if m.Name != "" {
			fmt.Fprintf(&b, "%.200q: ", m.Name)
		}
		b.WriteString(m.Why)
	}
	if r.More > 0 {
		fmt.Fprintf(&b, "; and %d more", r.More)
	}
	return b.String()
}

// Unwrap returns the kind.
func (r *Refused) Unwrap() error { return r.Kind }

// add adds a mistake. The first one determines the kind.
func (r *Refused) add(kind error, name, why string) {
	if r.Kind == nil {
		r.Kind = kind
	}
	if len(r.Mistakes) == maxMistakes {
		r.More++
		return
	}
	r.Mistakes = append(r.Mistakes, Mistake{strings.ToValidUTF8(name, "\uFFFD"), why})
}

// err returns r, or nil if there are no mistakes.
func (r *Refused) err() error {
	if len(r.Mistakes) == 0 {
		return nil
	}
	return r
}

// Spool keeps the files of uploads on the host, and those of archives while they are cleaned. Its fields are its
// options, which may be changed until the first call of a method.
type Spool struct {
	// Dir is a folder for files that have no name any more. It is made if there is none.
	Dir string
	// Secrets are the values that no upload may have. Nil means none.
	Secrets *redact.Secrets
	// MaxBytes and MaxFiles bound one upload. The defaults are the constants of that name.
	MaxBytes int64
	MaxFiles int
}

// Upload is a set of files that a person sent. Close frees it. It is not safe for concurrent use.
type Upload struct {
	// Folder is the path of the folder that the files are placed in. Empty means the work tree.
	Folder string
	// Replace has files of the same names replaced. Otherwise they are mistakes.
	Replace bool

	spool   *Spool
	files   []spooled
	taken   map[string]string // folded path, and folder, to the path as it was sent
	total   int64
	full    bool
	refused Refused
}

// spooled is a file on the host without a name. A process that dies frees it.
type spooled struct {
	path    string
	size    int64
	content *os.File
}

// Begin returns an empty upload.
func (s *Spool) Begin() *Upload {
	return &Upload{spool: s, taken: map[string]string{}}
}

// Add reads a file to its end. The name is a slash-separated path below the upload's folder. Mistakes are collected
// for [Upload.Check]. The error is that of the reader or of the disk.
func (u *Upload) Add(name string, r io.Reader) error {
	most, files := u.spool.MaxBytes, u.spool.MaxFiles
	if most == 0 {
		most = MaxBytes
	}
	if files == 0 {
		files = MaxFiles
	}
	if u.secret(name) {
		u.refused.add(gitd.ErrInvalid, "", "the name of a file has the value of a secret")
	} else if err := CheckPath(name); err != nil {
		u.refused.add(gitd.ErrInvalid, name, err.Error())
	} else if other, ok := u.clash(name); ok {
		u.refused.add(gitd.ErrInvalid, name, fmt.Sprintf("%.200q and it have one name on some file systems", other))
	}
	if len(u.files) == files && !u.full {
		u.full = true
		u.refused.add(gitd.ErrTooLarge, "", fmt.Sprintf("an upload has at most %d files", files))
	}
	if u.total > most || u.full {
		_, err := io.Copy(io.Discard, r) // the other names are checked too
		return err
	}
	f, err := u.spool.create()
	if err != nil {
		return err
	}
	u.files = append(u.files, spooled{path: name, content: f})
	in := &io.LimitedReader{R: r, N: most - u.total + 1}
	found, err := u.spool.Secrets.Copy(f, in)
	if err != nil {
		return fmt.Errorf("cannot keep the file: %w", err)
	}
	n := most - u.total + 1 - in.N
	if u.total += n; u.total > most {
		u.refused.add(gitd.ErrTooLarge, "", fmt.Sprintf("the files have more than %d MiB together", most>>20))
		_, err := io.Copy(io.Discard, r)
		return err
	}
	u.files[len(u.files)-1].size = n
	if len(found) > 0 {
		u.refused.add(gitd.ErrInvalid, name, "it has the value of the secret "+strings.Join(found, ", "))
	}
	return nil
}

// create returns an empty file without a name.
func (s *Spool) create() (*os.File, error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot keep the file: %w", err)
	}
	f, err := os.CreateTemp(s.Dir, "upload-")
	if err != nil {
		return nil, fmt.Errorf("cannot keep the file: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot keep the file: %w", err), f.Close())
	}
	return f, nil
}

// clash notes the name of a file. It returns an earlier name that a file system may take for the same, or for a file
// where this one has a folder.
func (u *Upload) clash(name string) (string, bool) {
	key := foldPath(name)
	if other, ok := u.taken[key]; ok {
		return other, true
	}
	u.taken[key] = name
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		key := foldPath(dir)
		other, ok := u.taken[key]
		if ok && other != dir+"/" {
			return strings.TrimSuffix(other, "/"), true
		}
		u.taken[key] = dir + "/"
	}
	return "", false
}

func foldPath(name string) string {
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = fold(parts[i])
	}
	return strings.Join(parts, "/")
}

// Check returns the mistakes so far as a [*Refused], or nil.
func (u *Upload) Check() error {
	r := u.refused
	r.Mistakes = slices.Clone(r.Mistakes)
	if u.secret(u.Folder) {
		r.add(gitd.ErrInvalid, "", "the name of the folder has the value of a secret")
	} else if err := CheckFolder(u.Folder); err != nil {
		r.add(gitd.ErrInvalid, u.Folder, "the folder cannot be used: "+err.Error())
	} else if slices.ContainsFunc(u.Paths(), u.secret) {
		r.add(gitd.ErrInvalid, "", "the path of a file has the value of a secret")
	}
	for i, name := range u.Paths() { // a name that is wrong alone is noted already
		if sent := u.files[i].path; len(r.Mistakes) == 0 && CheckPath(sent) == nil {
			if err := CheckPath(name); err != nil {
				r.add(gitd.ErrInvalid, sent, "with its folder "+err.Error())
			}
		}
	}
	if len(u.files) == 0 && len(r.Mistakes) == 0 {
		r.add(gitd.ErrInvalid, "", "choose a file")
	}
	return r.err()
}

// secret reports whether a name has the value of a secret.
func (u *Upload) secret(name string) bool { return u.spool.Secrets.String(name) != name }

// Paths returns the paths of the files in the work tree.
func (u *Upload) Paths() []string {
	list := make([]string, len(u.files))
	for i, f := range u.files {
		list[i] = path.Join(u.Folder, f.path)
	}
	return list
}

// Bytes returns the size of all files together.
func (u *Upload) Bytes() int64 { return u.total }

// Close frees the files on the host.
func (u *Upload) Close() error {
	var err error
	for _, f := range u.files {
		err = errors.Join(err, f.content.Close())
	}
	u.files = nil
	return err
}
