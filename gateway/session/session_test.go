package session

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// clocked is a store with a clock that tests set.
type clocked struct {
	*Store
	t    *testing.T
	path string
	now  time.Time
}

func open(t *testing.T) *clocked {
	t.Helper()
	k := &clocked{t: t, path: filepath.Join(t.TempDir(), "web.db"), now: time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)}
	k.start()
	t.Cleanup(func() { k.DB.Close() })
	return k
}

func (k *clocked) start() {
	k.t.Helper()
	db, lost, err := OpenFile(k.path)
	if err != nil || lost != nil {
		k.t.Fatal(err, lost)
	}
	db.NoSync = true // no power is cut here
	k.Store = &Store{DB: db, Now: func() time.Time { return k.now }}
	if err := k.Open(); err != nil {
		k.t.Fatal(err)
	}
}

// restart opens the file again, as the next process does.
func (k *clocked) restart() {
	k.t.Helper()
	if err := k.DB.Close(); err != nil {
		k.t.Fatal(err)
	}
	k.start()
}

func (k *clocked) begin(account string) (Session, string) {
	k.t.Helper()
	s, cookie, err := k.Begin(account, From{"Firefox on Linux", "203.0.113.0/24"}, []byte("note of "+account))
	if err != nil {
		k.t.Fatal(err)
	}
	return s, cookie
}

// find uses a cookie and returns the one that the browser has then.
func (k *clocked) find(cookie string) (Found, string) {
	k.t.Helper()
	f, err := k.Find(cookie, From{}, true)
	if err != nil {
		k.t.Fatal(err)
	}
	if f.Cookie != "" {
		cookie = f.Cookie
	}
	return f, cookie
}

