package gitd

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// FuzzParseBundle parses headers of bundles from outside. The refs of an accepted one have names and objects that git accepts,
// each name once. A header that is written from them has the same refs, and the pack comes directly after it.
func FuzzParseBundle(f *testing.F) {
	one, two := strings.Repeat("a", 40), strings.Repeat("b", 40)
	f.Add([]byte(bundleSignature + one + " HEAD\n" + one + " refs/heads/main\n" + two + " refs/ramus/export/run-otter\n\nPACK"))
	f.Add([]byte(bundleSignature + "-" + one + " needed\n" + two + " refs/heads/main\n\nPACK"))
	f.Add([]byte("# v3 git bundle\n@object-format=sha256\n" + strings.Repeat("c", 64) + " refs/heads/main\n\n"))
	f.Add([]byte(bundleSignature + one + " refs/heads/../main\n\n"))
	f.Add([]byte(bundleSignature + one + " refs/heads/main\r\n\n"))
	f.Add([]byte(bundleSignature + one + " refs/heads/main"))
	f.Fuzz(func(t *testing.T, text []byte) {
		in := bufio.NewReader(bytes.NewReader(text))
		refs, err := ParseBundle(in)
		if err != nil {
			if !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrTooLarge) {
				t.Errorf("the error is %v", err)
			}
			return
		}
		header := []byte(bundleSignature)
		names := make(map[string]bool)
		for _, r := range refs {
			if r.Name != "HEAD" && CheckRef(r.Name) != nil || CheckHash(r.Hash) != nil || names[r.Name] {
				t.Errorf("the ref is %q at %q", r.Name, r.Hash)
			}
			names[r.Name] = true
			header = fmt.Appendf(header, "%s %s\n", r.Hash, r.Name)
		}
		pack, err := io.ReadAll(in)
		if err != nil || !bytes.Equal(slices.Concat(header, []byte("\n"), pack), text) {
			t.Errorf("%q and %q are not %q, %v", header, pack, text, err)
		}
	})
}
