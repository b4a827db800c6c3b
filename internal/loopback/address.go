// Package loopback gives tests addresses for servers that must know theirs before they
// listen, or listen there again after they were killed. Between times the address is
// nobody's, so another test, of any package, could be given a port of 127.0.0.1 meanwhile:
// the server would not start, or another one would be asked in its place.
package loopback

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Address is an IP address, 127.x.y.z, that no other test has, with a port at which
// nobody listens.
func Address(t testing.TB) string {
	t.Helper()
	ip := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
