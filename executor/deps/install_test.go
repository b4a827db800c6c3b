package deps

import (
	"archive/tar"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gittest"
)

// TestWriteTree writes commits as tarballs, and one with a file too many as nothing.
func TestWriteTree(t *testing.T) {
	git := &gitd.Server{Root: t.TempDir()}
	if err := git.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := git.Close(); err != nil {
			t.Error(err)
		}
	})
	repo, err := git.Create(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	object := func(kind, content string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), "object")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(gittest.Run(t, repo.Dir(), "hash-object", "-w", "-t", kind, file))
	}
	commit := func(entries string) gitd.Hash {
		t.Helper()
		return gitd.Hash(object("commit", "tree "+object("tree", entries)+"\nauthor a <a@example.org> 1 +0000\ncommitter a <a@example.org> 1 +0000\n\nx\n"))
	}
	entry := func(mode, name, hash string) string {
		raw, err := hex.DecodeString(hash)
		if err != nil {
			t.Fatal(err)
		}
		return mode + " " + name + "\x00" + string(raw)
	}
	blob := object("blob", "text")

	var out bytes.Buffer
	small := commit(entry("100644", "a", blob) + entry("100755", "b", blob) + entry("40000", "d", object("tree", entry("120000", "l", blob))) +
		entry("160000", "s", strings.Repeat("1", 40)))
	if err := writeTree(t.Context(), repo, small, &out); err != nil {
		t.Fatal(err)
	}
	var got []string
	for in := tar.NewReader(&out); ; {
		h, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%c %o %s %q %q", h.Typeflag, h.Mode, h.Name, content, h.Linkname))
	}
	want := `0 644 ./a "text" ""` + "\n" + `0 755 ./b "text" ""` + "\n" + `2 0 ./d/l "" "text"`
	if list := strings.Join(got, "\n"); list != want {
		t.Errorf("the tarball has\n%s\nwant\n%s", list, want)
	}

	out.Reset()
	var entries strings.Builder
	for i := range sourceFiles + 1 {
		entries.WriteString(entry("160000", fmt.Sprintf("%06d", i), strings.Repeat("1", 40)))
	}
	if err := writeTree(t.Context(), repo, commit(entries.String()), &out); !errors.Is(err, ErrCannotFetch) || out.Len() > 0 {
		t.Errorf("a tarball of %d bytes, %v", out.Len(), err)
	}
}
