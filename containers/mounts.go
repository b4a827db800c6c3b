package containers

import (
	"fmt"
	"os"

	"github.com/ramus-dev/ramus/containers/proc"
)

// mounts holds the mount namespace of a container. The kernel destroys a namespace with its last user, together with
// every cached name and file of a large work tree. A killed process closes its connections only after that, so its
// death would go unnoticed for tens of milliseconds. A held namespace is destroyed by release instead.
type mounts struct{ file *os.File }

// holdMounts holds the mount namespace of a place's process if the kernel allows it.
func holdMounts(p *Place) mounts {
	if p == nil || p.PID <= 1 || p.Start == 0 {
		return mounts{}
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", p.PID))
	if err != nil {
		return mounts{} // only the news of the container's end comes later
	}
	// The start time is read after the namespace was opened, so no other process can have had the number in between.
	if start, err := proc.Start(p.PID); err != nil || start != p.Start {
		f.Close()
		return mounts{}
	}
	return mounts{f}
}

// release closes the namespace. A second call does nothing.
func (m *mounts) release() {
	if m.file != nil {
		m.file.Close()
		m.file = nil
	}
}
