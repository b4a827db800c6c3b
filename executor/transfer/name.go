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
// that stays below its folder, and has no part that git keeps for itself and no control or format characters.
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
			return fmt.Errorf("its name has the character %U, which is invisible", r)
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

// isPackable reports whether a name means one file below its folder wherever an archive is unpacked, and is shown as it
// is. A colon means a part of the file on some systems, which is below the folder too.
func isPackable(name string) bool {
	unclear := func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }
	return isName(name) && !object.IsDotGit(name) && utf8.ValidString(name) && !strings.Contains(name, `\`) &&
		!strings.ContainsFunc(name, unclear)
}

// isName reports whether a name can be that of an entry of a folder.
func isName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

// hasGit reports whether a part of a path is a name that git keeps for itself. Such a folder has settings that run
// programs.
func hasGit(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if object.IsDotGit(part) {
			return true
		}
	}
	return false
}

// CheckFolder is [CheckPath] for a folder. The path "" is that of the work tree.
func CheckFolder(name string) error {
	if name == "" {
		return nil
	}
	return CheckPath(name)
}

// fold returns a name as a file system that ignores case and dots and spaces at the end compares it.
func fold(name string) string { return strings.ToLower(strings.ToUpper(strings.TrimRight(name, ". "))) }