func (k *clocked) refused(what, cookie string, want error) {
	k.t.Helper()
	if _, err := k.Find(cookie, From{}, true); !errors.Is(err, want) {
		k.t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func TestSession(t *testing.T) {
	k := open(t)
	s, cookie := k.begin("github:1")
	k.begin("github:2")
	f, same := k.find(cookie)
	if f.ID != s.ID || f.Account != "github:1" || string(f.Note) != "note of github:1" || same != cookie {
		t.Errorf("%+v", f)
	}
	k.restart()
	if f, _ = k.find(cookie); f.ID != s.ID || string(f.Note) != "note of github:1" {
		t.Errorf("after a restart: %+v", f)
	}
	if list := k.List("github:1"); len(list) != 1 || list[0].Browser != "Firefox on Linux" || list[0].Place != "203.0.113.0/24" {
		t.Errorf("%+v", list)
	}
	if len(k.List("")) != 2 {
		t.Errorf("%+v", k.List(""))
	}
	if err := k.End(s.ID, "github:2"); !errors.Is(err, ErrNone) {
		t.Errorf("another account ends it: %v", err)
	}
	if err := k.End(s.ID, "github:1"); err != nil {
		t.Fatal(err)
	}
	k.refused("an ended session", cookie, ErrNone)
	k.restart()
	k.refused("an ended session after a restart", cookie, ErrNone)

	_, cookie = k.begin("github:3")
	family, secret, _ := decode(cookie)
	for what, value := range map[string][]byte{"cookie": []byte(cookie), "family": family, "id": secret,
		"note": []byte("note of github:3")} {
		if text, err := os.ReadFile(k.path); err != nil || bytes.Contains(text, value) {
			t.Errorf("the file has the %s, %v", what, err)
		}
	}
}

func TestSessionEndsByItself(t *testing.T) {
	k := open(t)
	_, cookie := k.begin("a")
	for range 3 { // use keeps it alive
		k.now = k.now.Add(11 * time.Hour)
		_, cookie = k.find(cookie)
	}
	k.now = k.now.Add(12 * time.Hour)
	k.refused("an idle session", cookie, ErrExpired)
	k.refused("an idle session, again", cookie, ErrNone)

	_, cookie = k.begin("a")
	end := k.now.Add(DefaultLife)
	for k.now = k.now.Add(6 * time.Hour); k.now.Before(end); k.now = k.now.Add(6 * time.Hour) {
		_, cookie = k.find(cookie)
	}
	k.refused("an old session", cookie, ErrExpired)
	if n := len(k.List("")); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

func TestNewIDs(t *testing.T) {
	k := open(t)
	_, first := k.begin("a")
	k.now = k.now.Add(DefaultRotate)
	f, second := k.find(first)
	if second == first || string(f.Note) != "note of a" {
		t.Fatalf("no new id: %+v", f)
	}
	// Parallel tabs still send the first, and get no further one.
	if f, still := k.find(first); still != first || f.Cookie != "" {
		t.Error("a parallel request got a further id")
	}
	// The answer with the second may have been lost: the first is good until the next one is used.
	k.now = k.now.Add(10 * time.Minute)
	f, third := k.find(first)
	if f.Cookie == "" || third == second {
		t.Error("an id that never arrived is not replaced")
	}
	if f, same := k.find(third); same != third || string(f.Note) != "note of a" {
		t.Errorf("the new id: %+v", f)
	}
	k.now = k.now.Add(Overlap - time.Second)
	if f, _ := k.find(first); f.Note != nil {
		t.Error("a replaced id opens the note")
	}
	k.restart()
	k.find(third)
	k.now = k.now.Add(time.Second)
	ended, stop := k.Watch(f.ID)
	defer stop()
	k.refused("a replay", first, ErrReplayed)
	<-ended
	k.refused("the newest id after a replay", third, ErrNone)
	k.restart()
	k.refused("the newest id after a replay and a restart", third, ErrNone)
}

func TestChangedRoles(t *testing.T) {
	k := open(t)
	s, cookie := k.begin("a")
	other, _ := k.begin("b")
	ended, stop := k.Watch(s.ID)
	defer stop()
	quiet, stopQuiet := k.Watch(other.ID)
	defer stopQuiet()
	if err := k.Changed("a"); err != nil {
		t.Fatal(err)
	}
	<-ended
	select {
	case <-quiet:
		t.Error("the observer of another account was woken")
	default:
	}
	f, next := k.find(cookie)
	if f.Cookie == "" {
		t.Error("no new id after a change of roles")
	}
	if f, _ := k.find(next); f.Cookie != "" {
		t.Error("a second new id after one change")
	}
}

func TestEndAll(t *testing.T) {
	k := open(t)
	var own Session
	var watched []<-chan struct{}
	for range 5 {
		own, _ = k.begin("a")
		ended, stop := k.Watch(own.ID)
		defer stop()
		watched = append(watched, ended)
	}
	other, _ := k.begin("b")
	if n, err := k.EndAll("a", own.ID); n != 4 || err != nil {
		t.Errorf("%d ended, %v", n, err)
	}
	for _, ended := range watched[:4] {
		<-ended
	}
	if _, ok := k.Get(own.ID); !ok {
		t.Error("the excepted session has ended")
	}
	if _, ok := k.Get(other.ID); !ok {
		t.Error("the session of another account has ended")
	}
	if ended, stop := k.Watch("nothing"); ended != nil {
		<-ended
		stop()
	}
}

// A socket keeps its session alive, which else ends after twelve hours without use.
func TestWatchedSessionIsInUse(t *testing.T) {
	k := open(t)
	s, cookie := k.begin("a")
	_, stop := k.Watch(s.ID)
	k.now = k.now.Add(20 * time.Hour)
	if _, ok := k.Get(s.ID); !ok {
		t.Error("it ended under an open socket")
	}
	stop()
	k.now = k.now.Add(11 * time.Hour)
	k.find(cookie)
}

func TestSessionsAreBounded(t *testing.T) {
	k := open(t)
	_, oldest := k.begin("a")
	k.now = k.now.Add(time.Second)
	for range maxOwn {
		k.begin("a")
	}
	if n := len(k.List("a")); n != maxOwn {
		t.Errorf("%d sessions", n)
	}
	k.refused("the session that was not used for the longest time", oldest, ErrNone)
	if _, _, err := k.Begin("a", From{}, make([]byte, maxNote+1)); err == nil {
		t.Error("a large note is taken")
	}
}

// TestRandomUse has a browser with several tabs, lost answers and restarts use a session for days, and never loses it.
func TestRandomUse(t *testing.T) {
	k := open(t)
	r := rand.New(rand.NewPCG(1, 2))
	_, cookie := k.begin("a")
	for range 400 {
		k.now = k.now.Add(time.Duration(r.IntN(1200)) * time.Second)
		if k.now.After(k.List("a")[0].Ends.Add(-time.Hour)) {
			break
		}
		sent := cookie
		for range 1 + r.IntN(3) { // tabs that load at once
			f, err := k.Find(sent, From{}, true)
			if err != nil {
				t.Fatal(err)
			}
			if f.Cookie != "" && r.IntN(4) > 0 { // else the answer is lost
				cookie = f.Cookie
			}
		}
		if r.IntN(20) == 0 {
			k.restart()
		}
	}
}

func TestDamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.db")
	if err := os.WriteFile(path, bytes.Repeat([]byte("damaged "), 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	db, lost, err := OpenFile(path)
	if err != nil || lost == nil {
		t.Fatal(err, lost)
	}
	defer db.Close()
	if err := (&Store{DB: db}).Open(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path + ".damaged"); err != nil {
		t.Error(err)
	}
	_, _, err = OpenFile(filepath.Join(path, "below"))
	if err == nil {
		t.Error("a file below a file was opened")
	}
}

func FuzzCookie(f *testing.F) {
	dir := f.TempDir()
	db, _, err := OpenFile(filepath.Join(dir, "web.db"))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { db.Close() })
	s := &Store{DB: db}
	if err := s.Open(); err != nil {
		f.Fatal(err)
	}
	_, cookie, err := s.Begin("a", From{}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add("")
	f.Add(strings.Repeat("A", len(cookie)))
	f.Add(cookie[:len(cookie)-1] + "=")
	f.Add(cookie + "A")
	f.Add(strings.Repeat("\xff", len(cookie)))
	f.Fuzz(func(t *testing.T, value string) {
		if value == cookie {
			return
		}
		if _, err := s.Find(value, From{}, true); !errors.Is(err, ErrNone) {
			t.Errorf("%q: %v", value, err)
		}
		if family, secret, ok := decode(value); ok && encode(family, secret) != value {
			t.Errorf("%q has a second spelling", value)
		}
	})
}

func TestBrowser(t *testing.T) {
	for agent, want := range map[string]string{
		"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0":                                              "Firefox on Linux",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36 Edg/140": "Edge on Windows",
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18 Safari/605.1.15": "Safari on macOS",
		"Mozilla/5.0 (Linux; Android 15) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Mobile Safari/537.36":            "Chrome on Android",
		"curl/8.5.0": "curl", "": "a browser", "<script>": "a browser", "Lynx Linux": "a browser on Linux",
	} {
		if got := Browser(agent); got != want {
			t.Errorf("%q is %q, want %q", agent, got, want)
		}
	}
}

func TestPlace(t *testing.T) {
	for _, x := range []struct{ remote, forwarded, want string }{
		{"203.0.113.77:1234", "", "203.0.113.0/24"}, {"203.0.113.77:1234", "198.51.100.1", "203.0.113.0/24"},
		{"127.0.0.1:1234", "", "this machine"}, {"127.0.0.1:1234", "10.0.0.1, 198.51.100.9", "198.51.100.0/24"},
		{"127.0.0.1:1234", "garbage", "this machine"},
		{"[2001:db8:1:2:3::4]:1", "", "2001:db8:1::/56"}, {"[::ffff:203.0.113.7]:1", "", "203.0.113.0/24"},
		{"[::1]:1", "", "this machine"}, {"@", "", ""},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = x.remote
		if x.forwarded != "" {
			r.Header.Set("X-Forwarded-For", x.forwarded)
		}
		if got := Place(r); got != x.want {
			t.Errorf("%+v: %q", x, got)
		}
	}
	if got := Network(netip.Addr{}); got != "" {
		t.Errorf("no address is in %q", got)
	}
}
