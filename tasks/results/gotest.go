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

// goTest is one test or subtest, goPackage what is known of one package.
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

// ParseGoTest reads `go test -json`. Tests with subtests do not count
// themselves, only their leaves, unless they failed and none of their subtests
// did. A package that failed without a failed test (it does not build, it
// panicked in init, it exited) counts as one failed test. Lines that are no
// events are skipped; reading an event twice changes nothing.
func ParseGoTest(out []byte) (*Tests, bool) {
	var (
		tests    = map[[2]string]*goTest{}
		order    []*goTest
		packages = map[string]*goPackage{}
		pkgOrder []*goPackage
		builds   = map[string]*strings.Builder{}
		seen     bool
	)
	for line := range bytes.Lines(out) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] != '{' {
			continue
		}
		var e goEvent
		if json.Unmarshal(line, &e) != nil || e.Action == "" {
			continue
		}
		if e.ImportPath != "" {
			if b := builds[e.ImportPath]; b == nil {
				builds[e.ImportPath] = &strings.Builder{}
			}
			appendText(builds[e.ImportPath], e.Output)
			seen = true
			continue
		}
		if e.Package == "" {
			continue
		}
		seen = true
		p := packages[e.Package]
		if p == nil {
			p = &goPackage{name: e.Package}
			packages[e.Package] = p
			pkgOrder = append(pkgOrder, p)
		}
		if e.Test == "" {
			switch e.Action {
			case "output":
				appendText(&p.text, e.Output)
			case "fail":
				p.failed, p.failedBuild = true, e.FailedBuild
			}
			continue
		}
		key := [2]string{e.Package, e.Test}
		t := tests[key]
		if t == nil {
			t = &goTest{pkg: e.Package, name: e.Test}
			tests[key] = t
			order = append(order, t)
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
	if !seen {
		return nil, false
	}
	for _, t := range order {
		// A subtest's own name may have slashes, so every prefix may be the parent.
		for i, depth := len(t.name)-1, 0; i > 0 && depth < maxSuiteDepth; i-- {
			if t.name[i] != '/' {
				continue
			}
			depth++
			if parent := tests[[2]string{t.pkg, t.name[:i]}]; parent != nil {
				parent.parent = true
				parent.childFailed = parent.childFailed || t.status == "fail"
			}
		}
	}
	r := NewTests()
	for _, t := range order {
		switch {
		case t.status == "fail":
			p := packages[t.pkg]
			p.failedTests++
			if t.childFailed {
				break
			}
			text := t.text.String()
			if text == "" { // a panic is told of the outermost test, or of the package
				root, _, _ := strings.Cut(t.name, "/")
				if outer := tests[[2]string{t.pkg, root}]; outer != nil {
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
	for _, p := range pkgOrder {
		switch {
		case !p.failed || p.failedTests > 0:
		case p.failedBuild != "":
			text := p.text.String()
			if b := builds[p.failedBuild]; b != nil {
				text = b.String()
			}
			r.fail(p.name+" [build failed]", text)
		default:
			r.fail(p.name, p.text.String())
		}
	}
	return r, true
}

// appendText collects a little more than is shown of a text in the end.
func appendText(b *strings.Builder, s string) {
	if b.Len() <= maxFailureText {
		b.WriteString(s)
	}
}

// goNoise is what the go tool says about a test's progress.
func goNoise(s string) bool {
	s = strings.TrimLeft(s, " ")
	return strings.HasPrefix(s, "=== ") || strings.HasPrefix(s, "--- ")
}

// GoText makes of `go test -json` what `go test` prints for people: the output
// of packages, builds and failed tests. Lines that are no events stay.
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
