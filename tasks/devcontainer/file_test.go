package devcontainer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/internal/growth"
)

func TestParse(t *testing.T) {
	f, err := Parse(Path, []byte("\ufeff"+`// The container of our developers.
{
	"name": "app", /* "image": "no", */
	"build": { "dockerfile": "Dockerfile", "context": "..", "args": {"VARIANT": "a//b"}, "options": ["--privileged"], },
	"features": { "ghcr.io/devcontainers/features/node:1": {"version": "22"}, "./tool": {}, },
	"containerEnv": {"A": "1", "FOLDER": "${containerWorkspaceFolder}/x", "HOST": "${localEnv:SECRET:none}", "GONE": "2"},
	"remoteEnv": {"A": "${localEnv:SECRET}", "PATH": "${containerEnv:PATH}:/x", "GONE": null},
	"onCreateCommand": ["echo", "it's"],
	"postCreateCommand": {"b": "npm ci", "a": ["make", "tools"]},
	"forwardPorts": [3000, "localhost:5432", "db:5432"],
	"mounts": ["source=/,target=/host,type=bind"], "privileged": true, "runArgs": ["--network=host"], "capAdd": ["SYS_ADMIN"],
	"securityOpt": ["seccomp=unconfined"], "initializeCommand": "rm -rf ~", "remoteUser": "node",
	"customizations": {"vscode": {"extensions": []}},
}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := File{
		Path: Path, Build: &Build{Dockerfile: ".devcontainer/Dockerfile", Context: ".",
			Args: map[string]string{"VARIANT": "a//b"}},
		Features: map[string]json.RawMessage{"ghcr.io/devcontainers/features/node:1": json.RawMessage(`{"version": "22"}`), "./tool": json.RawMessage(`{}`)},
		Env:      []string{"A=", "FOLDER=" + workDir + "/x", "HOST=none"},
		Commands: []string{`'echo' 'it'\''s'`, "'make' 'tools'", "npm ci"},
		Ports:    []int{3000, 5432},
		Refused:  []string{"build.options", "capAdd", "initializeCommand", "mounts", "privileged", "runArgs", "securityOpt"},
		Ignored:  []string{"remoteEnv.PATH", "forwardPorts.db:5432", "remoteUser"},
	}
	if !reflect.DeepEqual(f, want) {
		t.Errorf("got  %+v\nwant %+v", f, want)
	}
	config := string(f.Config())
	if !strings.Contains(config, `"context":"../."`) ||
		!strings.Contains(config, `"dockerfile":"../.devcontainer/Dockerfile"`) || strings.Contains(config, "mounts") {
		t.Errorf("the builder gets %s", config)
	}
	if f, err := Parse("devcontainer.json", []byte(`{"image": "debian:12"}`)); err != nil || f.Image != "debian:12" || f.Builds() {
		t.Errorf("an image: %+v, %v", f, err)
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     ":1:1: the file ends too early",
		"[]":                                   "must be an object",
		"{\n  \"image\": }":                    ":2:12: this is not JSON",
		"{\"image\": \"a\"} {}":                "after top-level value",
		"{\"image\": \"a\", \"image\": \"b\"}": "is there twice",
		"{ /* ":                                ":1:3: this comment does not end",
		"{ \"a\n\"":                            ":1:3: this text does not end",
		"{}":                                   "neither image nor",
		`{"image": 5}`:                         "image cannot be a JSON number",
		`{"image": "-x"}`:                      "cannot be the name of an image",
		`{"dockerComposeFile": "a.yml"}`:       "not supported",
		`{"build": {"dockerfile": "../../x"}}`: "is not in the repository",
		`{"build": {"dockerfile": "/etc/shadow"}}`:                      "is not in the repository",
		`{"build": {"dockerfile": "D", "context": "../../.."}}`:         "is not in the repository",
		`{"build": {"dockerfile": "D", "context": "${localEnv:HOME}"}}`: "is not in the repository",
		`{"build": {"dockerfile": "D", "args": {"A B": "x"}}}`:          "is not possible",
		`{"build": {"dockerfile": "D", "target": "--x"}}`:               "is not possible",
		`{"image": "a", "features": {"../../x": {}}}`:                   "is not in the repository",
		`{"image": "a", "features": {"../x": {}}}`:                      "is not in the folder",
		`{"image": "a", "features": {"a b": {}}}`:                       "cannot be the name of a feature",
		`{"image": "a", "features": {"a": {"b": [1]}}}`:                 "must be text",
		`{"image": "a", "containerEnv": {"RAMUS_X": "1"}}`:              "cannot be set",
		`{"image": "a", "forwardPorts": [70000]}`:                       "is not a port",
		`{"image": "a", "postCreateCommand": 5}`:                        "postCreateCommand: want text",
		strings.Repeat("[", 20) + strings.Repeat("]", 20):               "nested more than",
		"{\"a\": [" + strings.Repeat("1,", 3000) + "1]}":                "more than 2000 values",
		strings.Repeat(" ", MaxBytes+1):                                 "bytes; it may have",
		"{\"image\": \"a\xff\"}":                                        "not UTF-8",
	} {
		if _, err := Parse(Path, []byte(text)); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), Path+":") {
			t.Errorf("%.60q: got %v, want %q", text, err, want)
		}
	}
}

