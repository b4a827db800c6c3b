package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evanw/esbuild/pkg/api"
	"github.com/gorilla/websocket"

	"github.com/ramus-dev/ramus/executor/terminal"
	wire "github.com/ramus-dev/ramus/gateway/terminal"
	"github.com/ramus-dev/ramus/gateway/web"
)

// cuts is the number of connections that TestScreen cuts.
const cuts = 200

// TestScreen shows a stream of emoji, Chinese characters and escape sequences over connections that are cut at random
// bytes. The screen is the same as that of the uncut stream, cell by cell, after every 10,000 bytes and at the end. The
// client is that of the pages.
func TestScreen(t *testing.T) {
	if testing.Short() {
		t.Skip("cannot run here: it starts node")
	}
	needs(t, "node_modules/@xterm/headless")
	dir := t.TempDir()
	node, program := forNode(t, dir, "headless.ts")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	stream := append(noise(rnd, 1_000_000-2), "\r\n"...) // the client shows the last character if it is complete
	file := filepath.Join(dir, "stream")
	if err := os.WriteFile(file, stream, 0o600); err != nil {
		t.Fatal(err)
	}

	term := terminal.New("1", terminal.Size{Rows: 24, Cols: 80})
	term.Attach(silent{}, 0, 0)
	defer term.Detach(func() {})
	server := httptest.NewUnstartedServer(viewers(t, term))
	blades := &scissors{Listener: server.Listener, rnd: rand.New(rand.NewPCG(seed, 1)), left: cuts}
	server.Listener = blades
	server.Start()
	defer server.Close()
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() { // some output is older than a connection, and some comes while it is open
		for rest := stream; len(rest) > 0; {
			n := min(len(rest), 1+rnd.IntN(3000))
			_, _ = term.Write(rest[:n])
			rest = rest[n:]
		}
	})

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "--no-warnings", "--experimental-websocket", program,
		"ws"+strings.TrimPrefix(server.URL, "http"), file)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var result struct {
		Bytes, Connections, Resets, Looks, Lines int
		Difference                               string
	}
	if err == nil {
		err = json.Unmarshal(out, &result)
	}
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr.String())
	}
	if result.Bytes != len(stream) || result.Resets != 0 || result.Connections <= cuts ||
		result.Looks != len(stream)/10_000 || result.Lines < 1000 {
		t.Errorf("%+v of %d bytes and %d cuts", result, len(stream), cuts)
	}
	if result.Difference != "" {
		t.Errorf("the screens differ: %s", result.Difference)
	}
}

// forNode builds a program of testdata into a folder. Returns node and the program.
func forNode(t *testing.T, dir, name string) (node, program string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		missing(t, "there is no node")
	}
	program = filepath.Join(dir, strings.TrimSuffix(name, ".ts")+".cjs")
	built := api.Build(api.BuildOptions{EntryPoints: []string{filepath.Join("testdata", name)}, Outfile: program,
		Bundle: true, Platform: api.PlatformNode, Format: api.FormatCommonJS, Write: true})
	if len(built.Errors) > 0 {
		t.Fatal(built.Errors)
	}
	return node, program
}

// TestPauses cuts a connection of a terminal again and again. The next try comes at once if the connection lasted a
// while, and the first times in any case. A server that ends each connection at once gets long pauses.
func TestPauses(t *testing.T) {
	if testing.Short() {
		t.Skip("cannot run here: it starts node")
	}
	node, program := forNode(t, t.TempDir(), "pauses.ts")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, node, program).Output()
	var pauses []float64
	if err == nil {
		err = json.Unmarshal(out, &pauses)
	}
	if err != nil || len(pauses) != 74 {
		t.Fatalf("%v %s", err, out)
	}
	if last := pauses[73]; last < 10_000 {
		t.Errorf("a server that always ends connections gets a try after %.0f ms", last)
	}
	for i, pause := range pauses[:14] {
		if soon := i < 8 || i >= 12; soon && pause > 100 || !soon && i > 8 && pause < 500 {
			t.Errorf("pause %d takes at most %.0f ms: %v", i, pause, pauses)
		}
	}
}

