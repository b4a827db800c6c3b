package browse

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/ramus-dev/ramus/executor/browse/browsetest"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// FuzzUnpackBrowser checks that nothing but files of the layout is unpacked.
func FuzzUnpackBrowser(f *testing.F) {
	f.Add(browsetest.Tar(`{}`, tar.Header{Name: "mobile/aria.yml", Uname: "abc"}))
	f.Add(browsetest.Tar(``, tar.Header{Name: "../x"}))
	f.Add(browsetest.Tar(``, tar.Header{Name: "mobile/screenshot.png", Typeflag: tar.TypeSymlink, Linkname: "/"}))
	f.Fuzz(func(t *testing.T, text []byte) {
		above := t.TempDir()
		dir := filepath.Join(above, "raw")
		_ = unpack(bytes.NewReader(text), dir, []browser.Viewport{browser.Mobile})
		err := filepath.WalkDir(above, func(name string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			in, err := filepath.Rel(dir, name)
			if base := filepath.Base(in); err != nil || !e.Type().IsRegular() || in != "index.json" && in != filepath.Join("mobile", base) {
				t.Errorf("%q was unpacked, %v", in, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
