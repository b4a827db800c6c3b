package main

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/tasks/browser"
)

// How much of what a page did wrong is kept. The counts are whole.
const (
	keptErrors  = 20
	keptNetwork = 100
	maxText     = 500 // bytes of one message in words
	maxURL      = 2000
)

// consoleError is a message of kind error.
type consoleError struct {
	text, url string
	position  bool // it comes from a place in a script
}

// exchange is a request that failed or was answered with 400 and above.
type exchange struct {
	browser.NetworkError
	document bool // the page itself
}

// faults is what a page did, as the browser told it, and what is made of it.
// Lists hold the first of each kind; more of them are only counted.
type faults struct {
	console   []consoleError
	pages     []string
	exchanges []exchange
	more      struct{ console, pages, exchanges int }
}

// kept bounds each list: a page can make faults without end.
const kept = 1000

func (f *faults) addConsole(e consoleError) {
	if len(f.console) >= kept {
		f.more.console++
		return
	}
	e.text, e.url = clip(e.text, maxText), clip(e.url, maxURL)
	f.console = append(f.console, e)
}

func (f *faults) addPage(text string) {
	if len(f.pages) >= kept {
		f.more.pages++
		return
	}
	f.pages = append(f.pages, clip(text, maxText))
}

func (f *faults) addExchange(e exchange) {
	if len(f.exchanges) >= kept {
		f.more.exchanges++
		return
	}
	e.URL = clip(e.URL, maxURL)
	f.exchanges = append(f.exchanges, e)
}

// finding is one thing that is wrong, in words. A smaller rank is told first.
type finding struct {
	rank int
	text string
}

// The ranks: what explains most is told first.
const (
	rankEnd      = iota // the page could not be looked at to the end
	rankDocument        // the page itself was not served
	rankStep
	rankPageError
	rankServer // an answer of 500 and above
	rankFailed // no answer
	rankConsole
)

// judge takes out what the spec allows, fills in the view's lists, and says what is wrong.
func (f *faults) judge(a allowed, v *browser.View) []finding {
	var found []finding
	told := make(map[string]bool) // addresses whose failure the console repeats
	var server, failed []string
	for _, e := range f.exchanges {
		told[e.URL] = true
		if matches(a.requests, e.URL) {
			v.Allowed++
			continue
		}
		if isFavicon(e.URL) && e.Status < 500 && !e.document {
			continue
		}
		if len(v.Network) < keptNetwork {
			v.Network = append(v.Network, e.NetworkError)
		}
		switch {
		case e.document && e.Status > 0:
			found = append(found, finding{rankDocument, fmt.Sprintf("%s answered %d", e.URL, e.Status)})
		case e.document:
			found = append(found, finding{rankDocument, documentFailure(e.URL, e.Failure)})
		case e.Status >= 500:
			server = append(server, fmt.Sprintf("%s %s answered %d", e.Method, e.URL, e.Status))
		case e.Status == 0:
			failed = append(failed, fmt.Sprintf("%s %s failed: %s", e.Method, e.URL, e.Failure))
		}
	}
	for _, text := range f.pages {
		if matches(a.pageErrors, text) {
			v.Allowed++
			continue
		}
		v.Console.PageErrors = append(v.Console.PageErrors, text)
	}
	for _, e := range f.console {
		if e.repeats(told) {
			continue
		}
		if matches(a.console, e.text) {
			v.Allowed++
			continue
		}
		v.Console.Errors = append(v.Console.Errors, e.text)
	}
	add := func(rank int, prefix string, texts []string, more int) {
		if len(texts) == 0 {
			return
		}
		found = append(found, finding{rank, prefix + texts[0] + others(len(texts)-1+more)})
	}
	add(rankPageError, "uncaught ", v.Console.PageErrors, f.more.pages)
	add(rankServer, "", server, 0)
	add(rankFailed, "", failed, f.more.exchanges)
	add(rankConsole, "console error: ", v.Console.Errors, f.more.console)
	v.Console.PageErrors = firsts(v.Console.PageErrors)
	v.Console.Errors = firsts(v.Console.Errors)
	return found
}

// repeats says whether a console message only tells of a request that is told already,
// or of an icon that the browser asked for by itself. Such messages come from no script.
func (e consoleError) repeats(told map[string]bool) bool {
	if e.position {
		return false
	}
	return told[e.url] || isFavicon(e.url)
}

func isFavicon(address string) bool {
	u, err := url.Parse(address)
	return err == nil && strings.HasSuffix(u.Path, "/favicon.ico")
}

// refusals are what the walls of launch.go look like from inside.
var refusals = map[string]bool{
	"net::ERR_PROXY_CONNECTION_FAILED":  true,
	"net::ERR_TUNNEL_CONNECTION_FAILED": true,
	"net::ERR_NAME_NOT_RESOLVED":        true,
}

// failure says in words why a request had no answer. outside: its host is not local.
func failure(code string, address string, proxied bool) string {
	u, err := url.Parse(address)
	if err != nil || !refusals[code] {
		return code
	}
	switch {
	case u.Port() == doorPort && isLocal(u.Hostname()):
		return "refused: this port is not for pages"
	case !proxied || isLocal(u.Hostname()):
		return "refused: from here only 127.0.0.1, localhost and [::1] can be reached"
	default:
		return "refused by the egress proxy (" + code + ")"
	}
}

// documentFailure says why there is no page.
func documentFailure(address, code string) string {
	switch code {
	case "net::ERR_CONNECTION_REFUSED", "net::ERR_EMPTY_RESPONSE", "net::ERR_CONNECTION_RESET", "net::ERR_CONNECTION_CLOSED":
		return fmt.Sprintf("nothing answers at %s (%s)", address, code)
	case "net::ERR_TOO_MANY_REDIRECTS":
		return fmt.Sprintf("%s redirects without end", address)
	case "net::ERR_UNSAFE_REDIRECT":
		return fmt.Sprintf("%s redirects to what is no web page", address)
	}
	return fmt.Sprintf("cannot load %s: %s", address, code)
}

// others says how many more there are.
func others(n int) string {
	switch {
	case n <= 0:
		return ""
	case n == 1:
		return " (and 1 more)"
	}
	return fmt.Sprintf(" (and %d more)", n)
}

func firsts(texts []string) []string {
	if len(texts) > keptErrors {
		return texts[:keptErrors:keptErrors]
	}
	return texts
}

// words joins findings, the most important first.
func words(found []finding) string {
	slices.SortStableFunc(found, func(a, b finding) int { return cmp.Compare(a.rank, b.rank) })
	var texts []string
	for _, f := range found {
		if !slices.Contains(texts, f.text) {
			texts = append(texts, f.text)
		}
	}
	return strings.Join(texts, "; ")
}

// clip shortens a text to n bytes, at a rune, and makes it valid UTF-8.
func clip(text string, n int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= n {
		return text
	}
	end := n
	for end > 0 && text[end]&0xC0 == 0x80 {
		end--
	}
	return text[:end] + "…"
}
