package deps

import (
	"path"
	"strings"

	"github.com/ramus-dev/ramus/tasks/environment"
)

// manager has the commands by which a package manager installs the packages of a lock file.
type manager struct {
	install string // shell text in the folder of the lock file
	store   string // variable that names its folder of fetched files
}

// managers are the package managers of [environment.Managers]. Their usual commands use what has been fetched, and the
// network for the rest.
var managers = map[string]manager{
	"pnpm":     {"pnpm install --frozen-lockfile --prefer-offline", "npm_config_store_dir"},
	"npm":      {"npm ci --prefer-offline --no-audit --no-fund", "npm_config_cache"},
	"yarn":     {"yarn install --frozen-lockfile --prefer-offline", "YARN_CACHE_FOLDER"},
	"go":       {"go mod download", "GOMODCACHE"},
	"cargo":    {"cargo fetch --locked", "CARGO_HOME"},
	"pip":      {"python3 -m venv .venv && .venv/bin/pip install --disable-pip-version-check -r LOCK", "PIP_CACHE_DIR"},
	"uv":       {"uv sync --frozen", "UV_CACHE_DIR"},
	"poetry":   {"poetry install --no-interaction", "POETRY_CACHE_DIR"},
	"bundle":   {"bundle install", "BUNDLE_PATH"},
	"composer": {"composer install --no-interaction", "COMPOSER_CACHE_DIR"},
	"maven":    {"mvn -B -q dependency:go-offline", ""},
	"gradle":   {"gradle --console=plain dependencies", "GRADLE_USER_HOME"},
}

// InstallOf returns the command of a dependency that a repository's configuration names.
func InstallOf(d environment.Dependency) Install {
	m := managers[d.Manager]
	i := Install{Shell: d.Install, Dir: path.Dir(d.Lock), Env: []string{"CI=1"}}
	if i.Shell == "" {
		i.Shell = strings.ReplaceAll(m.install, "LOCK", quote(path.Base(d.Lock)))
	}
	switch {
	case d.Store == "":
	case d.Manager == "maven":
		i.Shell = "export MAVEN_OPTS=-Dmaven.repo.local=" + folder(d.Store) + "; " + i.Shell
	default:
		i.Shell = "export " + m.store + "=" + folder(d.Store) + "; " + i.Shell
	}
	return i
}

// folder returns the word of a shell for a folder, whose ~/ is the home folder.
func folder(store string) string {
	if rest, ok := strings.CutPrefix(store, "~/"); ok {
		return `"$HOME"/` + quote(rest)
	}
	return quote(store)
}

// quote returns text as one word of a shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