// TestProbe wakes a terminal whose server does not answer for a while. The longer the connection took to open, the
// longer the answer may take.
func TestProbe(t *testing.T) {
	if testing.Short() {
		t.Skip("cannot run here: it starts node")
	}
	node, program := forNode(t, t.TempDir(), "probe.ts")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, node, program).Output()
	if got := strings.TrimSpace(string(out)); err != nil || got != "dropped after 2000, dropped after 5000, kept" {
		t.Errorf("%v %s", err, got)
	}
}

// needs skips a test for which a folder of packages is missing. It fails if CI is set.
func needs(t *testing.T, folder string) {
	t.Helper()
	if _, err := os.Stat(folder); err != nil {
		missing(t, "`npm ci` in gateway/web brings "+strings.TrimPrefix(folder, "node_modules/"))
	}
}

func missing(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip("cannot run here: " + why)
}

// silent is a program that takes everything.
type silent struct{}

func (silent) Input([]byte) error         { return nil }
func (silent) Resize(terminal.Size) error { return nil }
func (silent) Ack(int64) error            { return nil }

// viewers serves a terminal to viewers.
func viewers(t *testing.T, term *terminal.Terminal) http.HandlerFunc {
	up := websocket.Upgrader{Subprotocols: []string{wire.Subprotocol}}
	return func(w http.ResponseWriter, r *http.Request) {
		conn, err := up.Upgrade(w, r, nil)
		if err != nil {
			return // it was cut
		}
		defer conn.Close()
		f, err := read(conn)
		if err != nil {
			return
		}
		if f.Type != wire.FrameHello {
			t.Errorf("the first frame has the type %x", f.Type)
			return
		}
		size := terminal.Size{Rows: f.Hello.Rows, Cols: f.Hello.Cols}
		v, err := term.View(terminal.ViewOptions{Have: f.Hello.Have, Size: size})
		if err != nil {
			return // earlier viewers have not yet noticed their end
		}
		defer v.Close()
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		var reading sync.WaitGroup
		defer reading.Wait()
		defer conn.Close()
		reading.Go(func() {
			defer cancel()
			for {
				f, err := read(conn)
				if err != nil {
					return
				}
				if f.Type == wire.FrameAck {
					v.Ack(f.Offset)
				}
			}
		})
		show(ctx, conn, v)
	}
}

func read(conn *websocket.Conn) (wire.Frame, error) {
	_, message, err := conn.ReadMessage()
	if err != nil {
		return wire.Frame{}, err
	}
	return wire.Decode(message)
}

// show sends the items of a viewer, until the connection ends. Output is cut at random bytes.
func show(ctx context.Context, conn *websocket.Conn, v *terminal.Viewer) {
	types := map[terminal.ItemKind]byte{terminal.ItemState: wire.FrameState, terminal.ItemReset: wire.FrameReset,
		terminal.ItemOutput: wire.FrameOutput, terminal.ItemDone: wire.FrameMark}
	for {
		item, err := v.Next(ctx)
		if err != nil {
			return
		}
		for first := true; first || len(item.Data) > 0; first = false {
			n := len(item.Data)
			if item.Kind == terminal.ItemOutput {
				n = min(n, 1+rand.IntN(500))
			}
			f := wire.Frame{Type: types[item.Kind], Offset: item.Offset, Data: item.Data[:n], Reason: item.Reason,
				State: item.State, Done: item.Done}
			message, err := f.Encode()
			if err != nil || conn.WriteMessage(websocket.BinaryMessage, message) != nil {
				return
			}
			item.Data, item.Offset = item.Data[n:], item.Offset+int64(n)
		}
	}
}

// scissors is a listener that cuts its first connections after random numbers of bytes.
type scissors struct {
	net.Listener
	mu   sync.Mutex // guards all below
	rnd  *rand.Rand
	left int // connections to cut
}

func (s *scissors) Accept() (net.Conn, error) {
	conn, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left == 0 {
		return conn, nil
	}
	s.left--
	return &thread{Conn: conn, left: s.rnd.IntN(8000)}, nil
}

// thread is a connection that ends after some bytes.
type thread struct {
	net.Conn
	mu   sync.Mutex // guards left
	left int
}

func (c *thread) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(p) <= c.left {
		c.left -= len(p)
		return c.Conn.Write(p)
	}
	n, _ := c.Conn.Write(p[:c.left])
	c.left = 0
	c.Conn.Close()
	return n, net.ErrClosed
}

