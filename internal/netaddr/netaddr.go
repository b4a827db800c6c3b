// Package netaddr distinguishes public addresses from all others.
package netaddr

import "net/netip"

// closed are the networks that are not public, in addition to those that [netip.Addr] knows. They come from the
// registries of special-purpose addresses of RFC 6890 at IANA.
var closed = prefixes(
	"0.0.0.0/8",       // this network
	"100.64.0.0/10",   // shared by carriers, and by overlay networks
	"192.0.0.0/24",    // protocol assignments
	"192.0.2.0/24",    // documentation
	"192.88.99.0/24",  // relays of 6to4
	"198.18.0.0/15",   // benchmarks
	"198.51.100.0/24", // documentation
	"203.0.113.0/24",  // documentation
	"240.0.0.0/4",     // reserved, and broadcast

	"::/96",           // IPv4-compatible
	"::ffff:0:0:0/96", // IPv4-translated
	"64:ff9b:1::/48",  // NAT64 of a local network
	"100::/64",        // discard
	"100:0:0:1::/64",  // dummy
	"2001::/23",       // protocol assignments, as Teredo, benchmarks, ORCHID
	"2001:db8::/32",   // documentation
	"3fff::/20",       // documentation
	"5f00::/16",       // segment routing
	"fec0::/10",       // site-local
)

// embedding are the networks whose addresses contain one of IPv4, and its first byte.
var embedding = []struct {
	network netip.Prefix
	at      int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12}, // NAT64
	{netip.MustParsePrefix("2002::/16"), 2},     // 6to4
}

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

// Public reports whether an address is one of the public internet. It returns false for addresses of this machine, of
// private and shared networks, and of networks with a special purpose. This includes such IPv4 addresses that a
// transition mechanism embeds in IPv6.
func Public(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	if !ip.IsValid() || !ip.IsGlobalUnicast() || ip.IsPrivate() {
		return false
	}
	for _, p := range closed {
		if p.Contains(ip) {
			return false
		}
	}
	for _, e := range embedding {
		if e.network.Contains(ip) {
			b := ip.As16()
			return Public(netip.AddrFrom4([4]byte(b[e.at : e.at+4])))
		}
	}
	return true
}
