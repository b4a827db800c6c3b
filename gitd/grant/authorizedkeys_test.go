package grant

import (
	"crypto/ed25519"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

func TestAuthorizedKeys(t *testing.T) {
	key := publicKey(t)
	at := func(s string) time.Time {
		v, err := time.Parse(time.DateOnly, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, tt := range []struct {
		line, addr, now string
		usable, admits  bool
	}{
		{key, "10.1.2.3", "2026-01-01", true, true},
		{`from="10.0.0.0/8" ` + key, "10.1.2.3", "2026-01-01", true, true},
		{`from="10.0.0.0/8,!10.1.*" ` + key, "10.1.2.3", "2026-01-01", true, false},
		{`from="192.168.1.?" ` + key, "192.168.1.7", "2026-01-01", true, true},
		{`from="192.168.1.?" ` + key, "192.168.1.77", "2026-01-01", true, false},
		{`from="host.example.org" ` + key, "10.1.2.3", "2026-01-01", true, false},
		{`from="" ` + key, "10.1.2.3", "2026-01-01", false, false},
		{`expiry-time="20260102" ` + key, "10.1.2.3", "2026-01-01", true, true},
		{`expiry-time="20260102" ` + key, "10.1.2.3", "2026-01-02", true, false},
		{`expiry-time="soon" ` + key, "10.1.2.3", "2026-01-02", false, false},
		{`restrict,no-pty,command="a \"b\", c" ` + key, "10.1.2.3", "2026-01-01", true, true},
		{`cert-authority ` + key, "10.1.2.3", "2026-01-01", false, false},
		{`ramus-repos="" ` + key, "10.1.2.3", "2026-01-01", false, false},
		{`ramus-repos="../x" ` + key, "10.1.2.3", "2026-01-01", false, false},
		{`ramus-refs="refs/heads/a..b" ` + key, "10.1.2.3", "2026-01-01", false, false},
		{`ssh-ed25519 AAAA rubbish`, "10.1.2.3", "2026-01-01", false, false},
	} {
		bad := 0
		keys := ParseAuthorizedKeys([]byte("# a comment\n\n"+tt.line+"\n"), func(int, error) { bad++ })
		if (len(keys) == 1) != tt.usable || len(keys)+bad != 1 {
			t.Errorf("%.60s: %d keys, %d faults", tt.line, len(keys), bad)
			continue
		}
		if tt.usable && keys[0].Admits(netip.MustParseAddr(tt.addr), at(tt.now)) != tt.admits {
			t.Errorf("%.60s: from %s on %s: want %v", tt.line, tt.addr, tt.now, tt.admits)
		}
	}
}

// TestAuthorizedKeyLines checks that a bad line is reported by its number and does not hide the lines after it.
func TestAuthorizedKeyLines(t *testing.T) {
	first, last := publicKey(t), publicKey(t)
	text := "# people\n\n" + first + " ada\nrubbish\n  # machines\n" + last + " bob\r\n"
	var bad []int
	keys := ParseAuthorizedKeys([]byte(text), func(line int, _ error) { bad = append(bad, line) })
	if len(keys) != 2 || keys[0].Subject != "ada" || keys[1].Subject != "bob" || !slices.Equal(bad, []int{4}) {
		t.Errorf("keys %+v, bad lines %v", keys, bad)
	}

	bad = nil
	keys = ParseAuthorizedKeys([]byte(first+"\n"+strings.Repeat("x", 64<<10)+"\n"+last+"\n"),
		func(line int, _ error) { bad = append(bad, line) })
	if len(keys) != 1 || !slices.Equal(bad, []int{2}) {
		t.Errorf("with a line that is too long: %d keys, bad lines %v", len(keys), bad)
	}
}

// TestAuthorizedKeySubject checks that a key is named by its comment if that can be shown.
func TestAuthorizedKeySubject(t *testing.T) {
	const fingerprint = "SHA256:"
	for _, tt := range []struct{ comment, want string }{
		{"ada@example.org", "ada@example.org"},
		{"Ada Lovelace", "Ada Lovelace"},
		{"Zoë ~", "Zoë ~"},
		{"a\x1bb\x7fc\u0080d\u009fe", "abcde"},
		{"a\u00a0b", "a\u00a0b"},
		{"a\xffb", "a\ufffdb"},
		{strings.Repeat("x", 200), strings.Repeat("x", 200)},
		{strings.Repeat("x", 201), fingerprint},
		{"", fingerprint},
		{"\x1b", fingerprint},
	} {
		keys := ParseAuthorizedKeys([]byte(publicKey(t)+" "+tt.comment), func(_ int, err error) { t.Error(err) })
		if len(keys) != 1 {
			t.Errorf("%q: %d keys", tt.comment, len(keys))
			continue
		}
		want := tt.want
		if want == fingerprint {
			want = gossh.FingerprintSHA256(keys[0].Key)
		}
		if keys[0].Subject != want {
			t.Errorf("%q: subject %q, want %q", tt.comment, keys[0].Subject, want)
		}
	}
}

// TestAuthorizedKeyGrant checks the rights that the options of a line leave.
func TestAuthorizedKeyGrant(t *testing.T) {
	key := publicKey(t)
	all := Grant{Subject: "ada", Repo: "a", Scopes: []string{ScopeWrite}, Write: []string{"refs/*"}, Force: true,
		Delete: true}
	for _, tt := range []struct {
		options string
		change  func(g *Grant) // nil means no rights
	}{
		{"", func(*Grant) {}},
		{`ramus-repos="a"`, func(*Grant) {}},
		{`ramus-repos="b, a"`, func(*Grant) {}},
		{`ramus-repos="a,b"`, func(*Grant) {}},
		{`RAMUS-REPOS="b"`, nil},
		{`ramus-repos="aa,b,team/a"`, nil},
		{`ramus-refs="refs/heads/x/*,refs/tags/*"`, func(g *Grant) { g.Write = []string{"refs/heads/x/*", "refs/tags/*"} }},
		{`ramus-read-only`, func(g *Grant) { g.Scopes, g.Write = []string{ScopeRead}, nil }},
		{`ramus-read-only,ramus-refs="refs/heads/x"`, func(g *Grant) { g.Scopes, g.Write = []string{ScopeRead}, nil }},
		{`ramus-no-force`, func(g *Grant) { g.Force, g.Delete = false, false }},
	} {
		keys := ParseAuthorizedKeys([]byte(tt.options+" "+key+" ada"),
			func(_ int, err error) { t.Errorf("%s: %v", tt.options, err) })
		if len(keys) != 1 {
			continue
		}
		got, ok := keys[0].Grant("a")
		want := Grant{}
		if tt.change != nil {
			want = all
			tt.change(&want)
		}
		if ok != (tt.change != nil) || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v, want %+v", tt.options, got, ok, want)
		}
	}
}

// TestAuthorizedKeyRestrictions checks that a line is not used if a restriction of it is not understood.
func TestAuthorizedKeyRestrictions(t *testing.T) {
	key := publicKey(t)
	for _, options := range []string{
		`ramus-repo="a"`, `from=10.0.0.0/8`, `from=`, `from`, `from=x"`, `from="`, `ramus-refs=","`, `ramus-refs`,
		`ramus-repos`, `ramus-repos="a,b c"`,
		`expiry-time="2026"`, `expiry-time="202601021"`, `expiry-time`, `verify-required`, `environment=A`,
	} {
		if keys := ParseAuthorizedKeys([]byte(options+" "+key), func(int, error) {}); len(keys) > 0 {
			t.Errorf("%s: %+v", options, keys)
		}
	}
}

// TestSplitOption checks quotes, of which the parser of lines lets fewer mistakes through.
func TestSplitOption(t *testing.T) {
	for _, tt := range []struct {
		option, name, value string
		ok                  bool
	}{
		{"pty", "pty", "", true},
		{`From="a"`, "from", "a", true},
		{`from=""`, "from", "", true},
		{`command="say \"hi\""`, "command", `say "hi"`, true},
		{`from=`, "", "", false},
		{`from="`, "", "", false},
		{`from="a`, "", "", false},
		{`from=a"`, "", "", false},
	} {
		name, value, err := splitOption(tt.option)
		if name != tt.name || value != tt.value || (err == nil) != tt.ok {
			t.Errorf("%s: %q, %q, %v", tt.option, name, value, err)
		}
	}
}

// TestAuthorizedKeyAdmits checks from and expiry-time at their borders.
func TestAuthorizedKeyAdmits(t *testing.T) {
	key := publicKey(t)
	for _, tt := range []struct {
		options, addr, now string
		admits             bool
	}{
		{`from="10.1.*,192.168.0.0/16"`, "192.168.3.4", "2026-01-01T00:00:00Z", true},
		{`from="!10.1.*,10.0.0.0/8"`, "10.1.2.3", "2026-01-01T00:00:00Z", false},
		{`from="!10.1.*"`, "10.2.2.3", "2026-01-01T00:00:00Z", false},
		{`from="[1]0.1.2.3"`, "10.1.2.3", "2026-01-01T00:00:00Z", false},
		{`from="2001:db8::/32"`, "2001:db8::7", "2026-01-01T00:00:00Z", true},
		{`from="*"`, "", "2026-01-01T00:00:00Z", false},
		{"", "", "2026-01-01T00:00:00Z", true},
		{`expiry-time="202601021530"`, "10.1.2.3", "2026-01-02T15:29:59Z", true},
		{`expiry-time="202601021530"`, "10.1.2.3", "2026-01-02T15:30:00Z", false},
		{`expiry-time="20260102153010Z"`, "10.1.2.3", "2026-01-02T15:30:09Z", true},
		{`expiry-time="20260102153010Z"`, "10.1.2.3", "2026-01-02T15:30:10Z", false},
		{`expiry-time="20260102",from="10.*"`, "11.1.2.3", "2026-01-01T00:00:00Z", false},
	} {
		keys := ParseAuthorizedKeys([]byte(tt.options+" "+key),
			func(_ int, err error) { t.Errorf("%s: %v", tt.options, err) })
		if len(keys) != 1 {
			continue
		}
		addr, _ := netip.ParseAddr(tt.addr) // none for ""
		now, err := time.Parse(time.RFC3339, tt.now)
		if err != nil {
			t.Fatal(err)
		}
		if keys[0].Admits(addr, now) != tt.admits {
			t.Errorf("%s: from %s at %s: want %v", tt.options, tt.addr, tt.now, tt.admits)
		}
	}
}

func FuzzAuthorizedKeys(f *testing.F) {
	key := publicKey(f)
	f.Add([]byte(key + " ada"))
	f.Add([]byte(`ramus-repos="a,b",ramus-read-only,from="10.*" ` + key))
	f.Add([]byte(`expiry-time="2026",command="\"" ` + key + "\n#\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, k := range ParseAuthorizedKeys(text, func(int, error) {}) {
			k.Admits(netip.MustParseAddr("::1"), time.Unix(0, 0))
			g, ok := k.Grant("a")
			if ok && g.Check() != nil {
				t.Errorf("a grant that is none: %+v", g)
			}
		}
	})
}

// publicKey returns a new key as a line of authorized_keys.
func publicKey(t testing.TB) string {
	t.Helper()
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := gossh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(gossh.MarshalAuthorizedKey(key)))
}
