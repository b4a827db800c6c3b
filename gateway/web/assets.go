package web

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"strings"

	"github.com/ramus-dev/ramus/gateway/route"
)

// assetsPath is the path of the files that pages load. The hash of a file is in its name, so that a browser never asks for it again.
const assetsPath = "/assets/"

// Assets are the files that pages load, from a build with the tag ramusweb, or the style sheet alone.
type Assets struct {
	files      map[string][]byte
	names      map[string]string // with the hash, by the name without it
	missing    []string
	incomplete string
}

// howToBuild is the note on pages of a build without scripts.
const howToBuild = "This program was built without the scripts of its pages, so they do not update by themselves. `make build` adds them."

// ReadAssets returns the files of a build in a folder, see internal/webbuild.
func ReadAssets(dir fs.FS) (*Assets, error) {
	a := &Assets{files: map[string][]byte{}}
	entries, err := fs.ReadDir(dir, ".")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if a.files[e.Name()], err = fs.ReadFile(dir, e.Name()); err != nil {
			return nil, err
		}
	}
	var manifest struct {
		Files   map[string]string `json:"files"`
		Missing []string          `json:"missing"`
	}
	if err := json.Unmarshal(a.files["manifest.json"], &manifest); err != nil {
		return nil, fmt.Errorf("cannot read the list of built files: %w", err)
	}
	delete(a.files, "manifest.json")
	a.names, a.missing = manifest.Files, manifest.Missing
	return a, nil
}

// path returns the path of a file by its name without the hash, and "" if there is none.
func (a *Assets) path(address, name string) string {
	if file := a.names[name]; file != "" {
		return address + assetsPath + file
	}
	return ""
}

// Has reports whether a file was built, by its name without the hash ("term.js").
func (a *Assets) Has(name string) bool { return a.names[name] != "" }

// Built reports whether this program was built with the scripts of its pages, and with that of the terminal.
func Built() (scripts, terminal bool) {
	a := builtAssets()
	return a.Has("app.js"), a.Has("term.js")
}

// asset serves one file.
func (sh *shell) asset(c *route.Call) error {
	name := c.R.PathValue("file")
	b, ok := sh.assets.files[name]
	if !ok || strings.HasSuffix(name, ".gz") {
		return route.NotFound("file", name)
	}
	h := c.W.Header()
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Content-Type", route.MediaType(name))
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Add("Vary", "Accept-Encoding")
	if packed := sh.assets.files[name+".gz"]; packed != nil && strings.Contains(c.R.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		b = packed
	}
	h.Set("Content-Length", fmt.Sprint(len(b)))
	c.W.WriteHeader(http.StatusOK)
	_, err := c.W.Write(b)
	return err
}