// noise returns n bytes of what programs print, and of what they should not. Wide characters come with wraparound only.
// Without it, xterm.js 6.0 shows those at the right margin differently if they come in two pieces.
func noise(rnd *rand.Rand, n int) []byte {
	words := []string{"ls -l ", "the quick brown fox ", "\t", "\r\n", "\r\n", "\b", "字", "漢字かな交じり文", "한국어 ", "🙂",
		"\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "e\u0301", "\u200d", "“quoted” – ", "ﷺ", "\x1b[0m", "\x1b[K",
		"\x1b[1K", "\x1b[2J", "\x1b[H", "\x1b7", "\x1b8", "\x1b[?25l", "\x1b[?25h",
		"\x1b[?1049h", "\x1b[?1049l", "\x1b[?2004h", "\x1b[?7lthe quick brown fox\x1b[?7h", "\x1b[r", "\x1bM", "\x1bD", "\x1b[L", "\x1b[M", "\x1b[3@",
		"\x1b[2P", "\x1b[4X", "\x1b(0lqqk\x1b(B", "\x1b]2;a title 字\a", "\x1b]8;;https://example.org/\x1b\\link\x1b]8;;\x1b\\",
		"\x1b]633;C\a", "\x1bPq#0~~\x1b\\", "\x1b[", "\xf0\x9f", "\xff", "\xe5\xad", "\x18", "\x1b]0;never ended"}
	var b bytes.Buffer
	for b.Len() < n {
		switch k := rnd.IntN(100); {
		case k < 8:
			fmt.Fprintf(&b, "\x1b[%d;%d;38;5;%dm", rnd.IntN(10), 30+rnd.IntN(78), rnd.IntN(256))
		case k < 12:
			fmt.Fprintf(&b, "\x1b[48;2;%d;%d;%dm", rnd.IntN(256), rnd.IntN(256), rnd.IntN(256))
		case k < 18:
			fmt.Fprintf(&b, "\x1b[%d;%dH", rnd.IntN(26), rnd.IntN(90))
		case k < 19:
			fmt.Fprintf(&b, "\x1b[%d;%dr", 1+rnd.IntN(12), 13+rnd.IntN(12))
		case k < 24:
			fmt.Fprintf(&b, "\x1b[%d%c", rnd.IntN(9), "ABCDGSTd"[rnd.IntN(8)])
		case k < 26:
			b.WriteString("\x1b[r\x1b[24;1H\r\n\r\n")
		default:
			b.WriteString(words[rnd.IntN(len(words))])
		}
	}
	return b.Bytes()[:n]
}

// TestShellPane tests that only the page that shows a terminal loads its files and has a nonce, which is a fresh one in each
// answer, and that the line console is there in every build.
func TestShellPane(t *testing.T) {
	w := open(t, ada, func(api *web.API) { api.Assets = built(t) })
	w.fill(0)
	shell := "/workspaces/run-brave-otter?pane=shell"
	_, header, body := w.get(shell)
	if !strings.Contains(body, `action="/workspaces/run-brave-otter/command"`) {
		t.Error("the page has no line console")
	}
	needs(t, "node_modules/@xterm/xterm")
	nonce := nonceOf(header)
	if nonce == "" || !strings.Contains(body, `nonce="`+nonce+`"`) || header.Get("Cache-Control") != "private, no-store" {
		t.Errorf("the nonce %q: %v", nonce, header)
	}
	if strings.Contains(header.Get("Content-Security-Policy"), "unsafe") {
		t.Error(header.Get("Content-Security-Policy"))
	}
	if !strings.Contains(body, "/assets/term.") || strings.Contains(body, `<script type="module" src="/assets/term.`) {
		t.Error("the page does not name the terminal, or loads it at once")
	}
	if _, again, _ := w.get(shell); nonceOf(again) == nonce {
		t.Error("two answers have the same nonce")
	}
	for _, path := range []string{"/dashboard", "/workspaces/run-brave-otter?pane=preview"} {
		_, header, body := w.get(path)
		if nonceOf(header) != "" || strings.Contains(body, "/assets/term.") {
			t.Errorf("%s loads the terminal: %v", path, header)
		}
	}
}

// nonceOf returns the nonce of a policy for styles, or "".
func nonceOf(h http.Header) string {
	_, rest, _ := strings.Cut(h.Get("Content-Security-Policy"), "style-src 'self' 'nonce-")
	nonce, _, _ := strings.Cut(rest, "'")
	return nonce
}
