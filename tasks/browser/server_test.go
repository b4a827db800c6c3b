package browser_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/tasks/browser"
)

func TestServer(t *testing.T) {
	const vite = `{"scripts":{"dev":"vite","build":"vite build","start":"node server.js"},"devDependencies":{"vite":"^8"}}`
	for _, c := range []struct {
		name           string
		files          map[string]string
		install, start string
	}{
		{"npm with a lock file", map[string]string{"package.json": vite, "package-lock.json": "{}"},
			"npm ci --prefer-offline --no-audit --no-fund", "npm run dev"},
		{"shrinkwrapped", map[string]string{"package.json": vite, "npm-shrinkwrap.json": "{}"},
			"npm ci --prefer-offline --no-audit --no-fund", "npm run dev"},
		{"npm without one", map[string]string{"package.json": vite},
			"npm install --no-package-lock --prefer-offline --no-audit --no-fund", "npm run dev"},
		{"pnpm", map[string]string{"package.json": vite, "pnpm-lock.yaml": ""},
			"pnpm install --frozen-lockfile --prefer-offline", "pnpm run dev"},
		{"yarn 1", map[string]string{"package.json": vite, "yarn.lock": ""},
			"yarn install --non-interactive --prefer-offline --frozen-lockfile", "yarn run dev"},
		{"yarn 4", map[string]string{"package.json": vite, "yarn.lock": "", ".yarnrc.yml": ""},
			"yarn install --immutable", "yarn run dev"},
		{"bun", map[string]string{"package.json": vite, "bun.lock": ""}, "bun install --frozen-lockfile", "bun run dev"},
		{"bun of old", map[string]string{"package.json": vite, "bun.lockb": "\x00"}, "bun install --frozen-lockfile",
			"bun run dev"},
		{"said, without a lock file",
			map[string]string{"package.json": `{"packageManager":"yarn@4.1.0","scripts":{"start":"x"},"dependencies":{"a":"1"}}`}, "yarn install", "yarn run start"},
		{"a lock file says more than what is said",
			map[string]string{"package.json": `{"packageManager":"yarn@4.1.0","scripts":{"start":"x"},"dependencies":{"a":"1"}}`, "pnpm-lock.yaml": ""}, "pnpm install --frozen-lockfile --prefer-offline", "pnpm run start"},
		{"a manager that nobody knows",
			map[string]string{"package.json": `{"packageManager":"; rm -rf /@1","scripts":{"preview":"x"}}`}, "",
			"npm run preview"},
		{"nothing to install", map[string]string{"package.json": "\ufeff" +
			`{"scripts":{"dev":" ","start":5,"preview":"x"}}`, "package-lock.json": "{}"}, "", "npm run preview"},
	} {
		install, start, err := browser.Server(reading(c.files))
		if err != nil || install != c.install || start != c.start {
			t.Errorf("%s: %q, %q, %v", c.name, install, start, err)
		}
	}
	for name, c := range map[string]struct{ manifest, want string }{
		"no script": {`{"scripts":{"build":"x"}}`, "no script dev, start, preview"},
		"broken":    {`{"scripts":`, "cannot read package.json"},
	} {
		if _, _, err := browser.Server(reading(map[string]string{"package.json": c.manifest})); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := browser.Server(reading(nil)); !errors.Is(err, browser.ErrNoServer) {
		t.Error(err)
	}
	broken := errors.New("broken")
	if _, _, err := browser.Server(func(string) ([]byte, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func reading(files map[string]string) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		text, ok := files[name]
		if !ok {
			return nil, fs.ErrNotExist
		}
		return []byte(text), nil
	}
}

func FuzzServer(f *testing.F) {
	f.Add([]byte(`{"packageManager":"pnpm@10.1.0","scripts":{"dev":"vite"},"dependencies":{"a":"1"}}`))
	f.Add([]byte(`{"scripts":{"dev":["x"],"start":"$(id)"}}`))
	f.Fuzz(func(t *testing.T, manifest []byte) {
		install, start, err := browser.Server(reading(map[string]string{"package.json": string(manifest)}))
		if err != nil {
			return
		}
		// Nothing of the file comes into a command line.
		words := strings.Fields(start)
		if len(words) != 3 || words[1] != "run" || !strings.Contains("dev start preview", words[2]) ||
			strings.ContainsAny(install+start, "'\"$;&|<>()`\n") {
			t.Errorf("%q, %q", install, start)
		}
	})
}
