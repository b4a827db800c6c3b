package pathspec

import "strings"

// pattern is a parsed pattern of .gitignore and .gitattributes (gitignore(5), "PATTERN
// FORMAT"). Where the manual of git and git differ, it follows git.
type pattern struct {
	negative bool // begins with "!"
	folder   bool // ends with "/", so only folders match
	name     bool // has no "/", so only the last part of a path is matched
	literal  string
	glob     glob // follows literal, which ends before the first wildcard, nil if nothing follows
	suffix   bool // is "*" and a literal, so it matches names that end with literal
	// newer is set if releases of git read the pattern differently. Releases before 2.50 drop
	// the text before the first wildcard, so that the "**" of "a**/b" seems to begin a part of
	// the path.
	newer glob
}

// parsePattern parses one pattern, which ends at a NUL.
func parsePattern(s string) pattern {
	s, _, _ = strings.Cut(s, "\x00")
	var p pattern
	s, p.negative = strings.CutPrefix(s, "!")
	s, p.folder = strings.CutSuffix(s, "/")
	p.name = !strings.Contains(s, "/")
	plain := strings.IndexAny(s, wildcards)
	if plain < 0 {
		plain = len(s)
	}
	if p.name {
		if rest, ok := strings.CutPrefix(s, "*"); ok && !strings.ContainsAny(rest, wildcards) {
			p.suffix, p.literal = true, rest
			return p
		}
		p.literal = s[:plain]
		p.glob = compileGlob(s, plain, false)
		return p
	}
	if s[0] == '/' {
		s, plain = s[1:], plain-1
	}
	p.literal = s[:plain]
	p.glob = compileGlob(s[plain:], 0, true)
	if plain > 0 && s[plain-1] != '/' && strings.HasPrefix(s[plain:], "**") {
		p.newer = compileGlob(s, plain, true)
	}
	return p
}

