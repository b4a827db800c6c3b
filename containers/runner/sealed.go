package runner

import (
	"fmt"
	"net"
	"os"
	"strings"
)

// Sealed returns an error if the container has a network interface other than the loopback.
func Sealed() error {
	list, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("cannot list the network's interfaces: %w", err)
	}
	for _, i := range list {
		if i.Flags&net.FlagLoopback == 0 {
			return fmt.Errorf("cannot start: the network is open, there is an interface %s", i.Name)
		}
	}
	return nil
}

// OwnUsers reports whether this process is in another user namespace than that of the machine.
func OwnUsers() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && parseOwnUsers(string(b))
}

// parseOwnUsers reports whether the text of a uid_map is not that of the first user namespace, which has all users.
func parseOwnUsers(text string) bool {
	f := strings.Fields(text)
	return len(f) >= 3 && (f[0] != "0" || f[1] != "0" || f[2] != "4294967295")
}
