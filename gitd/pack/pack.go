package pack

import (
	"errors"
	"os"
)

// Pack is a pack and its index as open files. The files have no names, or names that Close removes.
// A repository that has them in objects/pack as pack-NAME.pack and pack-NAME.idx has their objects.
// A pack that was made in the repository itself stays there.
type Pack struct {
	Name    string // hexadecimal
	Objects int
	Pack    *os.File
	Index   *os.File

	// remove lists the files that Close removes.
	remove []string
}

// Close closes the files. It may be called on nil.
func (p *Pack) Close() error {
	if p == nil {
		return nil
	}
	err := errors.Join(p.Pack.Close(), p.Index.Close())
	for _, file := range p.remove {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}
