//go:build ramusweb

package web

import (
	"embed"
	"io/fs"
)

//go:embed dist
var dist embed.FS

// builtAssets returns the files that `make web` built.
func builtAssets() *Assets {
	dir, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err)
	}
	a, err := ReadAssets(dir)
	if err != nil {
		panic(err)
	}
	return a
}
