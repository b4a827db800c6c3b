package main

import (
	"net"
	"net/url"
	"strings"

	"github.com/mxschmitt/playwright-go"
)

// doorPort is where the server's door listens on the task container's loopback. A task
// may speak to it; a page must not, wherever it came from.
const doorPort = "7070"

// egressAlias is the name under which the browser knows the proxy. The proxy may be the door
// itself: by its address the browser can find it then for requests that it passes on, but for no
// page's. Names under .invalid exist nowhere (RFC 6761).
const egressAlias = "egress.ramus.invalid"

// launchArgs are the switches of the browser, beside those of Playwright. shut are ports of loopback
// that pages must not reach, beside the door's.
func launchArgs(proxy *url.URL, shut ...string) []string {
	return append(networkArgs(proxy, shut...),
		// Pictures are the same wherever they are taken.
		"--disable-gpu",
		// A part that is painted again has other edges than the same part painted with the whole:
		// of 24 pictures of one page, after a click, 9 differed from the rest.
		"--disable-partial-raster",
		"--font-render-hinting=none",
		"--disable-font-subpixel-positioning",
		"--disable-lcd-text",
		"--force-color-profile=srgb",
		"--hide-scrollbars",
		"--lang=en-US",
		// Nothing is asked for that the page did not ask for.
		"--disable-background-networking",
		"--disable-component-update",
		"--disable-domain-reliability",
		"--disable-sync",
		"--dns-prefetch-disable",
		"--no-pings",
		"--no-first-run",
		"--no-default-browser-check",
		"--disable-breakpad",
		"--disable-crash-reporter",
		"--mute-audio",
	)
}

// networkArgs are the walls. Loopback is reached directly, but for the door; all else
// goes to the proxy, or nowhere. Names are resolved by the proxy only: the browser
// asks no DNS server, so that names carry nothing out either.
func networkArgs(proxy *url.URL, shut ...string) []string {
	rules := []string{}
	server := "http://" + net.JoinHostPort(egressAlias, "9")
	if proxy != nil {
		server = "http://" + net.JoinHostPort(egressAlias, proxy.Port())
		host := proxy.Hostname()
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		rules = append(rules, "MAP "+egressAlias+" "+host)
	}
	// The first rule that fits decides.
	for _, port := range append([]string{doorPort}, shut...) {
		rules = append(rules, "MAP *:"+port+" ~NOTFOUND")
	}
	rules = append(rules,
		"MAP localhost localhost",
		"MAP *.localhost localhost",
		"MAP 127.0.0.1 127.0.0.1",
		"MAP ::1 [::1]",
		"MAP * ~NOTFOUND",
	)
	return []string{
		"--proxy-server=" + server,
		// Without <-loopback> the browser would also go directly to 169.254.0.0/16 and fe80::/10,
		// where clouds keep credentials.
		"--proxy-bypass-list=<-loopback>;localhost;*.localhost;127.0.0.1/8;[::1]",
		"--host-resolver-rules=" + strings.Join(rules, ","),
		"--disable-quic",
		"--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
		"--webrtc-ip-handling-policy=disable_non_proxied_udp",
	}
}

// launchOptions start the browser. Its own sandbox is off: it needs namespaces that
// the container must not give; the container is the wall.
func launchOptions(p place, j *job, work string) playwright.BrowserTypeLaunchOptions {
	return playwright.BrowserTypeLaunchOptions{
		ExecutablePath:  playwright.String(p.chromium),
		Headless:        playwright.Bool(true),
		ChromiumSandbox: playwright.Bool(false),
		Args:            launchArgs(j.proxy),
		DownloadsPath:   playwright.String(work),
		TracesDir:       playwright.String(work),
		Timeout:         playwright.Float(30_000),
	}
}
