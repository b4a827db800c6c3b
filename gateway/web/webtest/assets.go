package webtest

import (
	"testing/fstest"

	"github.com/ramus-dev/ramus/gateway/web"
)

// Assets returns the built files of pages, by name, as a server has them.
func Assets(t T, built map[string][]byte) *web.Assets {
	t.Helper()
	files := fstest.MapFS{}
	for name, b := range built {
		files[name] = &fstest.MapFile{Data: b}
	}
	a, err := web.ReadAssets(files)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
