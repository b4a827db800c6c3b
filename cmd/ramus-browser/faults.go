package main

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// Bounds on the faults of a page that are kept. The counts are complete.
const (
	keptErrors  = 20
	keptNetwork = 100
	maxText     = 500 // bytes of one message
	maxURL      = 2000
)

// consoleError is a message of kind error.
type consoleError struct {
	text, url string
	position  bool // it has a position in a script
}

// exchange is a request that failed or was answered with status 400 or above.
type exchange struct {
	browser.NetworkError
	document bool // the page itself
}

// faults has the reports of the browser about a page, and their evaluation. Each list has the first of its kind.
// Further ones are only counted.
type faults struct {
	console   []consoleError
	pages     []string
	exchanges []exchange
	more      struct{ console, pages, exchanges int }
}

// kept bounds each list, because a page can cause faults without end.
const kept = 1000

func (f *faults) addConsole(e consoleError) {
	if len(f.console) >= kept {
		f.more.console++
		return
	}
	e.text, e.url = text.Clip(e.text, maxText), text.Clip(e.url, maxURL)
	f.console = append(f.console, e)
}

func (f *faults) addPage(message string) {
	if len(f.pages) >= kept {
		f.more.pages++
		return
	}
	f.pages = append(f.pages, text.Clip(message, maxText))
}

func (f *faults) addExchange(e exchange) {
	if len(f.exchanges) >= kept {
		f.more.exchanges++
		return
	}
	e.URL = text.Clip(e.URL, maxURL)
	f.exchanges = append(f.exchanges, e)
}

// finding is one fault, as text. Findings with a smaller rank come first.
type finding struct {
	rank int
	text string
}

// Ranks of findings. The best explanation comes first.
const (
	rankEnd      = iota // the page could not be checked completely
	rankDocument        // the page itself was not served
	rankStep
	rankPageError
	rankServer // an answer with status 500 or above
	rankFailed // no answer
	rankConsole
)

// judge removes the allowed faults, sets the view's lists, and returns the findings.
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

// repeats reports whether a console message only repeats a reported request, or is about an icon that the browser
// itself requested. Such messages have no position in a script.
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

// refusals are the errors that the network rules in launch.go cause.
var refusals = map[string]bool{
	"net::ERR_PROXY_CONNECTION_FAILED":  true,
	"net::ERR_TUNNEL_CONNECTION_FAILED": true,
	"net::ERR_NAME_NOT_RESOLVED":        true,
}

// failure explains a request without an answer.
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

// documentFailure explains why there is no page.
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

// others returns a text with the number of further faults.
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
