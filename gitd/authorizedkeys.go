package gitd

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path"
	"strings"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

// authorizedKeysMax bounds the file; it is read at each login.
const authorizedKeysMax = 4 << 20

// authorizedKey is one line of an authorized_keys file (sshd(8)).
//
// The comment names the key's owner. Without options a key may do what a stock
// Git server lets its users do; options take away:
//
//	ramus-repos="a,team/b"      only these repositories
//	ramus-refs="refs/heads/x/*" only these refs may be written
//	ramus-read-only             nothing may be written
//	ramus-no-force              no update that is not a fast-forward, no deletion
//	from="10.0.0.0/8,!10.1.*"   only from these addresses (no host names)
//	expiry-time="20300101"      only until then (UTC)
//
// Those that only shape shells and forwardings, which there are none of, have
// no meaning here; command and environment are never run or set. A line with
// an option that is not known is not used: it may have been meant to protect.
type authorizedKey struct {
	key      gossh.PublicKey
	subject  string
	repos    []string // empty: all
	refs     []string // empty: all
	readOnly bool
	noForce  bool
	from     []string
	expires  time.Time // zero: never
}

// parseAuthorizedKeys reads all usable lines; bad is called with the number
// and the fault of each of the others.
func parseAuthorizedKeys(text []byte, bad func(line int, err error)) []authorizedKey {
	var keys []authorizedKey
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

func parseAuthorizedKey(line []byte) (authorizedKey, error) {
	pub, comment, options, _, err := gossh.ParseAuthorizedKey(line)
	if err != nil {
		return authorizedKey{}, err
	}
	if _, ok := pub.(*gossh.Certificate); ok {
		return authorizedKey{}, fmt.Errorf("a certificate: %w", ErrInvalid)
	}
	k := authorizedKey{key: pub, subject: strings.ToValidUTF8(strings.Map(printable, comment), "")}
	if len(k.subject) > 200 || k.subject == "" {
		k.subject = gossh.FingerprintSHA256(pub)
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
				if err := CheckName(r); err != nil {
					return k, err
				}
			}
			if len(k.repos) == 0 {
				return k, fmt.Errorf("ramus-repos names none: %w", ErrInvalid)
			}
		case "ramus-refs":
			k.refs = splitList(value)
			if len(k.refs) == 0 {
				return k, fmt.Errorf("ramus-refs names none: %w", ErrInvalid)
			}
			if err := (Grant{Subject: k.subject, Repo: "*", Write: k.refs}).check(); err != nil {
				return k, err
			}
		case "ramus-read-only":
			k.readOnly = true
		case "ramus-no-force":
			k.noForce = true
		case "from":
			if k.from = splitList(value); len(k.from) == 0 {
				return k, fmt.Errorf("from names nobody: %w", ErrInvalid)
			}
		case "expiry-time":
			if k.expires, err = parseExpiry(value); err != nil {
				return k, err
			}
		case "command", "environment", "restrict", "pty", "no-pty", "port-forwarding", "no-port-forwarding",
			"agent-forwarding", "no-agent-forwarding", "x11-forwarding", "no-x11-forwarding", "user-rc", "no-user-rc",
			"permitopen", "permitlisten", "tunnel":
		default:
			return k, fmt.Errorf("unknown option %.40q: %w", name, ErrInvalid)
		}
	}
	return k, nil
}

func printable(r rune) rune {
	if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
		return -1
	}
	return r
}

// splitOption splits NAME or NAME="VALUE", where \" stands for a quote. Names
// know no case.
func splitOption(o string) (name, value string, err error) {
	name, quoted, ok := strings.Cut(o, "=")
	name = strings.ToLower(name)
	if !ok {
		return name, "", nil
	}
	if len(quoted) < 2 || quoted[0] != '"' || quoted[len(quoted)-1] != '"' {
		return "", "", fmt.Errorf("the value of option %.40q is not quoted: %w", name, ErrInvalid)
	}
	return name, strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`), nil
}

func splitList(s string) []string {
	var list []string
	for e := range strings.SplitSeq(s, ",") {
		if e = strings.TrimSpace(e); e != "" {
			list = append(list, e)
		}
	}
	return list
}

func parseExpiry(s string) (time.Time, error) {
	s = strings.TrimSuffix(s, "Z")
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		if t, err := time.Parse(layout, s); err == nil && len(s) == len(layout) {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("expiry-time %.40q is no YYYYMMDD[HHMM[SS]]: %w", s, ErrInvalid)
}

// admits says whether the key may be used from addr at the time now.
func (k authorizedKey) admits(addr netip.Addr, now time.Time) bool {
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

func matchAddr(pattern string, addr netip.Addr) bool {
	if !addr.IsValid() {
		return false
	}
	if net, err := netip.ParsePrefix(pattern); err == nil {
		return net.Contains(addr)
	}
	// Brackets would be a class for path.Match, not for sshd.
	ok, err := path.Match(strings.ReplaceAll(pattern, "[", `\[`), addr.String())
	return err == nil && ok
}

// grant is what the key may do in the repository name; ok is false when that
// is nothing.
func (k authorizedKey) grant(name string) (g Grant, ok bool) {
	if len(k.repos) > 0 {
		for _, r := range k.repos {
			ok = ok || r == name
		}
		if !ok {
			return Grant{}, false
		}
	}
	g = Grant{Subject: k.subject, Repo: name, Scopes: []string{ScopeRead}, Force: !k.noForce, Delete: !k.noForce}
	if !k.readOnly {
		g.Scopes = []string{ScopeWrite}
		if g.Write = k.refs; len(g.Write) == 0 {
			g.Write = []string{"refs/*"}
		}
	}
	return g, true
}

// authorizedKey finds the line of a public key, with the file as it is now.
func (s *Server) authorizedKey(pub gossh.PublicKey, addr netip.Addr) (authorizedKey, error) {
	if s.AuthorizedKeys == "" {
		return authorizedKey{}, fmt.Errorf("nobody may log in: %w", ErrDenied)
	}
	f, err := os.Open(s.AuthorizedKeys)
	if errors.Is(err, fs.ErrNotExist) {
		return authorizedKey{}, fmt.Errorf("nobody may log in: %w", ErrDenied)
	}
	if err != nil {
		return authorizedKey{}, fmt.Errorf("cannot read the authorized keys: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, authorizedKeysMax+1))
	if err != nil {
		return authorizedKey{}, fmt.Errorf("cannot read the authorized keys: %w", err)
	}
	if len(text) > authorizedKeysMax {
		return authorizedKey{}, fmt.Errorf("%s has more than %d bytes: %w", s.AuthorizedKeys, authorizedKeysMax, ErrTooLarge)
	}
	wanted := pub.Marshal()
	now := s.now()
	keys := parseAuthorizedKeys(text, func(line int, err error) {
		s.log().Warn("authorized key not used", "file", s.AuthorizedKeys, "line", line, "err", err)
	})
	for _, k := range keys {
		if bytes.Equal(k.key.Marshal(), wanted) && k.admits(addr, now) {
			return k, nil
		}
	}
	return authorizedKey{}, fmt.Errorf("key %s is not authorized: %w", gossh.FingerprintSHA256(pub), ErrDenied)
}
