package backup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// disposable are the entries of a data folder that are made again if they are missing, or that belong to the machine.
var disposable = []string{"hosts", "sandbox", "layers", "programs", "trace-viewer", "uploads", "index.db", "search.db",
	"ramus.lock", "ramus.sock", "ramus.sock.last", "standby", restoreName}

// EachSmall calls visit with the path of every file of a data folder that a copy has to have, apart from repositories
// and artifacts. They change and grow. keys includes the keys of the server. It is the one list of these files.
func EachSmall(data string, keys bool, visit func(path string) error) error {
	entries, err := os.ReadDir(data)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") || slices.Contains(disposable, name) || name == "repos" ||
			name == "artifacts" || name == "keys" && !keys {
			continue
		}
		if err := eachFile(filepath.Join(data, name), "", visit); err != nil {
			return err
		}
	}
	return nil
}

// EachArtifact calls visit with the path of every file of the artifact store's folder, without the cache of dependencies.
// They never change.
func EachArtifact(data string, visit func(path string) error) error {
	root := filepath.Join(data, "artifacts")
	return eachFile(root, filepath.Join(root, "cache"), visit)
}

// eachFile calls visit with the path of every complete file of a folder, apart from the folder skip.
func eachFile(root, skip string, visit func(path string) error) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a run ended
		}
		if err == nil && d.IsDir() && path == skip {
			return fs.SkipDir
		}
		if err != nil || !d.Type().IsRegular() || isTemporary(d.Name()) {
			return err
		}
		return visit(path)
	})
}

// isTemporary reports whether a file has a name that is used until the file is complete.
func isTemporary(name string) bool {
	return strings.HasPrefix(name, ".new-") || strings.HasPrefix(name, ".key-") || strings.HasSuffix(name, ".tmp")
}
