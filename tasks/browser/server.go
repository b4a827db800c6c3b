package browser

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
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
	m, locked, err := managerOf(read, p.PackageManager)
	if err != nil {
		return "", "", err
	}
	if len(p.Dependencies)+len(p.DevDependencies)+len(p.OptionalDependencies) > 0 {
		install = m.loose
		if locked {
			install = m.frozen
		}
	}
	return install, m.name + " run " + script, nil
}

// manager is a package manager: what its lock files are called, and how it installs.
type manager struct {
	name   string
	locks  []string
	frozen string // from the lock file, which stays as it is
	loose  string // without one, and without writing one
}

var managers = []manager{
	{"pnpm", []string{"pnpm-lock.yaml"}, "pnpm install --frozen-lockfile --prefer-offline", "pnpm install --prefer-offline --no-lockfile"},
	{"yarn", []string{"yarn.lock"}, "yarn install --non-interactive --prefer-offline --frozen-lockfile", "yarn install --non-interactive --prefer-offline --pure-lockfile"},
	{"bun", []string{"bun.lock", "bun.lockb"}, "bun install --frozen-lockfile", "bun install --no-save"},
	{"npm", []string{"package-lock.json", "npm-shrinkwrap.json"}, "npm ci --prefer-offline --no-audit --no-fund", "npm install --no-package-lock --prefer-offline --no-audit --no-fund"},
}

// managerOf finds the package manager: by its lock file, else by what package.json says, else npm.
func managerOf(read func(name string) ([]byte, error), said string) (m manager, locked bool, err error) {
	name, version, _ := strings.Cut(said, "@")
	m = managers[len(managers)-1]
	if i := slices.IndexFunc(managers, func(m manager) bool { return m.name == name }); i >= 0 {
		m = managers[i]
	}
	for _, c := range managers {
		for _, lock := range c.locks {
			_, err := read(lock)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return m, false, fmt.Errorf("cannot read %s: %w", lock, err)
			}
			return c.berry(read, name, version), true, nil
		}
	}
	return m.berry(read, name, version), false, nil
}

// berry is yarn as of version 2, which calls its options otherwise.
func (m manager) berry(read func(name string) ([]byte, error), name, version string) manager {
	_, err := read(".yarnrc.yml")
	if m.name == "yarn" && (err == nil || name == "yarn" && version != "" && !strings.HasPrefix(version, "0.") && !strings.HasPrefix(version, "1.")) {
		m.frozen, m.loose = "yarn install --immutable", "yarn install"
	}
	return m
}
