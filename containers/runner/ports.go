package runner

import (
	"encoding/hex"
	"os"
	"slices"
	"strconv"
	"strings"
)

// listening returns the TCP ports that listen, except one.
func listening(without int) []int {
	var all []int
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		all = append(all, parseListening(string(b))...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return slices.DeleteFunc(all, func(p int) bool { return p == without })
}

// parseListening returns the ports in the state LISTEN (0A) in the text of /proc/net/tcp.
func parseListening(text string) []int {
	var ports []int
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 4 || f[3] != "0A" {
			continue
		}
		addr, port, ok := strings.Cut(f[1], ":")
		if !ok || len(port) != 4 {
			continue
		}
		if len(addr) == 8 && strings.HasSuffix(addr, "7F") && addr != "0100007F" {
			continue // an address of the loopback at which nobody but this runner listens, for a forward
		}
		if _, err := hex.DecodeString(port); err != nil {
			continue
		}
		if n, err := strconv.ParseUint(port, 16, 16); err == nil && n > 0 {
			ports = append(ports, int(n))
		}
	}
	return ports
}
