package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// viewer writes the static files of Playwright's trace viewer as a tar. The files come with the driver, so they
// understand the traces that the driver writes.
func viewer(args []string, w io.Writer) error {
	if len(args) != 0 {
		return errors.New("viewer takes no arguments")
	}
	p, err := findPlace()
	if err != nil {
		return err
	}
	root := filepath.Join(p.driver, "package", "lib", "vite", "traceViewer")
	tw := tar.NewWriter(w)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := tw.WriteHeader(&tar.Header{Name: filepath.ToSlash(name), Mode: 0o644, Size: int64(len(text))}); err != nil {
			return err
		}
		_, err = tw.Write(text)
		return err
	})
	if err == nil {
		err = tw.Close()
	}
	if err != nil {
		return fmt.Errorf("cannot write the trace viewer: %w", err)
	}
	return nil
}
