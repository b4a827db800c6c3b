package deps

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/worktree"
)

// Dir is where package managers keep the files that they have fetched. Nothing else is in it, so a layer can be mounted there. WarmUp of
// worktree makes it.
const Dir = containers.CacheDir + "/deps"

// Env is the environment that makes package managers use Dir. pnpm gets a file instead (worktree/scripts/warm.sh),
// because its variable is npm's too, and npm complains about it. So does yarn 1, because its variable is that of later versions
// too, which may have their cache in the repository.
var Env = []string{
	"npm_config_cache=" + Dir + "/npm",
	"YARN_GLOBAL_FOLDER=" + Dir + "/yarn", // from version 2 on
	"GOMODCACHE=" + Dir + "/go",
	"CARGO_HOME=" + Dir + "/cargo",
}

// ecosystem is a package manager that can fetch without building.
type ecosystem struct {
	name  string
	locks []string // names of its lock files
	// folder below Dir holds the files that it has fetched, see Env.
	folder string
	// fetch is run in the folder of each lock file. It does not run scripts of dependencies.
	fetch []string
	// install is run in the folder of each lock file, after fetch. It needs no network, and does not run scripts of
	// dependencies. It is empty if nothing is installed next to the lock file.
	install []string
}

var ecosystems = []ecosystem{
	{"pnpm", []string{"pnpm-lock.yaml"}, "pnpm",
		[]string{"pnpm", "install", "--frozen-lockfile", "--ignore-scripts", "--ignore-pnpmfile"},
		[]string{"pnpm", "install", "--frozen-lockfile", "--ignore-scripts", "--offline"}},
	{"npm", []string{"package-lock.json", "npm-shrinkwrap.json"}, "npm",
		[]string{"npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"},
		[]string{"npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--offline"}},
	{"yarn", []string{"yarn.lock"}, "yarn", []string{"sh", "-c", yarnInstall, "yarn"},
		[]string{"sh", "-c", yarnInstall, "yarn", "offline"}},
	{"go", []string{"go.sum"}, "go", []string{"go", "mod", "download"}, nil},
	{"cargo", []string{"Cargo.lock"}, "cargo", []string{"cargo", "fetch", "--locked"}, nil},
}

// yarnInstall installs the packages of a yarn.lock without their scripts, by yarn of any version. With an argument it uses no
// network. It fails if the packages are not in a folder of their own, as with Plug'n'Play, because only a folder is shared.
const yarnInstall = `case $(yarn --version) in
"") exit 127 ;;
[01].*) yarn install --frozen-lockfile --ignore-scripts --non-interactive --no-progress ${1:+--offline} ;;
*)
	[ $# -eq 0 ] || export YARN_ENABLE_NETWORK=false
	YARN_ENABLE_GLOBAL_CACHE=true YARN_ENABLE_TELEMETRY=false yarn install --immutable --mode=skip-build
	;;
esac && [ -d ` + installedFolder + ` ]`

// lockfiles returns the names of the ecosystem's lock files among files, in order. files maps names to hashes.
func (e ecosystem) lockfiles(files map[string]string) []string {
	return slices.Sorted(func(yield func(string) bool) {
		for name := range files {
			if slices.Contains(e.locks, path.Base(name)) && !yield(name) {
				return
			}
		}
	})
}

// lockHash returns one hash over the ecosystem's lock files among files, or "" if there are none.
func (e ecosystem) lockHash(files map[string]string) string {
	names := e.lockfiles(files)
	if len(names) == 0 {
		return ""
	}
	h := sha256.New()
	for _, name := range names {
		fmt.Fprintf(h, "%s  %s\n", files[name], name)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// locked is the dependencies that a repository has in an ecosystem with certain lock files.
type locked struct {
	ecosystem
	repo, hash string
}

// key returns the name of the tarball in the artifact store.
func (l locked) key() string { return keyPrefix(l.repo, l.name) + l.hash }

// keyPrefix begins the names of an ecosystem's tarballs in the artifact store. It has the repository, so that a party
// that can change one base has no influence on the tasks of another.
func keyPrefix(repo, eco string) string {
	return "cache/" + worktree.Platform + "/" + eco + "/" + repo + "/"
}
