package library

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"github.com/ramus-dev/ramus/tasks"
	"io/fs"
	"strings"
	"unicode/utf8"
)

// Written is the value of lib_write_file.
type Written struct {
	Path string `json:"path"`
	Size int    `json:"size"` // bytes
}

// File is the value of lib_read_file.
type File struct {
	Path string `json:"path"`
	// Missing is true if the file does not exist. The other fields are then empty.
	Missing bool   `json:"missing,omitempty"`
	Content string `json:"content"`
	// Encoding of Content is "utf-8", or "base64" for a file that is not valid UTF-8.
	Encoding string `json:"encoding,omitempty"`
	Size     int    `json:"size"` // bytes of the file
}

// Files is the value of lib_list_files.
type Files struct {
	// Files are sorted. A byte of a name that is not UTF-8 becomes U+FFFD, because JSON has no other way.
	Files []string `json:"files"`
	// Count is the number of all matching files, even if Files ends at the 10,000th.
	Count     int  `json:"count"`
	Truncated bool `json:"truncated,omitempty"`
}

const maxListed = 10_000

func readFile() tasks.Task {
	type params struct {
		Path string `json:"path" jsonschema:"The file, relative to the root of the repository, with slashes."`
	}
	t := newTask("lib_read_file",
		`Reads one file of the work tree. The value has its content as text, or as base64 if it is not valid UTF-8 (see encoding), and its size in bytes. For a file that does not exist, the task is not OK and returns "missing": true. Paths that leave the work tree, .git, and files above 16 MiB are refused.`,
		func(ctx context.Context, sh tasks.Shell, p params) (tasks.Output, error) {
			name, err := tasks.CleanPath(p.Path)
			if err != nil {
				return tasks.Output{}, err
			}
			content, err := sh.ReadFile(ctx, name)
			if errors.Is(err, fs.ErrNotExist) {
				return tasks.Output{Value: File{Path: name, Missing: true}}, nil
			}
			if err != nil {
				return tasks.Output{}, err
			}
			f := File{Path: name, Size: len(content), Content: string(content), Encoding: "utf-8"}
			if !utf8.Valid(content) {
				f.Content, f.Encoding = base64.StdEncoding.EncodeToString(content), "base64"
			}
			return tasks.Output{OK: true, Value: f}, nil
		})
	t.ReadOnly = true
	return t
}

func writeFile() tasks.Task {
	type params struct {
		Path    string `json:"path" jsonschema:"The file, relative to the root of the repository, with slashes."`
		Content string `json:"content" jsonschema:"The complete new content of the file, as text."`
	}
	return newTask("lib_write_file",
		`Writes one complete file of the work tree. Missing folders are made. An existing file is replaced and keeps its mode (an executable file stays executable). Paths that leave the work tree, .git, and content above 16 MiB are refused.`,
		func(ctx context.Context, sh tasks.Shell, p params) (tasks.Output, error) {
			name, err := tasks.CleanPath(p.Path)
			if err != nil {
				return tasks.Output{}, err
			}
			if err := sh.WriteFile(ctx, name, []byte(p.Content)); err != nil {
				return tasks.Output{}, err
			}
			return tasks.Output{OK: true, Value: Written{name, len(p.Content)}}, nil
		})
}

func listFiles() tasks.Task {
	type params struct {
		Pattern string `json:"pattern,omitempty" jsonschema:"A glob relative to the root of the repository: * within a folder name, ** for any number of folders, ? [a-z] {a,b}. A trailing / means everything below. Without one, all files."`
	}
	t := newTask("lib_list_files",
		`Lists the files of the work tree that match a glob, sorted, at most 10,000 (count is the number of all). Folders, .git and files that .gitignore excludes are left out. "*.go" matches in the root only, "**/*.go" everywhere.`,
		func(ctx context.Context, sh tasks.Shell, p params) (tasks.Output, error) {
			if _, err := tasks.ParseGlob(p.Pattern); err != nil {
				return tasks.Output{}, err
			}
			names, err := sh.ListFiles(ctx, p.Pattern)
			if err != nil {
				return tasks.Output{}, err
			}
			v := Files{Files: []string{}, Count: len(names), Truncated: len(names) > maxListed}
			for _, n := range names[:min(len(names), maxListed)] {
				v.Files = append(v.Files, strings.ToValidUTF8(n, "\uFFFD"))
			}
			return tasks.Output{OK: true, Value: v}, nil
		})
	t.ReadOnly = true
	return t
}

// refuse returns the error for a parameter with the right type and a wrong value.
func refuse(param, value, why string) error {
	return fmt.Errorf("%w: parameter %q: %.200q %s", tasks.ErrParams, param, value, why)
}
