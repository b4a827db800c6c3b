package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/ramus-dev/ramus/tasks/browser"
)

// Bounds on the evidence. A larger file is left out, which the check reports.
const (
	maxFile  = 64 << 20
	maxVideo = 200 << 20
	maxTotal = 256 << 20
	maxFiles = 2000
)

// writeEvidence writes a check and its files as a tar, the check first. It names only existing files.
func writeEvidence(w io.Writer, dir string, c *browser.Check) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("cannot read the evidence: %w", err)
	}
	defer root.Close()
	files, left, err := listEvidence(root)
	if err != nil {
		return err
	}
	present := make(map[string]bool)
	for _, f := range files {
		present[f.name] = true
	}
	for i := range c.Views {
		nameFiles(&c.Views[i], present)
	}
	if left > 0 {
		c.Reason = strings.TrimPrefix(c.Reason+fmt.Sprintf("; %s of the evidence left out: too large",
			plural(left, "file")), "; ")
	}
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot write the check: %w", err)
	}
	tw := tar.NewWriter(w)
	if err := tw.WriteHeader(&tar.Header{Name: indexFile, Mode: 0o644, Size: int64(len(text))}); err != nil {
		return fmt.Errorf("cannot write the evidence: %w", err)
	}
	if _, err := tw.Write(text); err != nil {
		return fmt.Errorf("cannot write the evidence: %w", err)
	}
	for _, f := range files {
		if err := f.copy(tw, root); err != nil {
			return fmt.Errorf("cannot write the evidence: %w", err)
		}
	}
	if err := tw.Close(); err != nil {
		return fmt.Errorf("cannot write the evidence: %w", err)
	}
	return nil
}

// evidenceFile is a file for the tar.
type evidenceFile struct {
	name string
	size int64
}

// listEvidence returns the regular files within the bounds, small ones first, and the number of the others.
func listEvidence(root *os.Root) (files []evidenceFile, left int, err error) {
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.Type().IsRegular() || name == indexFile {
			return nil
		}
		if len(files)+left > 10*maxFiles {
			return fs.SkipAll
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		limit := int64(maxFile)
		if path.Base(name) == "video.webm" {
			limit = maxVideo
		}
		if info.Size() > limit {
			left++
			return nil
		}
		files = append(files, evidenceFile{name, info.Size()})
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("cannot read the evidence: %w", err)
	}
	slices.SortStableFunc(files, func(a, b evidenceFile) int { return int(a.size - b.size) })
	total := int64(0)
	for i, f := range files {
		total += f.size
		if i >= maxFiles || total > maxTotal {
			left += len(files) - i
			files = files[:i]
			break
		}
	}
	return files, left, nil
}

// copy writes the file. A change since it was listed is an error, because no process that could change it is alive.
func (f evidenceFile) copy(tw *tar.Writer, root *os.Root) error {
	in, err := root.OpenFile(f.name, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := tw.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: f.size}); err != nil {
		return err
	}
	n, err := io.Copy(tw, io.LimitReader(in, f.size))
	if err == nil && n != f.size {
		err = errors.New(f.name + " became shorter")
	}
	return err
}

// nameFiles removes the names of missing files from a view, and adds those of files that a driver wrote before it died
// and had not named yet.
func nameFiles(v *browser.View, present map[string]bool) {
	for file, field := range map[string]*string{
		"screenshot.png": &v.Screenshot,
		"trace.zip":      &v.Trace,
		"network.har":    &v.HAR,
		"video.webm":     &v.Video,
		"page.pdf":       &v.PDF,
		"aria.yml":       &v.Aria,
		"console.jsonl":  &v.Console.File,
	} {
		*field = ""
		if full := v.Viewport.Name + "/" + file; present[full] {
			*field = full
		}
	}
	for i := range v.Steps {
		if !present[v.Steps[i].Screenshot] {
			v.Steps[i].Screenshot = ""
		}
	}
}
