package main

import (
	"net"
	"net/url"
	"strings"

	"github.com/mxschmitt/playwright-go"
)

// doorPort is the port of the server's door on the task container's loopback. A task may use the door, but no page may,
// wherever it came from.
const doorPort = "7070"

// egressAlias is the browser's name for the proxy. The proxy may be the door itself. With the alias the browser finds
// it for requests to forward, but no page can reach it. Names under .invalid never exist (RFC 6761).
const egressAlias = "egress.ramus.invalid"

// launchArgs returns the browser's switches that Playwright does not set. shut are ports of loopback that pages must
// not reach, in addition to the door's.
func launchArgs(proxy *url.URL, shut ...string) []string {
	return append(networkArgs(proxy, shut...),
		// Pictures are the same on every machine.
		"--disable-gpu",
		// A part that is painted again has other edges than the same part painted with the whole. In a test, after a
		// click, 9 of 24 pictures of one page differed.
		"--disable-partial-raster",
		"--font-render-hinting=none",
		"--disable-font-subpixel-positioning",
		"--disable-lcd-text",
		"--force-color-profile=srgb",
		"--hide-scrollbars",
		"--lang=en-US",
		// The browser makes no requests other than the page's.
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

// networkArgs returns the network rules. Loopback is reached directly, except for the door. All other requests go to
// the proxy, or fail. Only the proxy resolves names. The browser uses no DNS server, so names cannot carry data out
// either.
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
	// The first matching rule applies.
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
		// Without <-loopback> the browser would also connect directly to 169.254.0.0/16 and fe80::/10, where clouds
		// have credentials.
		"--proxy-bypass-list=<-loopback>;localhost;*.localhost;127.0.0.1/8;[::1]",
		"--host-resolver-rules=" + strings.Join(rules, ","),
		"--disable-quic",
		"--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
		"--webrtc-ip-handling-policy=disable_non_proxied_udp",
	}
}

// launchOptions returns the options of the browser. Its own sandbox is off, because it needs namespaces that the
// container must not allow. The container isolates it.
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
