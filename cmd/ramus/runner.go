package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
)

// containerPrograms returns the programs for containers: the one for process 1 and for git, and the one for commands.
func containerPrograms(data string) (runner, program string, err error) {
	if program, err = os.Executable(); err != nil {
		return "", "", fmt.Errorf("cannot find this program: %w", err)
	}
	if runner, err = unpackRunner(data); runner == "" {
		runner = program
	}
	return runner, program, err
}

// unpackRunner writes ramus-runner to a file that containers can mount, and returns its path. The path is empty if this
// ramus was built without it. The file's name is a hash of its content, so that a file which a running container
// was started from is never written to.
func unpackRunner(data string) (path string, err error) {
	if len(runnerProgram) == 0 {
		return "", nil
	}
	sum := sha256.Sum256(runnerProgram)
	dir := filepath.Join(data, "programs")
	path = filepath.Join(dir, "ramus-runner-"+hex.EncodeToString(sum[:8]))
	if isUnpacked(path, runnerProgram) {
		return path, nil
	}
	wrap := func(err error) error { return fmt.Errorf("cannot unpack ramus-runner: %w", err) }
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", wrap(err)
	}
	// Programs of earlier versions are removed. Containers that use one keep it.
	old, err := filepath.Glob(filepath.Join(dir, "ramus-runner-*"))
	if err != nil {
		return "", wrap(err)
	}
	for _, name := range old {
		if err := os.Remove(name); err != nil {
			return "", wrap(err)
		}
	}
	f, err := os.CreateTemp(dir, "ramus-runner-*")
	if err != nil {
		return "", wrap(err)
	}
	if err = gunzip(f, runnerProgram); err == nil {
		err = f.Chmod(0o755)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return "", wrap(err)
	}
	return path, nil
}

// isUnpacked reports whether a file has the length and the checksum that the trailer of packed tells (RFC 1952).
func isUnpacked(path string, packed []byte) bool {
	f, err := os.Open(path)
	if err != nil || len(packed) < 8 {
		return false
	}
	defer f.Close()
	sum := crc32.NewIEEE()
	size, err := io.Copy(sum, f)
	trailer := packed[len(packed)-8:]
	return err == nil && sum.Sum32() == binary.LittleEndian.Uint32(trailer) &&
		uint32(size) == binary.LittleEndian.Uint32(trailer[4:])
}

// gunzip writes to w the content of packed.
func gunzip(w io.Writer, packed []byte) error {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return err
}
