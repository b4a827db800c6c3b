package history

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/ramus-dev/ramus/gitd/pack"
)

// TestSectionBounds fills sections to their bounds.
func TestSectionBounds(t *testing.T) {
	for _, c := range []struct {
		name  string
		max   int64
		sizes []int
		want  error // of the last object
	}{
		{"most bytes", 10, []int{4, 6}, nil},
		{"too many bytes", 10, []int{4, 7}, ErrLarge},
		{"most bytes by default", 0, []int{sectionBytes}, nil},
		{"too many bytes by default", 0, []int{sectionBytes + 1}, ErrLarge},
		{"most objects", 0, make([]int, sectionObjects), nil},
		{"too many objects", 0, make([]int, sectionObjects+1), ErrLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Section{MaxBytes: c.max}
			total := int64(0)
			for i, size := range c.sizes {
				err := s.add("blob", pack.ObjectName{byte(i)}, make([]byte, size))
				total += int64(size)
				if i < len(c.sizes)-1 && err != nil || i == len(c.sizes)-1 && !errors.Is(err, c.want) {
					t.Fatalf("object %d: %v", i, err)
				}
			}
			if c.want == nil && (s.Len() != len(c.sizes) || s.Size() != total || len(s.Bytes()) == 0) {
				t.Errorf("%d objects of %d bytes, want %d of %d", s.Len(), s.Size(), len(c.sizes), total)
			}
		})
	}
	var s Section
	if err := s.add("folder", pack.ObjectName{}, nil); err == nil || s.Len() != 0 {
		t.Errorf("an object of no kind: %v", err)
	}
}

// TestSectionOffsets checks that a section knows where its objects begin, and that a pack has them after its header.
func TestSectionOffsets(t *testing.T) {
	var s Section
	at := []int64{0}
	for i := range 3 {
		if err := s.add("blob", pack.ObjectName{byte(i)}, []byte{byte(i), 'x'}); err != nil {
			t.Fatal(err)
		}
		at = append(at, int64(len(s.Bytes())))
	}
	for i, e := range s.index {
		if e.At != at[i] || e.Name != (pack.ObjectName{byte(i)}) || e.CRC == 0 {
			t.Errorf("object %d: %+v, want one at %d", i, e, at[i])
		}
	}
	p, err := s.WritePack(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if info, err := p.Pack.Stat(); err != nil || info.Size() != pack.HeaderLength+at[3]+20 || p.Objects != 3 || len(p.Name) != 40 {
		t.Errorf("%+v, %v", p, err)
	}
	if s.index[0].At != 0 {
		t.Error("writing the pack has changed the section")
	}
	if _, err := s.WritePack(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a pack is written to no folder")
	}
}
