package tasks

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
)

// maxPath is PATH_MAX of Linux.
const maxPath = 4096

// CleanPath checks the name of a file below a work tree and returns it in its
// shortest form; "." is the work tree itself. It looks at the text alone: that
// no symlink leads out is for the Shell to see.
//
// .git is refused, in any case of its letters and at any depth, for reading and
// writing: a line in .git/config or a hook is a program that the next git
// command would run, with the rights of whoever runs it; and a remote's URL may
// hold a password.
func CleanPath(name string) (string, error) {
	refuse := func(why string) (string, error) {
		return "", fmt.Errorf("%w path %.200q: %s", ErrRefused, name, why)
	}
	switch {
	case name == "":
		return refuse("it is empty")
	case len(name) > maxPath:
		return refuse(fmt.Sprintf("it is longer than %d bytes", maxPath))
	case strings.IndexByte(name, 0) >= 0:
		return refuse("it contains a NUL byte")
	case strings.HasPrefix(name, "/"):
		return refuse("it is absolute; name files relative to the work tree")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			// Also where it would come back ("a/../b"): behind a symlink it does not.
			return refuse(`it contains ".."`)
		}
		if strings.EqualFold(part, ".git") {
			return refuse("it is git's own folder, not one of the work tree's files")
		}
	}
	return path.Clean(name), nil
}

// Links is what [ResolvePath] asks of a folder; *os.Root is one.
type Links interface {
	Lstat(name string) (fs.FileInfo, error)
	Readlink(name string) (string, error)
}

// ResolvePath follows the symlinks in a clean path below a work tree by hand
// and returns a path without any. What leads out of the work tree or into .git
// is [ErrRefused]. The path may name nothing yet. Whoever opens it has to open
// it in a way that cannot be led out (os.Root): the work tree may change meanwhile.
func ResolvePath(root Links, name string) (string, error) {
	refuse := func(why string) (string, error) {
		return "", fmt.Errorf("%w path %.200q: %s", ErrRefused, name, why)
	}
	at, todo, links := ".", strings.Split(name, "/"), 0
	for len(todo) > 0 {
		part := todo[0]
		todo = todo[1:]
		switch {
		case part == "" || part == ".":
			continue
		case part == "..":
			// Only from a link's target; at has no symlink in it, so its parent is what it says.
			if at == "." {
				return refuse("a symlink leads out of the work tree")
			}
			at = path.Dir(at)
			continue
		case strings.EqualFold(part, ".git"):
			return refuse("a symlink leads into git's own folder")
		}
		next := path.Join(at, part)
		info, err := root.Lstat(next)
		switch {
		case err != nil && len(todo) == 0 && errors.Is(err, fs.ErrNotExist):
			at = next
			continue
		case errors.Is(err, fs.ErrNotExist):
			// A folder that does not exist holds no symlinks.
			if slices.Contains(todo, "..") {
				return refuse("a symlink leads through a folder that does not exist")
			}
			return CleanPath(path.Join(next, strings.Join(todo, "/")))
		case errors.Is(err, syscall.ENOTDIR):
			return "", fmt.Errorf("%.200q: %w", name, syscall.ENOTDIR)
		case err != nil:
			return "", err
		case info.Mode()&fs.ModeSymlink == 0:
			at = next
			continue
		}
		if links++; links > maxLinks {
			return refuse("it leads through too many symlinks")
		}
		target, err := root.Readlink(next)
		if err != nil {
			return "", err
		}
		if path.IsAbs(target) {
			return refuse("a symlink leads out of the work tree")
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return at, nil
}

// Regular refuses what is no regular file.
func Regular(name string, info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return fmt.Errorf("%w path %.200q: it is a folder", ErrRefused, name)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w path %.200q: it is no regular file", ErrRefused, name)
	}
	return nil
}

// maxLinks is the number of symbolic links that one path may lead through.
const maxLinks = 40
