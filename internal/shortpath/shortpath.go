// Package shortpath provides paths of unix sockets in deeply nested folders. The address of a socket has at most 107
// bytes (unix(7)), and a path may be longer.
package shortpath

import (
	"fmt"
	"os"
)

// To calls use with a short path to the name in a folder. The path goes through a descriptor of the folder and is valid
// until use returns. So a listener must not remove its socket by that path when it is closed
// ([net.UnixListener.SetUnlinkOnClose]). The name may be a link, so To is not safe for a folder to which others write.
func To(dir, name string, use func(path string) error) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return use(fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name))
}
