// Command release makes the parts of a release that no other tool makes. It is not the product.
//
//	release image BINARY RUNNER ARCH VERSION FILE    an OCI image as a tarball, which docker load takes, without a registry
//	release sbom BINARY FILE                  the modules of a program in the format of CycloneDX
//	release index VERSION DATE FOLDER         SHA256SUMS and version.json of the files in a folder
//
// The image has the program, and git, ssh, bubblewrap and certificates with the libraries that they need, from the
// packages of this Debian machine. So it is made for this machine's architecture alone.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 6 && args[0] == "image":
		return writeImage(args[1], args[2], args[3], args[4], args[5])
	case len(args) == 3 && args[0] == "sbom":
		return writeSBOM(args[1], args[2])
	case len(args) == 4 && args[0] == "index":
		return writeIndex(args[1], args[2], args[3])
	}
	return errors.New("usage: release image BINARY RUNNER ARCH VERSION FILE | sbom BINARY FILE | index VERSION " +
		"DATE FOLDER")
}

// component is a module, in the words of CycloneDX.
type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl,omitempty"`
}

// writeSBOM lists the modules that the Go tool has recorded in a program.
func writeSBOM(binary, file string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("cannot read the modules of %s: %w", binary, err)
	}
	purl := func(path, version string) string { return "pkg:golang/" + path + "@" + version }
	list := []component{{"library", "stdlib", info.GoVersion, purl("std", info.GoVersion)}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		list = append(list, component{"library", m.Path, m.Version, purl(m.Path, m.Version)})
	}
	return writeJSON(file, map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
		"metadata":   map[string]any{"component": component{"application", info.Main.Path, info.Main.Version, ""}},
		"components": list,
	})
}

// entry is a file of a release.
type entry struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// writeIndex writes SHA256SUMS, as sha256sum reads it, and version.json.
func writeIndex(version, date, dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var (
		list []entry
		sums string
	)
	for _, f := range files {
		if !f.Type().IsRegular() || f.Name() == "SHA256SUMS" || f.Name() == "version.json" {
			continue
		}
		e, err := describe(filepath.Join(dir, f.Name()))
		if err != nil {
			return err
		}
		list = append(list, e)
		sums += e.SHA256 + "  " + e.Name + "\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums), 0o644); err != nil {
		return err
	}
	return writeJSON(filepath.Join(dir, "version.json"), map[string]any{"version": version, "date": date, "files": list})
}

func describe(name string) (entry, error) {
	f, err := os.Open(name)
	if err != nil {
		return entry{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	return entry{filepath.Base(name), n, hex.EncodeToString(h.Sum(nil))}, err
}

func writeJSON(name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(b, '\n'), 0o644)
}
