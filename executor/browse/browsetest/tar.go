// Package browsetest makes the archives that a browser's container sends, for the tests of the packages that read them.
package browsetest

import (
	"archive/tar"
	"bytes"
)

// Tar returns an archive with index as its index.json, unless index is empty, and the entries more before it. The
// content of an entry is its Uname.
func Tar(index string, more ...tar.Header) []byte {
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
