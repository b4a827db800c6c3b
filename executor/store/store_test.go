package store_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/executor/store/storetest"
)

// described writes a content to a file and returns its entry of a manifest.
func described(t *testing.T, content string) (m record.ManifestFile, path string) {
	t.Helper()
	sum := sha256.Sum256([]byte(content))
	path = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return record.ManifestFile{Name: "artifacts/file", Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:]),
		Stored: true}, path
}

func read(ctx context.Context, s *store.Store, m record.ManifestFile) (string, error) {
	f, err := s.Open(ctx, m)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(f)
	return string(text), errors.Join(err, f.Close())
}

func TestStore(t *testing.T) {
	server := storetest.NewS3(t)
	s := &store.Store{Bucket: opened(t, server.Config())}
	m, path := described(t, strings.Repeat("content ", 1000))
	put := func() error { return s.Put(t.Context(), path, m.SHA256, m.Size) }
	if _, err := read(t.Context(), s, m); !errors.Is(err, record.ErrDamaged) {
		t.Errorf("what is not there: %v", err)
	}
	for range 3 {
		if err := put(); err != nil {
			t.Fatal(err)
		}
	}
	if n := server.Count("PUT"); n != 1 {
		t.Errorf("the same content is written %d times", n)
	}
	if got, err := read(t.Context(), s, m); err != nil || got != strings.Repeat("content ", 1000) {
		t.Errorf("%d bytes, %v", len(got), err)
	}

	key := "sha256/" + m.SHA256[:2] + "/" + m.SHA256
	for name, change := range map[string]func([]byte) []byte{
		"changed": func(b []byte) []byte { b[len(b)-1] = 'x'; return b },
		"short":   func(b []byte) []byte { return b[:100] },
		"long":    func(b []byte) []byte { return append(b, 'x') },
		"empty":   func([]byte) []byte { return []byte{} },
		"lost":    func([]byte) []byte { return nil },
	} {
		server.Change(key, change)
		fresh := &store.Store{Bucket: s.Bucket} // s has compared it before
		if _, err := read(t.Context(), fresh, m); !errors.Is(err, record.ErrDamaged) {
			t.Errorf("%s: %v, want %v", name, err, record.ErrDamaged)
		}
		if err := put(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := read(t.Context(), fresh, m); err != nil {
			t.Errorf("%s, and put again: %v", name, err)
		}
	}

	server.SetAway(true)
	if _, err := read(t.Context(), s, m); !errors.Is(err, record.ErrStoreAway) {
		t.Errorf("away: %v, want %v", err, record.ErrStoreAway)
	}
	if err := put(); err == nil || errors.Is(err, record.ErrDamaged) {
		t.Errorf("put while the service is away: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(record.ErrClosed)
	if _, err := read(ctx, s, m); !errors.Is(err, record.ErrClosed) || errors.Is(err, record.ErrStoreAway) {
		t.Errorf("an ended context: %v", err)
	}
	server.SetAway(false)
	if err := s.Put(t.Context(), path+".gone", strings.Repeat("0", 64), 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := s.Put(t.Context(), path, strings.Repeat("0", 64), m.Size+1); !errors.Is(err, record.ErrDamaged) {
		t.Errorf("a file that has become shorter: %v", err)
	}
}

// TestOpen finds the folder below a data folder, and the artifacts in it after the store has moved.
func TestOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "artifacts")
	elsewhere, _ := openFolder(t)
	s, err := store.Open(dir, elsewhere)
	if err != nil || s.Bucket != store.Bucket(elsewhere) || s.Earlier != nil {
		t.Fatalf("%+v, %v", s, err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("there is a folder, too")
	}

	if s, err = store.Open(dir, nil); err != nil || s.Earlier != nil {
		t.Fatalf("%+v, %v", s, err)
	}
	m, path := described(t, "content")
	if err := s.Put(t.Context(), path, m.SHA256, m.Size); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "sha256", m.SHA256[:2], m.SHA256)); err != nil {
		t.Error(err)
	}

	if s, err = store.Open(dir, elsewhere); err != nil {
		t.Fatal(err)
	}
	if got, err := read(t.Context(), s, m); err != nil || got != "content" {
		t.Errorf("%q, %v", got, err)
	}
	if err := s.Put(t.Context(), path, m.SHA256, m.Size); err != nil {
		t.Fatal(err)
	}
	var sums []string
	for o, err := range s.List(t.Context()) {
		if err != nil || o.Size != m.Size {
			t.Errorf("%+v, %v", o, err)
		}
		sums = append(sums, o.Key)
	}
	if !slices.Equal(sums, []string{m.SHA256, m.SHA256}) {
		t.Errorf("listed %q", sums)
	}
	later := time.Now().Add(48 * time.Hour)
	s.Now = func() time.Time { return later }
	if removed, err := s.Remove(t.Context(), m.SHA256); err != nil || !removed {
		t.Errorf("%t, %v", removed, err)
	}
	for o := range s.List(t.Context()) {
		t.Errorf("%+v is still there", o)
	}
}

// TestList lists contents only.
func TestList(t *testing.T) {
	b, _ := openFolder(t)
	s := &store.Store{Bucket: b}
	m, path := described(t, "content")
	if err := s.Put(t.Context(), path, m.SHA256, m.Size); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"cache/x/y", "sha256/other", "sha256/aa/bb"} {
		if err := b.Put(t.Context(), key, strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
	}
	for o, err := range s.List(t.Context()) {
		if err != nil || o.Key != m.SHA256 {
			t.Errorf("%+v, %v", o, err)
		}
	}
}

// TestRemove keeps the contents that a seal relies on.
func TestRemove(t *testing.T) {
	b, _ := openFolder(t)
	now := time.Now()
	s := &store.Store{Bucket: b, Now: func() time.Time { return now }}
	m, path := described(t, "content")
	if err := s.Put(t.Context(), path, m.SHA256, m.Size); err != nil {
		t.Fatal(err)
	}
	remove := func(want bool) {
		t.Helper()
		if removed, err := s.Remove(t.Context(), m.SHA256); err != nil || removed != want {
			t.Errorf("%t, %v; want %t", removed, err, want)
		}
	}
	remove(false)
	now = now.Add(24 * time.Hour)
	remove(false)
	s.Rely(m.SHA256)
	now = now.Add(time.Second)
	remove(false)
	now = now.Add(24 * time.Hour)
	remove(true)
	if _, err := read(t.Context(), s, m); !errors.Is(err, record.ErrDamaged) {
		t.Errorf("it is still there: %v", err)
	}
	remove(true)
}

// TestOpenFile reads files of git, which can only be read from their beginning.
func TestOpenFile(t *testing.T) {
	const content = "0123456789abcdefghijklmnopqrstuvwxyz"
	m, _ := described(t, content)
	opens := 0
	open := func() (io.ReadCloser, error) {
		opens++
		return io.NopCloser(iotest.OneByteReader(strings.NewReader(content))), nil
	}
	f, err := store.OpenFile(m, open)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(f); err != nil || string(text) != content || opens != 1 {
		t.Errorf("%q, %v, opened %d times", text, err, opens)
	}
	if err := errors.Join(f.Verify(), f.Close()); err != nil || opens != 1 {
		t.Errorf("%v, opened %d times", err, opens)
	}

	if f, err = store.OpenFile(m, open); err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{20, 30, 5, 0, 36, 7} {
		if _, err := f.Seek(at, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		part := make([]byte, 3)
		n, err := io.ReadFull(f, part)
		if want := content[at:min(at+3, 36)]; string(part[:n]) != want || (err == nil) != (want != "") {
			t.Errorf("at %d: %q, %v; want %q", at, part[:n], err, want)
		}
	}
	if at, err := f.Seek(-1, io.SeekStart); !errors.Is(err, record.ErrInvalid) {
		t.Errorf("%d, %v", at, err)
	}
	if at, err := f.Seek(-6, io.SeekEnd); err != nil || at != 30 {
		t.Errorf("%d, %v", at, err)
	}
	if rest, err := io.ReadAll(f); err != nil || string(rest) != content[30:] {
		t.Errorf("%q, %v", rest, err)
	}
	f.Close()
}

// TestFileDamaged never returns the last byte of a content that does not have its hash, nor any if it is not read in order.
func TestFileDamaged(t *testing.T) {
	content := strings.Repeat("0123456789", 100)
	m, _ := described(t, content)
	for name, damaged := range map[string]string{"changed": content[:999] + "x", "first": "x" + content[1:],
		"short": content[:500], "long": content + "x", "empty": ""} {
		open := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(damaged)), nil }
		for _, buffer := range []int{1, 7, 999, 1000, 2000} {
			f, err := store.OpenFile(m, open)
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			if _, err := io.CopyBuffer(&got, struct{ io.Reader }{f}, make([]byte, buffer)); !errors.Is(err,
				record.ErrDamaged) || got.Len() >= 1000 {
				t.Errorf("%s: %d bytes, %v", name, got.Len(), err)
			}
		}
		f, err := store.OpenFile(m, open)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Seek(10, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if n, err := f.Read(make([]byte, 10)); n != 0 || !errors.Is(err, record.ErrDamaged) {
			t.Errorf("%s, in the middle: %d bytes, %v", name, n, err)
		}
		if err := f.Verify(); !errors.Is(err, record.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	gone := errors.New("gone")
	if _, err := store.OpenFile(m, func() (io.ReadCloser, error) { return nil, gone }); !errors.Is(err, gone) {
		t.Error(err)
	}
}
