package results

import (
	"bytes"
	"encoding/json"
	"strings"
)

// goEvent is a line of `go test -json` (go doc test2json, go help buildjson).
type goEvent struct {
	Action      string
	Package     string
	Test        string
	Output      string
	ImportPath  string
	FailedBuild string
}

// goTest is one test or subtest.
type goTest struct {
	pkg, name   string
	status      string // pass, fail, skip; "" while it runs
	text        strings.Builder
	parent      bool
	childFailed bool
}

type goPackage struct {
	name        string
	failed      bool
	failedTests int
	failedBuild string
	text        strings.Builder
}

// ParseGoTest reads `go test -json`. A test with subtests does not count itself, only its leaves, unless it failed and
// none of its subtests did. A package that failed without a failed test (it does not build, it panicked in init, it
// exited) counts as one failed test. Lines that are not events are skipped. Reading an event twice changes nothing.
func ParseGoTest(out []byte) (*Tests, bool) {
	g := &goReport{
		tests: map[[2]string]*goTest{}, packages: map[string]*goPackage{}, builds: map[string]*strings.Builder{},
	}
	for line := range bytes.Lines(out) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] != '{' {
			continue
		}
		var e goEvent
		if json.Unmarshal(line, &e) == nil && e.Action != "" {
			g.addEvent(e)
		}
	}
	if !g.seen {
		return nil, false
	}

	g.markParents()
	r := NewTests()
	for _, t := range g.order {
		g.countTest(r, t)
	}
	for _, p := range g.pkgOrder {
		g.countPackage(r, p)
	}
	return r, true
}

// goReport collects the events of `go test -json`.
type goReport struct {
	tests    map[[2]string]*goTest // by package and name
	order    []*goTest
	packages map[string]*goPackage
	pkgOrder []*goPackage
	builds   map[string]*strings.Builder // output of the compiler by import path
	seen     bool                        // there was an event
}

// addEvent adds one event.
func (g *goReport) addEvent(e goEvent) {
	if e.ImportPath != "" {
		if g.builds[e.ImportPath] == nil {
			g.builds[e.ImportPath] = &strings.Builder{}
		}
		appendText(g.builds[e.ImportPath], e.Output)
		g.seen = true
		return
	}
	if e.Package == "" {
		return
	}
	g.seen = true

	p := g.packages[e.Package]
	if p == nil {
		p = &goPackage{name: e.Package}
		g.packages[e.Package] = p
		g.pkgOrder = append(g.pkgOrder, p)
	}
	if e.Test == "" {
		switch e.Action {
		case "output":
			appendText(&p.text, e.Output)
		case "fail":
			p.failed, p.failedBuild = true, e.FailedBuild
		}
		return
	}

	key := [2]string{e.Package, e.Test}
	t := g.tests[key]
	if t == nil {
		t = &goTest{pkg: e.Package, name: e.Test}
		g.tests[key] = t
		g.order = append(g.order, t)
	}
	switch e.Action {
	case "pass", "fail", "skip":
		t.status = e.Action
	case "output":
		if !goNoise(e.Output) {
			appendText(&t.text, e.Output)
		}
	}
}

// markParents marks the tests with subtests.
func (g *goReport) markParents() {
	for _, t := range g.order {
		// A subtest's own name may have slashes, so every prefix may be the parent.
		for i, depth := len(t.name)-1, 0; i > 0 && depth < maxSuiteDepth; i-- {
			if t.name[i] != '/' {
				continue
			}
			depth++
			if parent := g.tests[[2]string{t.pkg, t.name[:i]}]; parent != nil {
				parent.parent = true
				parent.childFailed = parent.childFailed || t.status == "fail"
			}
		}
	}
}

// countTest adds one test to r.
func (g *goReport) countTest(r *Tests, t *goTest) {
	switch {
	case t.status == "fail":
		p := g.packages[t.pkg]
		p.failedTests++
		if t.childFailed {
			return
		}
		text := t.text.String()
		if text == "" { // the panic is in the output of the outermost test, or of the package
			root, _, _ := strings.Cut(t.name, "/")
			if outer := g.tests[[2]string{t.pkg, root}]; outer != nil {
				text = outer.text.String()
			}
		}
		if text == "" {
			text = p.text.String()
		}
		r.fail(t.pkg+"."+t.name, text)
	case t.parent:
	case t.status == "pass":
		r.pass()
	case t.status == "skip":
		r.skip()
	}
}

// countPackage adds a package that failed without a failed test to r.
func (g *goReport) countPackage(r *Tests, p *goPackage) {
	switch {
	case !p.failed || p.failedTests > 0:
	case p.failedBuild != "":
		text := p.text.String()
		if b := g.builds[p.failedBuild]; b != nil {
			text = b.String()
		}
		r.fail(p.name+" [build failed]", text)
	default:
		r.fail(p.name, p.text.String())
	}
}

// appendText collects slightly more of a text than is shown.
func appendText(b *strings.Builder, s string) {
	if b.Len() <= maxFailureText {
		b.WriteString(s)
	}
}

// goNoise reports whether a line is the go tool's own report about a test's progress.
func goNoise(s string) bool {
	s = strings.TrimLeft(s, " ")
	return strings.HasPrefix(s, "=== ") || strings.HasPrefix(s, "--- ")
}

// GoText converts `go test -json` to the output of `go test` for people: the output of packages, builds and failed
// tests. Lines that are not events are kept.
func GoText(out []byte) string {
	failed := map[[2]string]bool{}
	events := func(yield func(line []byte, e goEvent, ok bool)) {
		for line := range bytes.Lines(out) {
			var e goEvent
			ok := bytes.HasPrefix(line, []byte("{")) && json.Unmarshal(line, &e) == nil && e.Action != ""
			yield(line, e, ok)
		}
	}
	events(func(_ []byte, e goEvent, ok bool) {
		if ok && e.Action == "fail" {
			failed[[2]string{e.Package, e.Test}] = true
		}
	})
	var b strings.Builder
	events(func(line []byte, e goEvent, ok bool) {
		switch {
		case !ok:
			b.Write(line)
		case e.Test != "" && !failed[[2]string{e.Package, e.Test}]:
		case strings.HasPrefix(e.Output, "=== "):
		default:
			b.WriteString(e.Output)
		}
	})
	return b.String()
}
