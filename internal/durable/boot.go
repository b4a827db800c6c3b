package durable

import (
	"bytes"
	"crypto/rand"
	"os"
)

// BootID returns an id of the machine's boot. Files that were written without being synced are trustworthy as long as it is the
// same. If the kernel does not provide it, each call returns another one.
func BootID() []byte {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id") // random(4)
	if err != nil {
		return []byte(rand.Text())
	}
	return bytes.TrimSpace(id)
}
