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

// ErrNoServer: nothing in the work tree says how its page is served.
var ErrNoServer = errors.New("cannot find out how to serve the page")

// serving are the scripts of package.json that serve a page, the best first.
var serving = []string{"dev", "start", "preview"}

// Server finds in package.json how the page of a work tree is served: by its script
// dev, start or preview, with the package manager whose lock file is there. install
// is "" when there is nothing to install. read reads a file of the folder where both will
// be run; one that is missing is fs.ErrNotExist. When there is no such script the error
// is [ErrNoServer].
func Server(read func(name string) ([]byte, error)) (install, start string, err error) {
	text, err := read("package.json")
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("%w: there is no package.json; say it in the spec, as start: …", ErrNoServer)
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
		return "", "", fmt.Errorf("%w: package.json has no script %s; say it in the spec, as start: …", ErrNoServer, strings.Join(serving, ", "))
	}
	// A lock file that cannot be read, since it is too large, is there all the same.
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
