package loopback

import (
	"net"
	"net/netip"
	"testing"
)

func TestAddress(t *testing.T) {
	address := Address(t)
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().IsLoopback() || at.Port() == 0 {
		t.Fatalf("%s, %v", address, err)
	}
	for range 2 { // again and again
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
	if other := Address(t); other == address {
		t.Errorf("%s is given twice", address)
	}
}
