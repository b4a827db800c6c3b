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

// CleanPath checks the name of a file below a work tree and returns its shortest form. "." is the work tree itself. It
// reads only the text. The Shell has to check that no symlink leads out.
//
// .git is refused, in any case of its letters and at any depth, for reading and writing. A line in .git/config or a
// hook is a program that the next git command would run, with the rights of its caller. The URL of a remote may have a
// password.
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
			// Also if the rest comes back ("a/../b"), because it may not after a symlink.
			return refuse(`it contains ".."`)
		}
		if strings.EqualFold(part, ".git") {
			return refuse("it is git's own folder, not one of the work tree's files")
		}
	}
	return path.Clean(name), nil
}

// Links is the part of a folder that [ResolvePath] needs. *os.Root implements it.
type Links interface {
	Lstat(name string) (fs.FileInfo, error)
	Readlink(name string) (string, error)
}

// ResolvePath follows the symlinks in a clean path below a work tree, and returns a path without any. Returns
// [ErrRefused] if the path leads out of the work tree or into .git. The path may name no existing file. The caller has
// to open it in a way that cannot be led out (os.Root), because the work tree may change meanwhile.
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
			// ".." comes only from a link's target. at has no symlink, so its parent is exact.
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
			// A folder that does not exist has no symlinks.
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

// Regular returns an error if the file is not regular.
func Regular(name string, info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return fmt.Errorf("%w path %.200q: it is a folder", ErrRefused, name)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w path %.200q: it is no regular file", ErrRefused, name)
	}
	return nil
}

// maxLinks bounds the symbolic links on one path.
const maxLinks = 40
