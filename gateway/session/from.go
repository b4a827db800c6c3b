package session

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// FromRequest describes the browser of a request.
func FromRequest(r *http.Request) From {
	return From{Browser: Browser(r.UserAgent()), Place: Place(r)}
}

// browsers and systems are parts of User-Agent headers, in an order in which the first that is found is right: all
// browsers name others, too.
var (
	browsers = [][2]string{{"Edg", "Edge"}, {"OPR/", "Opera"}, {"Firefox/", "Firefox"}, {"FxiOS/", "Firefox"},
		{"CriOS/", "Chrome"},
		{"Chromium/", "Chromium"}, {"Chrome/", "Chrome"}, {"Safari/", "Safari"}, {"curl/", "curl"}}
	systems = [][2]string{{"Android", "Android"}, {"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Windows", "Windows"},
		{"CrOS", "ChromeOS"},
		{"Mac OS X", "macOS"}, {"Linux", "Linux"}}
)

// Browser returns the name of a browser for people, by its User-Agent.
func Browser(agent string) string {
	find := func(list [][2]string) string {
		for _, one := range list {
			if strings.Contains(agent, one[0]) {
				return one[1]
			}
		}
		return ""
	}
	name, system := find(browsers), find(systems)
	switch {
	case name == "" && system == "":
		return "a browser"
	case name == "":
		return "a browser on " + system
	case system == "":
		return name
	}
	return name + " on " + system
}

// Place returns the network of the sender of a request: the first 24 bits of an IPv4 address, or 56 of an IPv6
// address. A proxy on this machine names the address that it got the request from.
func Place(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return ""
	}
	if via := r.Header.Values("X-Forwarded-For"); addr.IsLoopback() && len(via) > 0 {
		list := strings.Split(via[len(via)-1], ",")
		if first, err := netip.ParseAddr(strings.TrimSpace(list[len(list)-1])); err == nil {
			addr = first
		}
	}
	return Network(addr)
}

// Network returns the network of an address, as [Place] does.
func Network(addr netip.Addr) string {
	addr = addr.Unmap().WithZone("")
	if addr.IsLoopback() {
		return "this machine"
	}
	bits := 24
	if addr.Is6() {
		bits = 56
	}
	p, err := addr.Prefix(bits)
	if err != nil || !p.IsValid() {
		return ""
	}
	return p.String()
}
