// Package nodejs tells with which package manager a project with a package.json is installed and run.
package nodejs

import (
	"slices"
	"strings"
)

// Manager is a package manager in a project.
type Manager struct {
	Name   string // npm, pnpm, yarn, bun
	Locked bool   // its lock file is there
	// Install is the command that installs what package.json depends on: from the lock file,
	// which stays as it is, or without one, and without writing one where that can be said.
	Install string
}

type kind struct {
	name          string
	locks         []string
	frozen, loose string
}

// kinds are in the order in which their lock files are looked for; npm is for all others.
var kinds = []kind{
	{"pnpm", []string{"pnpm-lock.yaml"}, "pnpm install --frozen-lockfile --prefer-offline", "pnpm install --prefer-offline"},
	{"yarn", []string{"yarn.lock"}, "yarn install --non-interactive --prefer-offline --frozen-lockfile", "yarn install --non-interactive --prefer-offline --pure-lockfile"},
	{"bun", []string{"bun.lock", "bun.lockb"}, "bun install --frozen-lockfile", "bun install --no-save"},
	{"npm", []string{"package-lock.json", "npm-shrinkwrap.json"}, "npm ci --prefer-offline --no-audit --no-fund", "npm install --no-package-lock --prefer-offline --no-audit --no-fund"},
}

// Find finds the package manager: by its lock file, else by what package.json's
// packageManager says ("pnpm@10.1.0"), else npm. has tells whether a file is in the project's folder.
func Find(has func(name string) bool, said string) Manager {
	for _, k := range kinds {
		if slices.ContainsFunc(k.locks, has) {
			return k.in(has, said)
		}
	}
	name, _, _ := strings.Cut(said, "@")
	return Named(name, has, said)
}

// Named is a package manager that was chosen; npm when there is none of that name.
func Named(name string, has func(name string) bool, said string) Manager {
	for _, k := range kinds {
		if k.name == name {
			return k.in(has, said)
		}
	}
	return kinds[len(kinds)-1].in(has, said)
}

func (k kind) in(has func(name string) bool, said string) Manager {
	// Yarn as of version 2 calls its options otherwise.
	if name, version, _ := strings.Cut(said, "@"); k.name == "yarn" && (has(".yarnrc.yml") ||
		name == "yarn" && version != "" && !strings.HasPrefix(version, "1.") && !strings.HasPrefix(version, "0.")) {
		k.frozen, k.loose = "yarn install --immutable", "yarn install"
	}
	m := Manager{Name: k.name, Locked: slices.ContainsFunc(k.locks, has), Install: k.loose}
	if m.Locked {
		m.Install = k.frozen
	}
	return m
}
