package gitd

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ramus-dev/ramus/gitd/gitfile"

	"github.com/ramus-dev/ramus/internal/durable"
)

// markName is the file with the mark of a repository, in its folder.
const markName = "ramus-mark"

// Marked reports whether something outside of the repository belongs to it.
func (r *Repo) Marked() bool {
	_, err := r.readMark()
	return !errors.Is(err, fs.ErrNotExist)
}

// Mark returns a random name that no other repository has or had. It is made at the first call, and stays if the
// repository gets another name. Things outside of the repository that belong to it are named by its mark.
func (r *Repo) Mark() (string, error) {
	mark, err := r.readMark()
	if !errors.Is(err, fs.ErrNotExist) {
		return mark, err
	}
	// The name of the file appears with its content, and the first one that appears stays.
	tmp, err := os.CreateTemp(r.dir, markName+".*.lock")
	if err != nil {
		return "", fmt.Errorf("cannot mark %s: %w", r.name, err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(strings.ToLower(rand.Text()) + "\n")
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err == nil {
		err = os.Link(tmp.Name(), filepath.Join(r.dir, markName))
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("cannot mark %s: %w", r.name, err)
	}
	if err := durable.Folder(r.dir); err != nil {
		return "", fmt.Errorf("cannot mark %s: %w", r.name, err)
	}
	return r.readMark()
}

func (r *Repo) readMark() (string, error) {
	text, err := gitfile.ReadSmall(filepath.Join(r.dir, markName))
	if err != nil {
		return "", fmt.Errorf("cannot read the mark of %s: %w", r.name, err)
	}
	mark := strings.TrimSuffix(string(text), "\n")
	if mark == "" || strings.ContainsFunc(mark, func(c rune) bool { return (c < 'a' || c > 'z') && (c < '2' || c > '7') }) {
		return "", fmt.Errorf("the file %s of %s is damaged: %w", markName, r.name, ErrInvalid)
	}
	return mark, nil
}
