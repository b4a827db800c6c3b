// Command webbuild bundles the sources of gateway/web into gateway/web/dist, from where a build with the tag ramusweb takes them.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/ramus-dev/ramus/internal/webbuild/bundle"
)

func main() {
	dir := filepath.Join("gateway", "web")
	out, err := bundle.Build(dir)
	if err == nil {
		err = out.Write(filepath.Join(dir, "dist"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "webbuild:", err)
		os.Exit(1)
	}
	for _, name := range slices.Sorted(maps.Keys(out.Manifest.Files)) {
		fmt.Printf("%-10s %6d bytes after gzip\n", name, out.Manifest.Sizes[name])
	}
	for _, name := range out.Manifest.Missing {
		fmt.Printf("%-10s left out: `npm ci` in %s brings its packages\n", name, dir)
	}
}
