// Package nodejs determines the package manager that installs and runs a project with a package.json.
package nodejs

import (
	"slices"
	"strings"
)

// Manager is a package manager in a project.
type Manager struct {
	Name   string // npm, pnpm, yarn, bun
	Locked bool   // its lock file exists
	// Install is the command that installs the dependencies in package.json. It uses the lock file without changing it.
	// Without a lock file it writes none, if the manager supports that.
	Install string
}

type kind struct {
	name          string
	locks         []string
	frozen, loose string
}

// kinds are in the order in which their lock files are searched. npm is for all others.
var kinds = []kind{
	{"pnpm", []string{"pnpm-lock.yaml"}, "pnpm install --frozen-lockfile --prefer-offline", "pnpm install --prefer-offline"},
	{"yarn", []string{"yarn.lock"}, "yarn install --non-interactive --prefer-offline --frozen-lockfile",
		"yarn install --non-interactive --prefer-offline --pure-lockfile"},
	{"bun", []string{"bun.lock", "bun.lockb"}, "bun install --frozen-lockfile", "bun install --no-save"},
	{"npm", []string{"package-lock.json", "npm-shrinkwrap.json"}, "npm ci --prefer-offline --no-audit --no-fund",
		"npm install --no-package-lock --prefer-offline --no-audit --no-fund"},
}

// Find returns the package manager of a lock file, or else of packageManager in package.json ("pnpm@10.1.0"), or else
// npm. has reports whether a file is in the project's folder.
func Find(has func(name string) bool, pinned string) Manager {
	for _, k := range kinds {
		if slices.ContainsFunc(k.locks, has) {
			return k.in(has, pinned)
		}
	}
	name, _, _ := strings.Cut(pinned, "@")
	return Named(name, has, pinned)
}

// Named returns the package manager with a name. Returns npm if there is none.
func Named(name string, has func(name string) bool, pinned string) Manager {
	for _, k := range kinds {
		if k.name == name {
			return k.in(has, pinned)
		}
	}
	return kinds[len(kinds)-1].in(has, pinned)
}

func (k kind) in(has func(name string) bool, pinned string) Manager {
	// Yarn from version 2 on has other options.
	if name, version, _ := strings.Cut(pinned, "@"); k.name == "yarn" && (has(".yarnrc.yml") ||
		name == "yarn" && version != "" && !strings.HasPrefix(version, "1.") && !strings.HasPrefix(version, "0.")) {
		k.frozen, k.loose = "yarn install --immutable", "yarn install"
	}
	m := Manager{Name: k.name, Locked: slices.ContainsFunc(k.locks, has), Install: k.loose}
	if m.Locked {
		m.Install = k.frozen
	}
	return m
}
