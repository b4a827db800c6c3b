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
	// Missing says that there is no such file; the rest is then empty.
	Missing bool   `json:"missing,omitempty"`
	Content string `json:"content"`
	// Encoding of Content: "utf-8", or "base64" for what is not valid UTF-8.
	Encoding string `json:"encoding,omitempty"`
	Size     int    `json:"size"` // bytes of the file
}

// Files is the value of lib_list_files.
type Files struct {
	// Files are sorted. A byte of a name that is not UTF-8 shows as U+FFFD, since JSON has no other way.
	Files []string `json:"files"`
	// Count is how many matched, also when Files ends at the 10,000th.
	Count     int  `json:"count"`
	Truncated bool `json:"truncated,omitempty"`
}

const maxListed = 10_000

func readFile() tasks.Task {
	type params struct {
		Path string `json:"path" jsonschema:"The file, relative to the root of the repository, with slashes."`
	}
	t := newTask("lib_read_file",
		`Reads one file of the work tree. The value has its content as text, or as base64 when it is not valid UTF-8 (encoding says which), and its size in bytes. A file that does not exist is no error: the task ends not OK with "missing": true. Paths that leave the work tree, and .git, are refused; so are files above 16 MiB.`,
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
		Content string `json:"content" jsonschema:"The whole new content of the file, as text."`
	}
	return newTask("lib_write_file",
		`Writes one file of the work tree, whole: missing folders are made, an existing file is replaced and keeps its mode (an executable one stays executable). Paths that leave the work tree, and .git, are refused; so is content above 16 MiB.`,
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
		`Lists the files of the work tree that match a glob, sorted, at most 10,000 (count says how many there are). Folders, .git and what .gitignore excludes are left out. "*.go" matches in the root only, "**/*.go" everywhere.`,
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

// refuse makes the error of a parameter whose type is right and whose value is not.
func refuse(param, value, why string) error {
	return fmt.Errorf("%w: parameter %q: %.200q %s", tasks.ErrParams, param, value, why)
}
