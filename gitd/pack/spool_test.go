package pack

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSpool stores bodies in memory and in a file, and reads each twice.
func TestSpool(t *testing.T) {
	for _, c := range []struct {
		name   string
		sizes  []int // of the writes
		memory bool
	}{
		{"nothing", nil, true},
		{"most in memory", []int{SpoolMemory - 1, 1}, true},
		{"one byte more", []int{SpoolMemory, 1}, false},
		{"more in one write", []int{SpoolMemory + 1}, false},
		{"writes after the file was made", []int{SpoolMemory, 10, 20}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			s := &Spool{Dir: dir}
			defer s.Close()
			var want []byte
			for i, size := range c.sizes {
				part := bytes.Repeat([]byte{byte('a' + i)}, size)
				if n, err := s.Write(part); n != size || err != nil {
					t.Fatalf("%d bytes of %d, %v", n, size, err)
				}
				want = append(want, part...)
			}
			for range 2 {
				r, err := s.Reader()
				if err != nil {
					t.Fatal(err)
				}
				if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d bytes, want %d, %v", len(got), len(want), err)
				}
			}
			if b, ok := s.Bytes(); ok != c.memory || ok && !bytes.Equal(b, want) || !ok && b != nil {
				t.Errorf("in memory: %t, %d bytes", ok, len(b))
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("the folder has %v, %v", left, err)
			}
			s.Close()
			if _, err := s.Reader(); (err == nil) != c.memory {
				t.Errorf("after Close: %v", err)
			}
		})
	}
	none := &Spool{Dir: filepath.Join(t.TempDir(), "none")}
	if _, err := none.Write(make([]byte, SpoolMemory+1)); err == nil {
		t.Error("a body is stored in a folder that does not exist")
	}
}

// TestContextReader fails with the cause of the end of a context.
func TestContextReader(t *testing.T) {
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	r := NewContextReader(ctx, strings.NewReader("abc"))
	if n, err := r.Read(make([]byte, 2)); n != 2 || err != nil {
		t.Error(n, err)
	}
	cancel(stopped)
	if n, err := r.Read(make([]byte, 2)); n != 0 || !errors.Is(err, stopped) {
		t.Error(n, err)
	}
}
