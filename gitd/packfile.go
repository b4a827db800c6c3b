package gitd

import (
	"context"
	"os"
)

// Pack is a pack and its index, as files without a name or with one that Close removes.
// A repository that has them in objects/pack as pack-NAME.pack and pack-NAME.idx has
// their objects.
type Pack struct {
	Name    string // hexadecimal, what git would call it
	Objects int
	Pack    *os.File
	Index   *os.File
}

// Close releases the files.
func (p *Pack) Close() error { panic("not built") }

// PackOf packs the objects that the commits want reach and the commits have do not. It
// is nil when there are none.
func (r *Repo) PackOf(ctx context.Context, want, have []Hash) (*Pack, error) {
	panic("not built")
}
