package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRun runs the real go command on a small module that has a test of each kind.
func TestRun(t *testing.T) {
	module := func(files map[string]string) string {
		dir := t.TempDir()
		files["go.mod"] = "module example.test/m\n\ngo 1.25\n"
		for name, text := range files {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	pass := "package a\nimport \"testing\"\nfunc TestA(t *testing.T) { t.Run(\"sub\", func(t *testing.T) {}) }\n"
	for _, test := range []struct {
		name  string
		ci    string
		files map[string]string
		args  []string
		code  int
		want  []string // each in the output
		last  string
	}{{
		name:  "all pass",
		files: map[string]string{"a/a_test.go": pass},
		want:  []string{"ok    example.test/m/a "},
		last:  "2 passed, 0 failed, 0 skipped",
	}, {
		name: "a test fails",
		files: map[string]string{
			"a/a_test.go": pass,
			"b/b_test.go": "package b\nimport \"testing\"\nfunc TestB(t *testing.T) { t.Log(\"a hint\"); t.Fatal(\"the cause\") }\nfunc TestC(t *testing.T) { t.Log(\"not shown\") }\n",
		},
		code: 1,
		want: []string{"--- FAIL: example.test/m/b TestB", "a hint", "the cause", "\nfailed:\n  example.test/m/b TestB\n"},
		last: "3 passed, 1 failed, 0 skipped",
	}, {
		name:  "no build",
		files: map[string]string{"a/a_test.go": pass, "b/b_test.go": "package b\nimport \"testing\"\nfunc TestB(t *testing.T) { undefined() }\n"},
		code:  1,
		want:  []string{"undefined: undefined", "FAIL  example.test/m/b: does not build"},
		last:  "2 passed, 1 failed, 0 skipped",
	}, {
		name:  "dies in a test",
		files: map[string]string{"b/b_test.go": "package b\nimport (\"testing\"; \"os\")\nfunc TestA(t *testing.T) {}\nfunc TestB(t *testing.T) { println(\"last words\"); os.Exit(3) }\n"},
		code:  1,
		want:  []string{"last words", "example.test/m/b TestB"},
		last:  "1 passed, 1 failed, 0 skipped",
	}, {
		name:  "dies outside of a test",
		files: map[string]string{"b/b_test.go": "package b\nimport (\"testing\"; \"os\")\nfunc TestA(t *testing.T) {}\nfunc TestMain(m *testing.M) { m.Run(); println(\"leak found\"); os.Exit(1) }\n"},
		code:  1,
		want:  []string{"leak found", "example.test/m/b: failed outside of a test"},
		last:  "1 passed, 1 failed, 0 skipped",
	}, {
		name: "skips are named",
		files: map[string]string{"b/b_test.go": "package b\nimport \"testing\"\n" +
			"func TestB(t *testing.T) { t.Skip(\"cannot run here: there is no frobnicator\") }\nfunc TestC(t *testing.T) { t.Skip(\"only with -long\") }\n"},
		want: []string{"\ncannot run here: there is no frobnicator\n  example.test/m/b TestB\n", "\nskipped:\n  example.test/m/b TestC: only with -long\n"},
		last: "0 passed, 0 failed, 2 skipped",
	}, {
		name:  "in CI what cannot run is a failure",
		ci:    "true",
		files: map[string]string{"a/a_test.go": pass, "b/b_test.go": "package b\nimport \"testing\"\nfunc TestB(t *testing.T) { t.Skip(\"cannot run here: there is no frobnicator\") }\n"},
		code:  1,
		want:  []string{"CI is set and 1 tests cannot run on this machine"},
		last:  "2 passed, 0 failed, 1 skipped",
	}, {
		name:  "no packages",
		files: map[string]string{"a/a_test.go": pass},
		args:  []string{"./missing"},
		code:  1,
		last:  "0 passed, 1 failed, 0 skipped",
	}} {
		t.Run(test.name, func(t *testing.T) {
			t.Chdir(module(test.files))
			t.Setenv("CI", test.ci)
			t.Setenv("GOFLAGS", "")
			var out bytes.Buffer
			code, err := run(context.Background(), test.args, &out)
			if err != nil {
				t.Fatal(err)
			}
			if code != test.code {
				t.Errorf("exit status %d, want %d", code, test.code)
			}
			for _, want := range test.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q", want)
				}
			}
			if strings.Contains(out.String(), "not shown") {
				t.Error("a passing test's output is shown")
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if last := lines[len(lines)-1]; last != test.last {
				t.Errorf("last line %q, want %q", last, test.last)
			}
			if t.Failed() {
				t.Logf("output:\n%s", out.String())
			}
		})
	}
}

func TestOutputIsBounded(t *testing.T) {
	var out bytes.Buffer
	r := &report{out: &out}
	chunk := strings.Repeat("x", 1<<10)
	for range 5 << 10 {
		r.add(event{Action: "output", Package: "p", Test: "T", Output: chunk})
	}
	if size := cap(r.output[testName{"p", "T"}].text); size > 8*keep {
		t.Errorf("%d bytes are kept", size)
	}
	r.add(event{Action: "output", Package: "p", Test: "T", Output: "the end"})
	r.add(event{Action: "fail", Package: "p", Test: "T"})
	if !strings.HasSuffix(out.String(), "the end") || !strings.Contains(out.String(), "are left out") {
		t.Errorf("%d bytes were printed, without the end or without saying so", out.Len())
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"Action":"run","Package":"p","Test":"T"}` + "\n" + `{"Action":"fail","Package":"p"}` + "\n"))
	f.Add([]byte("not json\n{\n{\"Action\":\"skip\",\"Test\":\"T\"}"))
	f.Add([]byte(`{"Action":"fail","Package":"p","FailedBuild":"q"}`))
	f.Fuzz(func(t *testing.T, stream []byte) {
		var out bytes.Buffer
		r := &report{out: &out}
		if err := r.read(bytes.NewReader(stream)); err != nil {
			t.Fatal(err)
		}
		ended := 0
		for line := range bytes.Lines(stream) {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action == "fail" && len(line) > 0 && line[0] == '{' {
				ended++
			}
		}
		if code := r.end(false); ended > 0 && code != 1 {
			t.Errorf("%d failures in the stream, exit status %d", ended, code)
		}
	})
}
