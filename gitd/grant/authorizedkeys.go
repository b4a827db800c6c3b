package grant

import (
	"bufio"
	"bytes"
	"fmt"
	"net/netip"
	"path"
	"strings"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/ramus-dev/ramus/gitd/object"
)

// AuthorizedKey is one line of an authorized_keys file (sshd(8)).
//
// The comment names the owner of the key. Without options a key has the rights that a stock Git server gives
// its users. Options restrict it:
//
//	ramus-repos="a,team/b"      only these repositories
//	ramus-refs="refs/heads/x/*" only these refs may be written
//	ramus-read-only             nothing may be written
//	ramus-no-force              no update that is not a fast-forward, no deletion
//	ramus-shell                 workspaces whose branches may be written are open, too
//	from="10.0.0.0/8,!10.1.*"   only from these addresses (no host names)
//	expiry-time="20300101"      only until then (UTC)
//
// Options of sshd for shells and forwardings have no effect. Without ramus-shell there are none. command and
// environment are never run or set. A line with an unknown option is not used, because the option may
// have been meant as a restriction.
type AuthorizedKey struct {
	Key      gossh.PublicKey
	Subject  string
	repos    []string // empty means all
	refs     []string // empty means all
	readOnly bool
	noForce  bool
	shell    bool
	from     []string
	expires  time.Time // zero means never
}

// ParseAuthorizedKeys returns all usable lines. It calls bad with the number and the fault of each other
// line.
func ParseAuthorizedKeys(text []byte, bad func(line int, err error)) []AuthorizedKey {
	var keys []AuthorizedKey
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 64<<10)
	n := 0
	for lines.Scan() {
		n++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		k, err := parseAuthorizedKey(line)
		if err != nil {
			bad(n, err)
			continue
		}
		keys = append(keys, k)
	}
	if err := lines.Err(); err != nil {
		bad(n+1, err)
	}
	return keys
}

// parseAuthorizedKey parses one line.
func parseAuthorizedKey(line []byte) (AuthorizedKey, error) {
	pub, comment, options, _, err := gossh.ParseAuthorizedKey(line)
	if err != nil {
		return AuthorizedKey{}, err
	}
	if _, ok := pub.(*gossh.Certificate); ok {
		return AuthorizedKey{}, fmt.Errorf("a certificate: %w", object.ErrInvalid)
	}
	k := AuthorizedKey{Key: pub, Subject: strings.ToValidUTF8(strings.Map(printable, comment), "")}
	if len(k.Subject) > 200 || k.Subject == "" {
		k.Subject = gossh.FingerprintSHA256(pub)
	}
	for _, o := range options {
		name, value, err := splitOption(o)
		if err != nil {
			return k, err
		}
		switch name {
		case "ramus-repos":
			k.repos = splitList(value)
			for _, r := range k.repos {
				if err := object.CheckName(r); err != nil {
					return k, err
				}
			}
			if len(k.repos) == 0 {
				return k, fmt.Errorf("ramus-repos names none: %w", object.ErrInvalid)
			}
		case "ramus-refs":
			k.refs = splitList(value)
			if len(k.refs) == 0 {
				return k, fmt.Errorf("ramus-refs names none: %w", object.ErrInvalid)
			}
			if err := (Grant{Subject: k.Subject, Repo: "*", Write: k.refs}).Check(); err != nil {
				return k, err
			}
		case "ramus-read-only":
			k.readOnly = true
		case "ramus-no-force":
			k.noForce = true
		case "ramus-shell":
			k.shell = true
		case "from":
			if k.from = splitList(value); len(k.from) == 0 {
				return k, fmt.Errorf("from names nobody: %w", object.ErrInvalid)
			}
		case "expiry-time":
			if k.expires, err = parseExpiry(value); err != nil {
				return k, err
			}
		case "command", "environment", "restrict", "pty", "no-pty", "port-forwarding", "no-port-forwarding",
			"agent-forwarding", "no-agent-forwarding", "x11-forwarding", "no-x11-forwarding", "user-rc", "no-user-rc",
			"permitopen", "permitlisten", "tunnel":
		default:
			return k, fmt.Errorf("unknown option %.40q: %w", name, object.ErrInvalid)
		}
	}
	return k, nil
}

// MayShell reports whether the key opens workspaces.
func (k AuthorizedKey) MayShell() bool { return k.shell && !k.readOnly }

// printable returns r, or -1 for a control character.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
		return -1
	}
	return r
}

// splitOption splits NAME or NAME="VALUE", in which \" is a quote. It returns the name in lower case.
func splitOption(o string) (name, value string, err error) {
	name, quoted, ok := strings.Cut(o, "=")
	name = strings.ToLower(name)
	if !ok {
		return name, "", nil
	}
	if len(quoted) < 2 || quoted[0] != '"' || quoted[len(quoted)-1] != '"' {
		return "", "", fmt.Errorf("the value of option %.40q is not quoted: %w", name, object.ErrInvalid)
	}
	return name, strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`), nil
}

// splitList splits a list at its commas and drops empty elements.
func splitList(s string) []string {
	var list []string
	for e := range strings.SplitSeq(s, ",") {
		if e = strings.TrimSpace(e); e != "" {
			list = append(list, e)
		}
	}
	return list
}

// parseExpiry parses the value of expiry-time.
func parseExpiry(s string) (time.Time, error) {
	s = strings.TrimSuffix(s, "Z")
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		if t, err := time.Parse(layout, s); err == nil && len(s) == len(layout) {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("expiry-time %.40q is not YYYYMMDD[HHMM[SS]]: %w", s, object.ErrInvalid)
}

// Admits reports whether the key may be used from addr at the time now.
func (k AuthorizedKey) Admits(addr netip.Addr, now time.Time) bool {
	if !k.expires.IsZero() && !now.Before(k.expires) {
		return false
	}
	if len(k.from) == 0 {
		return true
	}
	found := false
	for _, p := range k.from {
		p, not := strings.CutPrefix(p, "!")
		if !matchAddr(p, addr) {
			continue
		}
		if not {
			return false
		}
		found = true
	}
	return found
}

// matchAddr reports whether addr is in a network or matches a pattern of sshd.
func matchAddr(pattern string, addr netip.Addr) bool {
	if !addr.IsValid() {
		return false
	}
	if net, err := netip.ParsePrefix(pattern); err == nil {
		return net.Contains(addr)
	}
	// Brackets form a class for path.Match, but not for sshd.
	ok, err := path.Match(strings.ReplaceAll(pattern, "[", `\[`), addr.String())
	return err == nil && ok
}

// Grant returns the rights of the key in the repository name. ok is false if that is nothing.
func (k AuthorizedKey) Grant(name string) (g Grant, ok bool) {
	if len(k.repos) > 0 {
		for _, r := range k.repos {
			ok = ok || r == name
		}
		if !ok {
			return Grant{}, false
		}
	} else if name == PeopleRepo {
		return Grant{}, false
	}
	g = Grant{Subject: k.Subject, Repo: name, Scopes: []string{ScopeRead}, Force: !k.noForce, Delete: !k.noForce}
	if !k.readOnly {
		g.Scopes = []string{ScopeWrite}
		if g.Write = k.refs; len(g.Write) == 0 {
			g.Write = []string{"refs/*"}
		}
	}
	return g, true
}
