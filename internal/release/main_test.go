package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestIndex(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "b"), []byte("b"), 0o600),
		os.WriteFile(filepath.Join(dir, "a"), []byte("a"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time its own files are there
		if err := run([]string{"index", "v1.2.3", "2026-05-04", dir}); err != nil {
			t.Fatal(err)
		}
	}
	var got struct {
		Version string
		Files   []entry
	}
	b, err := os.ReadFile(filepath.Join(dir, "version.json"))
	if err != nil || json.Unmarshal(b, &got) != nil || got.Version != "v1.2.3" || len(got.Files) != 2 || got.Files[0].Name != "a" {
		t.Errorf("%s, %v", b, err)
	}
	cmd := exec.Command("sha256sum", "-c", "SHA256SUMS")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestSBOM(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sbom.json")
	if err := run([]string{"sbom", os.Args[0], file}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(b), `"bomFormat": "CycloneDX"`) || !strings.Contains(string(b), `"name": "stdlib"`) {
		t.Errorf("%s, %v", b, err)
	}
}

// TestImage makes an image of this machine's packages. Its layers have each path once, and the program.
func TestImage(t *testing.T) {
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skipf("cannot run here: %v", err)
	}
	if err := exec.Command("dpkg", append([]string{"-L"}, packages...)...).Run(); err != nil {
		t.Skipf("cannot run here: a package of the image is not installed: %v", err)
	}
	dir := t.TempDir()
	program, file := filepath.Join(dir, "ramus"), filepath.Join(dir, "image.tar")
	if err := os.WriteFile(program, []byte("the program"), 0o755); err != nil {
		t.Fatal(err)
	}
	runner := filepath.Join(dir, "runner")
	if err := os.WriteFile(runner, []byte("the runner"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"image", program, runner, "amd64", "v1", file}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	files := read(t, b)
	var list []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(files["manifest.json"], &list); err != nil || len(list) != 1 || len(list[0].Layers) != 2 ||
		files[list[0].Config] == nil {
		t.Fatalf("%s, %v", files["manifest.json"], err)
	}
	system, own := read(t, files[list[0].Layers[0]]), read(t, files[list[0].Layers[1]])
	for _, name := range []string{"usr/bin/git", "usr/bin/bwrap", "usr/bin/ssh", "etc/ssl/certs/ca-certificates.crt", "bin", "tmp/"} {
		if _, ok := system[name]; !ok {
			t.Errorf("the image has no %s", name)
		}
	}
	if string(own["usr/bin/ramus"]) != "the program" || string(own["ramus-runner"]) != "the runner" {
		t.Error("the image has no ramus")
	}
}

// read returns the entries of a tarball, each of which has a name of its own.
func read(t *testing.T, b []byte) map[string][]byte {
	t.Helper()
	files := make(map[string][]byte)
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		if _, twice := files[h.Name]; twice {
			t.Errorf("%s is there twice", h.Name)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}