const wildcards = `*?[\`

// Tally sums the cost of a series of matches. The zero value is ready for use. It is not
// safe for concurrent use.
type Tally struct {
	Steps     int  // the cost in small steps of roughly equal time
	Ambiguous bool // releases of git disagree about a match
}

// match reports whether the pattern matches path, which is relative to the folder of the
// pattern's file. name is the last part of path.
func (p *pattern) match(path, name string, folder bool, m *Tally) bool {
	m.Steps++
	if p.folder && !folder {
		return false
	}
	if p.name {
		path = name
	}
	if p.suffix {
		return strings.HasSuffix(path, p.literal)
	}
	rest, ok := strings.CutPrefix(path, p.literal)
	if !ok {
		return false
	}
	if len(p.glob) == 0 {
		return rest == ""
	}
	ok = p.glob.match(rest, &m.Steps)
	if p.newer != nil && ok != p.newer.match(rest, &m.Steps) {
		m.Ambiguous = true
	}
	return ok
}

// glob is a wildcard pattern in pieces. A glob that cannot match anything is a single
// piece of kind globNone.
type glob []globPiece

type globPiece struct {
	kind globKind
	char byte
	set  *charSet
}

// charSet is a set of bytes.
type charSet [4]uint64

func (s *charSet) has(c byte) bool { return s[c>>6]>>(c&63)&1 != 0 }
func (s *charSet) add(c byte)      { s[c>>6] |= 1 << (c & 63) }
func (s *charSet) remove(c byte)   { s[c>>6] &^= 1 << (c & 63) }

// anyChar and notSlash are the sets that "?" matches in names and in paths.
var (
	anyChar  = &charSet{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}
	notSlash = func() *charSet { s := *anyChar; s.remove('/'); return &s }()
)

type globKind byte

const (
	globChar globKind = iota
	globSet           // one of set
	globStar          // any characters but "/"
	globAll           // any characters
	globDirs          // nothing, or any characters that end with "/"
	globNone          // nothing at all, such as a set that is not closed
)

// compileGlob parses s[from:]. In a path, unlike in a name, only the wildcard "**" between
// slashes matches a slash.
func compileGlob(s string, from int, path bool) glob {
	var g glob
	never := glob{{kind: globNone}}
	for i := from; i < len(s); {
		switch c := s[i]; c {
		case '\\':
			if i+1 == len(s) {
				return never
			}
			g = append(g, globPiece{kind: globChar, char: s[i+1]})
			i += 2
		case '?':
			set := anyChar
			if path {
				set = notSlash
			}
			g = append(g, globPiece{kind: globSet, set: set})
			i++
		case '[':
			set, n := parseGlobSet(s[i:])
			if n == 0 {
				return never
			}
			if path {
				set.remove('/')
			}
			g = append(g, globPiece{kind: globSet, set: set})
			i += n
		case '*':
			begin := i
			for i < len(s) && s[i] == '*' {
				i++
			}
			whole := i-begin > 1 && (begin == 0 || s[begin-1] == '/') &&
				(i == len(s) || s[i] == '/' || strings.HasPrefix(s[i:], `\/`))
			switch {
			case !path:
				g = append(g, globPiece{kind: globAll})
			case whole && i < len(s) && s[i] == '/':
				g = append(g, globPiece{kind: globDirs})
				i++
			case whole:
				g = append(g, globPiece{kind: globAll})
			default:
				g = append(g, globPiece{kind: globStar})
			}
		default:
			g = append(g, globPiece{kind: globChar, char: c})
			i++
		}
	}
	return g
}

// parseGlobSet parses a set such as "[a-z]" at the start of s and returns its length. The
// length is 0 if the set is not closed or names an unknown class.
func parseGlobSet(s string) (*charSet, int) {
	i := 1
	at := func(i int) byte {
		if i < len(s) {
			return s[i]
		}
		return 0
	}
	negated := at(i) == '!' || at(i) == '^'
	if negated {
		i++
	}
	var set charSet
	var last byte // the first character of a range that follows, 0 if none can follow
	for first := true; first || at(i) != ']'; first = false {
		c := at(i)
		switch {
		case c == 0:
			return nil, 0
		case c == '\\':
			i++
			if c = at(i); c == 0 {
				return nil, 0
			}
			set.add(c)
			last = c
		case c == '-' && last != 0 && at(i+1) != 0 && at(i+1) != ']':
			i++
			if c = at(i); c == '\\' {
				i++
				if c = at(i); c == 0 {
					return nil, 0
				}
			}
			for n := int(last); n <= int(c); n++ {
				set.add(byte(n))
			}
			last = 0
		case c == '[' && at(i+1) == ':':
			end := strings.IndexByte(s[i+2:], ']')
			if end < 0 {
				return nil, 0
			}
			name, closed := strings.CutSuffix(s[i+2:i+2+end], ":")
			if !closed {
				set.add('[')
				last = '['
				break
			}
			in := charClasses[name]
			if in == nil {
				return nil, 0
			}
			for n := range 256 {
				if in(byte(n)) {
					set.add(byte(n))
				}
			}
			i += 2 + end
			last = 0
		default:
			set.add(c)
			last = c
		}
		i++
	}
	if negated {
		for n := range set {
			set[n] = ^set[n]
		}
	}
	return &set, i + 1
}

// charClasses are the ASCII classes of characters that sets may name. White space is
// defined as in git.
var charClasses = map[string]func(byte) bool{
	"alnum":  func(c byte) bool { return isDigit(c) || isLetter(c) },
	"alpha":  isLetter,
	"blank":  func(c byte) bool { return c == ' ' || c == '\t' },
	"cntrl":  func(c byte) bool { return c < ' ' || c == 0x7f },
	"digit":  isDigit,
	"graph":  func(c byte) bool { return c > ' ' && c < 0x7f },
	"lower":  func(c byte) bool { return 'a' <= c && c <= 'z' },
	"print":  func(c byte) bool { return c >= ' ' && c < 0x7f },
	"punct":  func(c byte) bool { return c > ' ' && c < 0x7f && !isDigit(c) && !isLetter(c) },
	"space":  func(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' },
	"upper":  func(c byte) bool { return 'A' <= c && c <= 'Z' },
	"xdigit": func(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' },
}

func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// match reports whether the pieces match all of s. Of two wildcards of one kind only the
// later one is retried with more characters, because it can match everything that the
// earlier one could match instead. A hostile pattern therefore costs a polynomial of its
// length and not an exponential. match adds its cost to steps.
func (g glob) match(s string, steps *int) bool {
	type point struct{ piece, at int } // the wildcard to retry if the next piece does not match
	none := point{-1, 0}
	star, deep := none, none
	i, at := 0, 0
	for {
		*steps++
		if i < len(g) {
			switch p := g[i]; p.kind {
			case globStar:
				star = point{i, at}
				i++
				continue
			case globAll, globDirs:
				deep, star = point{i, at}, none
				i++
				continue
			case globChar, globSet:
				if at < len(s) && (p.kind == globChar && s[at] == p.char || p.kind == globSet && p.set.has(s[at])) {
					i++
					at++
					continue
				}
			case globNone:
				return false
			}
		} else if at == len(s) {
			return true
		}
		switch {
		case star.piece >= 0 && star.at < len(s) && s[star.at] != '/':
			star.at++
			i, at = star.piece+1, star.at
		case deep.piece >= 0 && g[deep.piece].kind == globAll && deep.at < len(s):
			deep.at++
			star = none
			i, at = deep.piece+1, deep.at
		case deep.piece >= 0 && g[deep.piece].kind == globDirs && strings.Contains(s[deep.at:], "/"):
			deep.at += strings.IndexByte(s[deep.at:], '/') + 1
			star = none
			i, at = deep.piece+1, deep.at
		default:
			return false
		}
	}
}
