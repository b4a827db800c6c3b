package object

import (
	"fmt"
	"strings"
)

const (
	// MaxPath is the length of the longest path that git can open, without the final NUL.
	MaxPath = 4095
	// MaxDepth bounds the nesting of folders. No path that a file system accepts is as deep.
	MaxDepth = 2048
	// MaxEntries bounds the entries of a list of files.
	MaxEntries = 1_000_000
	// MaxFolders bounds the folders that are read to make a list of files. A few small trees can have more folders than
	// a computer can read, because a tree may contain another one any number of times.
	MaxFolders = 100_000
)

// SplitPath returns the parts of a slash-separated path inside a tree. Returns [ErrInvalid] if a part is
// empty, "." or "..".
func SplitPath(p string) ([]string, error) {
	switch {
	case p == "":
		return nil, fmt.Errorf("the path is empty: %w", ErrInvalid)
	case len(p) > 4096:
		return nil, fmt.Errorf("path %.100q… is longer than 4096 bytes: %w", p, ErrInvalid)
	case strings.Contains(p, "\x00"):
		return nil, fmt.Errorf("path %.100q contains a NUL: %w", p, ErrInvalid)
	}
	parts := strings.Split(p, "/")
	for _, part := range parts {
		if part == "" || part == "." || part == ".." {
			return nil, fmt.Errorf("path %.100q has a part that is empty, '.' or '..': %w", p, ErrInvalid)
		}
	}
	return parts, nil
}

// IsDotGit reports whether a file system may take name for ".git". Reasons are other case, the short name
// of Windows, and characters that HFS+ ignores. A checkout of such a file could install
// hooks, so the fsck of git refuses it, too.
func IsDotGit(name string) bool {
	name = FoldName(name)
	return strings.EqualFold(name, ".git") || strings.EqualFold(name, "git~1")
}

// FoldName returns the name under which other file systems store name. It does not fold case.
func FoldName(name string) string {
	name = strings.Map(func(c rune) rune {
		switch {
		case c >= 0x200c && c <= 0x200f, c >= 0x202a && c <= 0x202e, c >= 0x206a && c <= 0x206f, c == 0xfeff:
			return -1
		}
		return c
	}, name)
	name = strings.TrimRight(name, ". ")
	if i := strings.IndexByte(name, ':'); i >= 0 { // an NTFS stream
		name = name[:i]
	}
	return name
}
