package browser

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/ramus-dev/ramus/tasks/nodejs"
)

// ErrNoServer means that no file of the work tree names a way to serve its page.
var ErrNoServer = errors.New("no way to serve the page is known")

// serving are the scripts of package.json that serve a page, the best first.
var serving = []string{"dev", "start", "preview"}

// Server returns the command lines that serve the page of a work tree. They call the script dev, start or preview of
// package.json, with the package manager whose lock file exists. install is "" if there is nothing to install. read
// reads a file of the folder in which both will run. It returns fs.ErrNotExist for a missing file. Returns
// [ErrNoServer] if there is no such script.
func Server(read func(name string) ([]byte, error)) (install, start string, err error) {
	text, err := read("package.json")
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("%w: there is no package.json; set start: … in the spec", ErrNoServer)
	}
	if err != nil {
		return "", "", fmt.Errorf("cannot read package.json: %w", err)
	}
	var p struct {
		PackageManager       string                     `json:"packageManager"`
		Scripts              map[string]json.RawMessage `json:"scripts"`
		Dependencies         map[string]json.RawMessage `json:"dependencies"`
		DevDependencies      map[string]json.RawMessage `json:"devDependencies"`
		OptionalDependencies map[string]json.RawMessage `json:"optionalDependencies"`
	}
	if err := json.Unmarshal(bytes.TrimPrefix(text, []byte("\ufeff")), &p); err != nil {
		return "", "", fmt.Errorf("cannot read package.json: %w", err)
	}
	script := ""
	for _, name := range serving {
		var line string
		if json.Unmarshal(p.Scripts[name], &line) == nil && strings.TrimSpace(line) != "" {
			script = name
			break
		}
	}
	if script == "" {
		return "", "", fmt.Errorf("%w: package.json has no script %s; set start: … in the spec", ErrNoServer,
			strings.Join(serving, ", "))
	}
	// A lock file that is too large to be read counts as existing.
	has := func(name string) bool {
		_, err := read(name)
		return !errors.Is(err, fs.ErrNotExist)
	}
	m := nodejs.Find(has, p.PackageManager)
	if len(p.Dependencies)+len(p.DevDependencies)+len(p.OptionalDependencies) > 0 {
		install = m.Install
	}
	return install, m.Name + " run " + script, nil
}
