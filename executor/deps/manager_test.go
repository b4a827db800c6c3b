package deps

import (
	"testing"

	"github.com/ramus-dev/ramus/tasks/environment"
)

// TestManagers checks that each manager of the configuration has a command.
func TestManagers(t *testing.T) {
	for _, name := range environment.Managers {
		if m, ok := managers[name]; !ok || m.install == "" {
			t.Errorf("%s has no command", name)
		}
	}
	for d, want := range map[environment.Dependency]Install{
		{Manager: "npm", Lock: "web/package-lock.json"}: {Shell: "npm ci --prefer-offline --no-audit --no-fund", Dir: "web"},
		{Manager: "pip", Lock: "it's.txt"}:              {Shell: `python3 -m venv .venv && .venv/bin/pip install --disable-pip-version-check -r 'it'\''s.txt'`, Dir: "."},
		{Manager: "go", Lock: "go.sum",
			Store: "/cache/go"}: {Shell: "export GOMODCACHE='/cache/go'; go mod download", Dir: "."},
		{Manager: "maven", Lock: "pom.xml", Store: "~/.m2",
			Install: "mvn -o verify"}: {Shell: `export MAVEN_OPTS=-Dmaven.repo.local="$HOME"/'.m2'; mvn -o verify`, Dir: "."},
	} {
		if got := InstallOf(d); got.Shell != want.Shell || got.Dir != want.Dir {
			t.Errorf("%+v: %+v, want %+v", d, got, want)
		}
	}
}
