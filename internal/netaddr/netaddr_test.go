package netaddr

import (
	"net/netip"
	"testing"
)

func TestPublic(t *testing.T) {
	for text, want := range map[string]bool{
		"1.1.1.1": true, "8.8.8.8": true, "100.63.255.255": true, "100.128.0.0": true, "172.32.0.1": true,
		"198.17.255.255": true, "198.20.0.1": true,
		"2606:4700:4700::1111": true, "2a00:1450:4001::1": true, "::ffff:8.8.8.8": true, "64:ff9b::808:808": true,
		"2002:808:808::1": true,

		"0.0.0.0": false, "0.1.2.3": false, "10.0.0.1": false, "127.0.0.1": false, "127.255.255.254": false,
		"169.254.169.254": false,
		"172.16.0.1":      false, "172.31.255.255": false, "192.168.1.1": false, "100.64.0.0": false,
		"100.100.100.200": false, "100.127.255.255": false,
		"192.0.0.8": false, "192.0.2.1": false, "198.18.0.1": false, "198.19.255.255": false, "198.51.100.7": false,
		"203.0.113.9": false,
		"224.0.0.1":   false, "240.0.0.1": false, "255.255.255.255": false,

		"::": false, "::1": false, "::ffff:10.0.0.1": false, "::ffff:127.0.0.1": false, "::ffff:100.64.0.1": false,
		"::a00:1": false, "::ffff:0:a00:1": false,
		"64:ff9b::a00:1": false, "64:ff9b::7f00:1": false, "64:ff9b::a9fe:a9fe": false, "64:ff9b::6440:1": false,
		"64:ff9b::c612:1":    false,
		"64:ff9b:1::808:808": false, "64:ff9b:1:2:3::1": false,
		"2002:a00:1::1": false, "2002:7f00:1::": false, "2002:6440:1::1": false, "2002:c0a8:101::1": false,
		"2001::1": false, "2001:0:4136:e378:8000:63bf:f5ff:fffe": false, "2001:2::1": false, "2001:db8::1": false,
		"3fff::1": false,
		"fc00::1": false, "fd12:3456::1": false, "fe80::1": false, "fe80::1%eth0": false, "fec0::1": false,
		"ff02::1": false, "100::1": false, "5f00::1": false,
	} {
		if got := Public(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %t, want %t", text, got, want)
		}
	}
	if Public(netip.Addr{}) {
		t.Error("no address is public")
	}
}
