package transfer

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/gitd/object"
)

// Bounds of the path of an uploaded file, in bytes and in parts.
const (
	MaxName  = 255 // of one part, as file systems have it
	MaxPath  = 1024
	MaxDepth = 32
)

// CheckPath returns why a slash-separated path cannot be that of an uploaded file. It returns nil for a relative path
// that stays below its folder, has no part that git keeps for itself, and looks as it is.
func CheckPath(name string) error {
	switch {
	case name == "":
		return errors.New("it has no name")
	case !utf8.ValidString(name):
		return errors.New("its name is not UTF-8")
	case len(name) > MaxPath:
		return fmt.Errorf("its path is longer than %d bytes", MaxPath)
	case strings.HasPrefix(name, "/"):
		return errors.New("its path begins with a slash")
	case strings.Contains(name, `\`):
		return errors.New("its name has a backslash")
	case strings.Count(name, "/") >= MaxDepth:
		return fmt.Errorf("it is more than %d folders deep", MaxDepth)
	}
	for _, r := range name {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) || r == utf8.RuneError {
			return fmt.Errorf("its name has the character %U, which nobody sees", r)
		}
	}
	for part := range strings.SplitSeq(name, "/") {
		if err := checkPart(part); err != nil {
			return err
		}
	}
	return nil
}

func checkPart(part string) error {
	switch {
	case part == "":
		return errors.New("a part of its path is empty")
	case part == "." || part == "..":
		return fmt.Errorf("its path has the part %q", part)
	case len(part) > MaxName:
		return fmt.Errorf("a part of its path is longer than %d bytes", MaxName)
	case object.IsDotGit(part):
		return fmt.Errorf("%q is a name that git keeps for itself", part)
	case strings.HasPrefix(part, temporary):
		return fmt.Errorf("names that begin with %q are those of uploads in progress", temporary)
	case strings.HasPrefix(part, " "), strings.HasSuffix(part, " "), strings.HasSuffix(part, "."):
		return fmt.Errorf("%q begins or ends with a space, or ends with a dot", part)
	}
	return nil
}

// CheckFolder is [CheckPath] for a folder. The path "" is that of the work tree.
func CheckFolder(name string) error {
	if name == "" {
		return nil
	}
	return CheckPath(name)
}

// fold returns a name as a file system that ignores case compares it.
func fold(name string) string { return strings.ToLower(strings.ToUpper(object.FoldName(name))) }
