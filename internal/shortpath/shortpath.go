// Package shortpath names unix sockets in folders that lie deep: the address of one
// holds 107 bytes (unix(7)), and a path may be longer.
package shortpath

import (
	"fmt"
	"os"
)

// To calls use with a short path to the name in a folder, which goes through a
// descriptor of the folder and is good until use returns: a listener must not remove its
// socket by it when it is closed ([net.UnixListener.SetUnlinkOnClose]). The name may be
// a link; where others write to the folder, that is not the way.
func To(dir, name string, use func(path string) error) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return use(fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name))
}
