// Package loopback gives tests addresses for servers that must know theirs before they
// listen, or listen there again after they were killed. Between times the address is
// nobody's, so another test, of any package, could be given a port of 127.0.0.1 meanwhile:
// the server would not start, or another one would be asked in its place.
package loopback

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// T is what Address needs of a test.
type T interface {
	Helper()
	Fatal(args ...any)
}

// Address is an IP address, 127.x.y.z, that no other test has, with a port at which
// nobody listens.
func Address(t T) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(IP(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// IP is an IP address of this machine, 127.x.y.z, that no other test has.
func IP() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}
