// Package loopback provides addresses to tests of servers that must know their address before they listen, or that
// listen there again after they were killed. Between these times another test of any package could get the same port of
// 127.0.0.1. The server would then not start, or requests would reach another one.
package loopback

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// T is the part of a test that Address uses.
type T interface {
	Helper()
	Fatal(args ...any)
}

// Address returns an IP address, 127.x.y.z, that no other test has, with a free port.
func Address(t T) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(IP(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// IP returns an IP address of this machine, 127.x.y.z, that no other test has.
func IP() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}
