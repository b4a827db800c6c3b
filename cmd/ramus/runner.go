package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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

// unpackRunner writes ramus-runner to the data folder, for containers. Returns "" if this ramus was built without it
// and serves as the runner itself. The name of the file has a hash of its content, so that the program of a running
// container is never written to.
func unpackRunner(data string) (path string, err error) {
	if len(runnerProgram) == 0 {
		return "", nil
	}
	sum := sha256.Sum256(runnerProgram)
	dir := filepath.Join(data, "programs")
	path = filepath.Join(dir, "ramus-runner-"+hex.EncodeToString(sum[:8]))
	if there, err := os.ReadFile(path); err == nil && bytes.Equal(there, runnerProgram) {
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
	_, err = f.Write(runnerProgram)
	if err == nil {
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