// TestBounds checks values at their bounds.
func TestBounds(t *testing.T) {
	text := func(n int) string { return strings.Repeat("x", n) }
	list := func(n int, item string) string {
		var items []string
		for i := range n {
			items = append(items, strings.ReplaceAll(item, "#", fmt.Sprint(i)))
		}
		return strings.Join(items, ", ")
	}
	for name, tt := range map[string][2]string{ // what is possible, and the first that is not
		"arguments of a build": {`"build": {"dockerfile": "D", "args": {` + list(maxItems, `"A#": ""`) + `}}`,
			`"build": {"dockerfile": "D", "args": {` + list(maxItems+1, `"A#": ""`) + `}}`},
		"an argument of a build": {`"build": {"dockerfile": "D", "args": {"A": "` + text(maxText) + `"}}`,
			`"build": {"dockerfile": "D", "args": {"A": "` + text(maxText+1) + `"}}`},
		"no argument of a build": {`"build": {"dockerfile": "D", "args": {"A": ""}}`,
			`"build": {"dockerfile": "D", "args": {"A": null}}`},
		"target": {`"build": {"dockerfile": "D", "target": "a"}`,
			`"build": {"dockerfile": "D", "target": "a b"}`},
		"context": {`"build": {"dockerfile": "D", "context": ".."}`,
			`"build": {"dockerfile": "D", "context": "../.."}`},
		"features": {`"image": "a", "features": {` + list(maxItems, `"f#": {}`) + `}`,
			`"image": "a", "features": {` + list(maxItems+1, `"f#": {}`) + `}`},
		"order": {`"image": "a", "overrideFeatureInstallOrder": [` + list(maxItems, `"f"`) + `]`,
			`"image": "a", "overrideFeatureInstallOrder": [` + list(maxItems+1, `"f"`) + `]`},
		"own features": {`"image": "a", "features": {"./f": {}}`, `"image": "a", "features": {"/f": {}}`},
		"options": {`"image": "a", "features": {"f": "1", "g": true, "h": {"a": "b", "c": false}}`,
			`"image": "a", "features": {"f": 1}`},
		"option": {`"image": "a", "features": {"f": {"a": "1"}}`,
			`"image": "a", "features": {"f": {"a": 1}}`},
		"variables": {`"image": "a", "containerEnv": {` + list(maxItems, `"A#": ""`) + `}`,
			`"image": "a", "containerEnv": {` + list(maxItems+1, `"A#": ""`) + `}`},
		"remote variables": {`"image": "a", "remoteEnv": {` + list(maxItems, `"A#": ""`) + `}`,
			`"image": "a", "remoteEnv": {` + list(maxItems+1, `"A#": ""`) + `}`},
		"variable": {`"image": "a", "containerEnv": {"A": "` + text(maxText) + `"}`,
			`"image": "a", "containerEnv": {"A": "` + text(maxText+1) + `"}`},
		"NUL": {`"image": "a", "containerEnv": {"A": "\u0001"}`,
			`"image": "a", "containerEnv": {"A": "\u0000"}`},
		"own variable": {`"image": "a", "containerEnv": {"RAMUS": ""}`,
			`"image": "a", "containerEnv": {"RAMUS_": ""}`},
		"no name": {`"image": "a", "containerEnv": {"a_1": ""}`, `"image": "a", "containerEnv": {"a-1": ""}`},
		"command": {`"image": "a", "onCreateCommand": "` + text(maxCommand) + `"`,
			`"image": "a", "onCreateCommand": "` + text(maxCommand+1) + `"`},
		"NUL in a command": {`"image": "a", "onCreateCommand": ["\u0001"]`,
			`"image": "a", "onCreateCommand": ["\u0000"]`},
		"arguments": {`"image": "a", "onCreateCommand": [` + list(maxItems, `"a"`) + `]`,
			`"image": "a", "onCreateCommand": [` + list(maxItems+1, `"a"`) + `]`},
		"argument": {`"image": "a", "onCreateCommand": ["a"]`, `"image": "a", "onCreateCommand": [5]`},
		"commands": {`"image": "a", "onCreateCommand": {` + list(maxItems, `"c#": "a"`) + `}`,
			`"image": "a", "onCreateCommand": {` + list(maxItems+1, `"c#": "a"`) + `}`},
		"command of many": {`"image": "a", "onCreateCommand": {"a": "b"}`,
			`"image": "a", "onCreateCommand": {"a": 5}`},
		"ports": {`"image": "a", "forwardPorts": [` + list(maxItems, "80") + `]`,
			`"image": "a", "forwardPorts": [` + list(maxItems+1, "80") + `]`},
		"port":    {`"image": "a", "forwardPorts": [1, 65535]`, `"image": "a", "forwardPorts": [65536]`},
		"no port": {`"image": "a", "forwardPorts": [1]`, `"image": "a", "forwardPorts": [0]`},
		"file": {`"image": "a"` + strings.Repeat(" ", MaxBytes-14),
			`"image": "a"` + strings.Repeat(" ", MaxBytes-13)},
	} {
		if _, err := Parse(Path, []byte("{"+tt[0]+"}")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Parse(Path, []byte("{"+tt[1]+"}")); err == nil {
			t.Errorf("%s: no mistake", name)
		}
	}
}

// TestConfig checks which part of a file the builder of the image gets.
func TestConfig(t *testing.T) {
	for _, tt := range []struct {
		at, text string
		builds   bool
		want     string
	}{
		{"devcontainer.json", `{"image": "a", "forwardPorts": [80]}`, false, `{"image":"a"}`},
		{"devcontainer.json", `{"image": "a", "features": {"f": {}}, "overrideFeatureInstallOrder": ["f"]}`, true,
			`{"features":{"f":{}},"image":"a","overrideFeatureInstallOrder":["f"]}`},
		{"devcontainer.json", `{"dockerFile": "D", "context": "x"}`, true,
			`{"build":{"args":{},"context":"x","dockerfile":"D"}}`},
		{"devcontainer.json", `{"image": "a", "build": {}}`, false, `{"image":"a"}`},
		{Path, `{"build": {"dockerfile": "D", "target": "dev", "args": {"A": "${localEnv:B:c}"}}}`, true,
			`{"build":{"args":{"A":"c"},"context":"../.devcontainer","dockerfile":"../.devcontainer/D","target":"dev"}}`},
		{"a/b/devcontainer.json", `{"build": {"dockerfile": "D", "context": ".."}}`, true,
			`{"build":{"args":{},"context":"../../a","dockerfile":"../../a/b/D"}}`},
	} {
		f, err := Parse(tt.at, []byte(tt.text))
		if err != nil || f.Builds() != tt.builds || string(f.Config()) != tt.want {
			t.Errorf("%s: builds %v, %s, %v", tt.text, f.Builds(), f.Config(), err)
		}
	}
}

// TestValues checks commands, ports and unknown keys.
func TestValues(t *testing.T) {
	f, err := Parse(Path, []byte(`{"image": "a", "onCreateCommand": "", "updateContentCommand": {"b": "", "a": "x"}, "postCreateCommand": null,
		"containerEnv": {"A": "${devcontainerId} ${localWorkspaceFolderBasename} ${containerEnv:B}", "B": "${devcontainerId}"},
		"forwardPorts": ["127.0.0.1:80", "localhost:81", "82", "db:83"], "`+strings.Repeat("é", 61)+`": 1}`))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(f.Commands, []string{"x"}) || !slices.Equal(f.Ports, []int{80, 81, 82}) || !slices.Equal(f.Env, []string{"B=ramus"}) {
		t.Errorf("%q, %v, %q", f.Commands, f.Ports, f.Env)
	}
	if want := []string{"containerEnv.A", "forwardPorts.db:83", strings.Repeat("é", 60) + "…"}; !slices.Equal(f.Ignored, want) {
		t.Errorf("ignored %q, want %q", f.Ignored, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"image": "a", /* c */ "features": {"./x": {}}, "postCreateCommand": ["a", "b"], } // end`))
	f.Add([]byte(`{"build": {"dockerfile": "D", "context": ".."}, "remoteEnv": {"A": "${localEnv:B:c}"}}`))
	f.Add([]byte("{\"a\": \"\\\"//\"}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if std, err := standardize(text); err == nil && !json.Valid(std) {
			t.Errorf("%q is not JSON", std)
		}
		if json.Valid(text) {
			// JSON is left as it is.
			if std, err := plain(text); err != nil || !bytes.Equal(std, text) {
				t.Errorf("%q became %q: %v", text, std, err)
			}
		}
		file, err := Parse(Path, text)
		if err != nil {
			return
		}
		if file.Build != nil {
			for _, p := range []string{file.Build.Dockerfile, file.Build.Context} {
				if path.IsAbs(p) || path.Clean(p) != p || p == ".." || strings.HasPrefix(p, "../") {
					t.Errorf("%q leaves the repository", p)
				}
			}
		}
		again, err := Parse(Path, file.Config())
		if err != nil || !reflect.DeepEqual(again.Build, file.Build) || again.Image != file.Image ||
			len(again.Features) != len(file.Features) {
			t.Errorf("%s is read as %+v, %v; was %+v", file.Config(), again, err, file)
		}
	})
}

func TestParseGrowth(t *testing.T) {
	growth.Check(t, "devcontainer.json", func(text []byte) { _, _ = Parse(Path, text) },
		growth.Tokens("[", "{\"a\":", "/*", "//\n", "\"", ",", "1,", "\\")...)
}
