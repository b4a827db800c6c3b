package browse

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/ramus-dev/ramus/tasks/browser"
)

// tarOf returns a tar with an index and more.
func tarOf(index string, more ...tar.Header) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	put := func(h tar.Header, text []byte) {
		if h.Size = int64(len(text)); h.Typeflag != 0 && h.Typeflag != tar.TypeReg {
			h.Size, text = 0, nil
		}
		h.Mode = 0o644
		if err := w.WriteHeader(&h); err != nil {
			panic(err)
		}
		if _, err := w.Write(text); err != nil {
			panic(err)
		}
	}
	for _, h := range more {
		put(h, []byte(h.Uname)) // a field that no check reads carries the content
	}
	if index != "" {
		put(tar.Header{Name: "index.json"}, []byte(index))
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// FuzzUnpackBrowser checks that nothing but files of the layout is unpacked.
func FuzzUnpackBrowser(f *testing.F) {
	f.Add(tarOf(`{}`, tar.Header{Name: "mobile/aria.yml", Uname: "abc"}))
	f.Add(tarOf(``, tar.Header{Name: "../x"}))
	f.Add(tarOf(``, tar.Header{Name: "mobile/screenshot.png", Typeflag: tar.TypeSymlink, Linkname: "/"}))
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
