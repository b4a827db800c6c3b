package grant

import (
	"crypto/ed25519"
	"net/netip"
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
