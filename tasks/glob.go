package tasks

import (
	"fmt"
	"path"
	"strings"
)

// Glob is a pattern for paths. For every pattern, the time of matching is proportional to the product of the lengths of
// pattern and path.
type Glob struct {
	alternatives [][]string // segments; nil matches everything
}

// Bounds on a pattern, which may come from models and clients.
const (
	maxGlob             = 1024
	maxGlobAlternatives = 256
)

// ParseGlob reads a pattern for slash-separated paths:
//
//   - * matches any number of characters except "/", ? one, [a-z] and [^a-z] one of a class
//   - ** as a whole segment matches any number of folders, including none, as in "src/**/*.go"
//   - {a,b} matches either, without nesting
//   - \ makes the next character literal
//
// A pattern matches the whole path, so "*.go" matches only in the root, and "**/*.go" everywhere. A leading "./" is
// ignored. A trailing "/" matches everything below the folder. "" matches everything. Names that begin with a dot are
// matched like any other.
func ParseGlob(pattern string) (Glob, error) {
	fail := func(why string) (Glob, error) {
		return Glob{}, fmt.Errorf("cannot use glob %.200q: %s", pattern, why)
	}
	if len(pattern) > maxGlob {
		return fail(fmt.Sprintf("longer than %d bytes", maxGlob))
	}
	if strings.IndexByte(pattern, 0) >= 0 {
		return fail("contains a NUL byte")
	}
	p := strings.TrimPrefix(pattern, "./")
	if p == "" || p == "." {
		return Glob{}, nil
	}
	if strings.HasPrefix(p, "/") {
		return fail("it is absolute; patterns are relative to the work tree")
	}
	if strings.HasSuffix(p, "/") {
		p += "**"
	}
	texts, why := expandBraces(p)
	if why != "" {
		return fail(why)
	}
	var g Glob
	for _, text := range texts {
		var segments []string
		for s := range strings.SplitSeq(text, "/") {
			if s == ".." {
				return fail(`contains ".."`)
			}
			if _, err := path.Match(s, ""); err != nil {
				return fail("a class or an escape is not closed")
			}
			if s == "**" && len(segments) > 0 && segments[len(segments)-1] == "**" {
				continue
			}
			if s != "" && s != "." {
				segments = append(segments, s)
			}
		}
		g.alternatives = append(g.alternatives, segments)
	}
	return g, nil
}

// expandBraces returns every combination of the alternatives in p.
func expandBraces(p string) (texts []string, why string) {
	texts = []string{""}
	add := func(s string) {
		for i := range texts {
			texts[i] += s
		}
	}
	for p != "" {
		i := strings.IndexAny(p, `\{[`)
		if i < 0 {
			add(p)
			break
		}
		add(p[:i])
		p = p[i:]
		switch p[0] {
		case '\\':
			n := min(2, len(p))
			add(p[:n])
			p = p[n:]
		case '[':
			// Braces in a class are members of it.
			n := strings.IndexByte(p, ']') + 1
			if n == 0 {
				return nil, "a class is not closed"
			}
			add(p[:n])
			p = p[n:]
		case '{':
			end := strings.IndexByte(p, '}')
			if end < 0 {
				return nil, "a brace is not closed"
			}
			if strings.IndexByte(p[1:end], '{') >= 0 {
				return nil, "braces are nested"
			}
			var next []string
			for alternative := range strings.SplitSeq(p[1:end], ",") {
				for _, t := range texts {
					next = append(next, t+alternative)
				}
				if len(next) > maxGlobAlternatives {
					return nil, fmt.Sprintf("more than %d combinations of braces", maxGlobAlternatives)
				}
			}
			texts, p = next, p[end+1:]
		}
	}
	return texts, ""
}

// Match reports whether the pattern matches a whole path.
func (g Glob) Match(name string) bool {
	if g.alternatives == nil {
		return true
	}
	parts := strings.Split(name, "/")
	for _, segments := range g.alternatives {
		if matchSegments(segments, parts) {
			return true
		}
	}
	return false
}

// matchSegments computes, segment by segment, the positions in parts that the pattern so far can reach. Backtracking
// over ** would take exponential time for some patterns.
func matchSegments(segments, parts []string) bool {
	reach := make([]bool, len(parts)+1)
	reach[0] = true
	for _, s := range segments {
		if s == "**" {
			for i := 1; i < len(reach); i++ {
				reach[i] = reach[i] || reach[i-1]
			}
			continue
		}
		for i := len(parts); i > 0; i-- {
			reach[i] = false
			if reach[i-1] {
				reach[i], _ = path.Match(s, parts[i-1]) // ParseGlob has checked its syntax
			}
		}
		reach[0] = false
	}
	return reach[len(parts)]
}
