//go:build !ramusweb

package web

import (
	"embed"
	"regexp"

	"github.com/ramus-dev/ramus/gateway/live"
)

//go:embed style static
var sources embed.FS

var imported = regexp.MustCompile(`@import "\./([a-z_]+\.css)";`)

// builtAssets returns the style sheet as it is in the sources, because the build has nothing else.
func builtAssets() *Assets {
	read := func(name string) []byte {
		b, err := sources.ReadFile(name)
		if err != nil {
			panic(err)
		}
		return b
	}
	style := imported.ReplaceAllFunc(read("style/app.css"), func(line []byte) []byte {
		return read("style/" + string(imported.FindSubmatch(line)[1]))
	})
	name := "app." + live.Hash(string(style)) + ".css"
	return &Assets{files: map[string][]byte{name: style, "icon.svg": read("static/icon.svg")},
		names: map[string]string{"app.css": name, "icon.svg": "icon.svg"}, missing: []string{"app.js"},
		incomplete: howToBuild}
}
