package containers

import (
	"fmt"
	"os"

	"github.com/ramus-dev/ramus/containers/proc"
)

// mounts is a container's mount namespace, held. The kernel takes a namespace apart with
// its last user, every cached name and file of a large work tree with it, and the process
// that was killed ends its connections only after that: tens of milliseconds in which
// nobody knows that it is dead. Held, it is taken apart by release.
type mounts struct{ file *os.File }

// holdMounts holds the mount namespace of a place's process where that is allowed.
func holdMounts(p *Place) mounts {
	if p == nil || p.PID <= 1 || p.Start == 0 {
		return mounts{}
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", p.PID))
	if err != nil {
		return mounts{} // its end is heard of later, and that is all
	}
	// Whose number it is now is known when it is held: no other process can have been between.
	if start, err := proc.Start(p.PID); err != nil || start != p.Start {
		f.Close()
		return mounts{}
	}
	return mounts{f}
}

// release lets go; a second time it does nothing.
func (m *mounts) release() {
	if m.file != nil {
		m.file.Close()
		m.file = nil
	}
}
