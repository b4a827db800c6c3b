package worktree

import (
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/gitd/object"
)

// checkNew refuses entries that git refuses to add, and those that it examines when they are pushed.
func checkNew(path string, e object.Entry) error {
	plain := object.FoldName(e.Name)
	switch {
	case len(path) > object.MaxPath:
		return fmt.Errorf("path %.100q… is longer than %d bytes: %w", path, object.MaxPath, ErrNeedsGit)
	case object.IsDotGit(e.Name):
		return fmt.Errorf("%.200q has a name that git keeps for itself: %w", path, ErrNeedsGit)
	case strings.EqualFold(plain, ".gitmodules"), strings.Contains(plain, "~") && len(plain) <= 8 &&
		strings.HasPrefix(strings.ToLower(plain), "gi"):
		// Short names of Windows count, too (gitmod~1, gi7eba~1).
		return fmt.Errorf("%.200q tells git of submodules: %w", path, ErrNeedsGit)
	case strings.EqualFold(plain, ".gitattributes") && (e.Name != ".gitattributes" || e.Mode == object.ModeFolder):
		return fmt.Errorf("%.200q is not the .gitattributes that it seems to be: %w", path, ErrNeedsGit)
	}
	return nil
}

// isTracked reports whether the index has an entry for a file or link.
func isTracked(indexed object.Entry) bool {
	return indexed.Mode != 0 && indexed.Mode != object.ModeFolder
}

// plainMode returns the mode that git writes today for an entry of a tree.
func plainMode(mode uint32) uint32 {
	switch {
	case mode == object.ModeFolder || mode == object.ModeCommit || mode == object.ModeSymlink || mode == 0:
		return mode
	case mode&0o100 != 0:
		return object.ModeExecutable
	}
	return object.ModeFile
}
