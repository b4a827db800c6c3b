package terminal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/ramus-dev/ramus/gitd"
)

// program is a Process that records its calls.
type program struct {
	mu    sync.Mutex
	deeds []string
	acked int64
	calls chan struct{}
	block chan struct{} // if not nil, input waits for it
}

func newProgram() *program { return &program{calls: make(chan struct{}, 1000)} }

func (p *program) note(text string) {
	p.mu.Lock()
	p.deeds = append(p.deeds, text)
	p.mu.Unlock()
	p.calls <- struct{}{}
}

func (p *program) Input(b []byte) error {
	if p.block != nil {
		<-p.block
	}
	p.note("input " + string(b))
	return nil
}
func (p *program) Resize(s Size) error { p.note(fmt.Sprintf("size %dx%d", s.Rows, s.Cols)); return nil }
func (p *program) Ack(n int64) error {
	p.mu.Lock()
	p.acked = n
	p.mu.Unlock()
	p.calls <- struct{}{}
	return nil
}

func (p *program) until(t *testing.T, ok func() bool) {
	t.Helper()
	late := time.After(10 * time.Second)
	for {
		p.mu.Lock()
		done := ok()
		p.mu.Unlock()
		if done {
			return
		}
		select {
		case <-p.calls:
		case <-late:
			t.Fatalf("the program got %q, acked %d", p.deeds, p.acked)
		}
	}
}

// view adds a viewer.
func view(t *testing.T, term *Terminal, o ViewOptions) *Viewer {
	t.Helper()
	v, err := term.View(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

// next returns the next item of a kind.
func next(t *testing.T, v *Viewer, kind ItemKind) Item {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		item, err := v.Next(ctx)
		if err != nil {
			t.Fatalf("no item of kind %d: %v", kind, err)
		}
		if item.Kind == kind {
			return item
		}
	}
}

// TestResume writes a long stream, and reads it by viewers that come and go at random bytes. None is lost or doubled.
func TestResume(t *testing.T) {
	term := New("1", Size{24, 80})
	term.Attach(newProgram(), 0, 0)
	defer term.Detach(func() {})
	rnd := rand.New(rand.NewPCG(1, 2))
	var whole, got bytes.Buffer
	write := func(n int) {
		p := make([]byte, n)
		for i := range p {
			p[i] = byte(rnd.IntN(256))
		}
		whole.Write(p)
		_, _ = term.Write(p)
	}
	for range 200 {
		write(rnd.IntN(5000))
		v := view(t, term, ViewOptions{Have: int64(got.Len())})
		for part := rnd.IntN(3000); part > 0; {
			item, ok, err := v.takeItem()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			switch item.Kind {
			case ItemReset:
				t.Fatal("a reset inside the window")
			case ItemOutput:
				if item.Offset != int64(got.Len()) {
					t.Fatalf("output at %d, want %d", item.Offset, got.Len())
				}
				n := min(part, len(item.Data)) // the rest is lost with the connection
				got.Write(item.Data[:n])
				part -= len(item.Data)
				v.Ack(int64(got.Len()))
			}
		}
		v.Close()
	}
	v := view(t, term, ViewOptions{Have: int64(got.Len())})
	for got.Len() < whole.Len() {
		item := next(t, v, ItemOutput)
		got.Write(item.Data)
		v.Ack(int64(got.Len()))
	}
	if !bytes.Equal(got.Bytes(), whole.Bytes()) {
		t.Error("the bytes differ")
	}
}

// TestSkipped checks that a viewer that is too slow begins again at a safe point, with the modes of the screen, and that
// it holds up nobody.
func TestSkipped(t *testing.T) {
	term := New("1", Size{24, 80})
	term.Attach(newProgram(), 0, 0)
	defer term.Detach(func() {})
	slow, fast := view(t, term, ViewOptions{Have: -1}), view(t, term, ViewOptions{Have: -1})
	_, _ = term.Write([]byte("\x1b[?2004h"))
	line := []byte(strings.Repeat("\x1b[32m字\x1b[0m", 100) + "\r\n")
	seen := 8
	next(t, fast, ItemOutput)
	for term.Next() < 2*Window {
		_, _ = term.Write(line[:50])
		_, _ = term.Write(line[50:])
		for seen < int(term.Next()) {
			seen += len(next(t, fast, ItemOutput).Data)
			fast.Ack(int64(seen))
		}
	}
	reset := next(t, slow, ItemReset)
	if reset.Reason != "skipped" || string(reset.Data) != "\x1b[?2004h" {
		t.Errorf("reset %q %q", reset.Reason, reset.Data)
	}
	out := next(t, slow, ItemOutput)
	if out.Offset != reset.Offset || (out.Offset-8)%int64(len(line)) != 0 {
		t.Errorf("it begins at %d after a reset to %d", out.Offset, reset.Offset)
	}
	for range 100 { // it has not acknowledged anything
		if item, ok, _ := slow.takeItem(); ok && item.Kind == ItemOutput {
			out = item
		}
	}
	if got := out.Offset + int64(len(out.Data)) - reset.Offset; got != Hold {
		t.Errorf("%d bytes without an acknowledgement, want %d", got, Hold)
	}
	slow.Ack(out.Offset)
	next(t, slow, ItemOutput)
	if late := view(t, term, ViewOptions{Have: term.Next() + 1}); next(t, late, ItemReset).Reason != "unknown" {
		t.Error("a viewer that has too much")
	}
}

// TestOwner checks that the size is that of who types, that the size comes before the input, and that the program waits
// for the owner alone.
func TestOwner(t *testing.T) {
	term, p := New("1", Size{24, 80}), newProgram()
	a := view(t, term, ViewOptions{Have: -1, Size: Size{30, 100}, Person: gitd.Person{Name: "Ada"}})
	b := view(t, term, ViewOptions{Have: -1, Size: Size{40, 120}, Person: gitd.Person{Name: "Bob"}})
	w := view(t, term, ViewOptions{Have: -1, Size: Size{50, 50}, Watch: true})
	term.Attach(p, 0, 0)
	term.Detach(func() {})
	if err := b.Input(t.Context(), []byte("x")); !errors.Is(err, ErrAway) {
		t.Errorf("input without a program: %v", err)
	}
	p = newProgram()
	term.Attach(p, 0, 0)
	defer term.Detach(func() {})
	p.until(t, func() bool { return len(p.deeds) == 1 })
	b.Resize(Size{41, 121})
	w.Resize(Size{51, 51})
	if err := w.Input(t.Context(), []byte("w")); !errors.Is(err, ErrWatching) {
		t.Errorf("input of a watcher: %v", err)
	}
	if err := b.Input(t.Context(), []byte("ls\r")); err != nil {
		t.Fatal(err)
	}
	p.until(t, func() bool { return len(p.deeds) == 3 })
	if want := []string{"size 30x100", "size 41x121", "input ls\r"}; fmt.Sprint(p.deeds) != fmt.Sprint(want) {
		t.Errorf("the program got %q, want %q", p.deeds, want)
	}
	if s := next(t, a, ItemState).State; s.Owner != "Bob" || s.Mine || s.Size != (Size{41, 121}) || s.Watchers != 2 {
		t.Errorf("state %+v", s)
	}
	if term.Typist().Name != "Bob" {
		t.Errorf("typist %v", term.Typist())
	}

	_, _ = term.Write(make([]byte, Hold))
	a.takeItem() // others do not count
	p.until(t, func() bool { return p.acked == 0 })
	for b.cursor < ackEvery {
		next(t, b, ItemOutput)
	}
	b.Ack(ackEvery)
	p.until(t, func() bool { return p.acked == ackEvery })
	b.Close()
	p.until(t, func() bool { return p.acked == Hold })
}

// TestAhead lets a program that prints without end be ahead of its owner by little, so that the end of it is seen soon,
// and by enough that acknowledgements do not stop it.
func TestAhead(t *testing.T) {
	if Hold > 128<<10 || Hold%maxOutput != 0 || Resume+maxOutput > Hold || ackEvery > Hold/4 {
		t.Errorf("a hold of %d bytes, resumed at %d, with acknowledgements each %d bytes", Hold, Resume, ackEvery)
	}
	term, p := New("1", Size{24, 80}), newProgram()
	v := view(t, term, ViewOptions{Have: -1})
	term.Attach(p, 0, 0)
	defer term.Detach(func() {})
	_, _ = term.Write(make([]byte, 2*Hold))
	for v.cursor < Hold {
		next(t, v, ItemOutput)
	}
	if item, ok, _ := v.takeItem(); ok && item.Kind == ItemOutput {
		t.Errorf("%d more bytes were sent", len(item.Data))
	}
	v.Ack(Hold - Resume)
	next(t, v, ItemOutput)
	p.until(t, func() bool { return p.acked >= Hold-Resume-ackEvery })
}

// TestStuckInput checks that a program that takes no input gets acknowledgements, that input waits, and that waiting input
// is dropped with the connection.
func TestStuckInput(t *testing.T) {
	term, p := New("1", Size{24, 80}), newProgram()
	p.block = make(chan struct{})
	v := view(t, term, ViewOptions{Have: -1})
	term.Attach(p, 0, 0)
	for range 1 + inputQueue/MaxInput {
		if err := v.Input(t.Context(), make([]byte, MaxInput)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error, 1)
	go func() { waits <- v.Input(ctx, make([]byte, inputQueue)) }()
	_, _ = term.Write(make([]byte, ackEvery))
	v.takeItem()
	for v.cursor < ackEvery {
		next(t, v, ItemOutput)
	}
	v.Ack(ackEvery)
	p.until(t, func() bool { return p.acked == ackEvery })
	cancel()
	if err := <-waits; !errors.Is(err, context.Canceled) {
		t.Errorf("input that waits: %v", err)
	}
	term.Detach(func() { close(p.block) })
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.deeds) > 2 {
		t.Errorf("%d inputs after the end", len(p.deeds))
	}
}

// TestEnd checks the state after the end, and the bound of viewers.
func TestEnd(t *testing.T) {
	term := New("1", Size{})
	v := view(t, term, ViewOptions{Have: -1})
	_, _ = term.Write([]byte("bye"))
	code := 3
	term.Announce(Done{Command: "exit 3", Exit: 3})
	term.End(&code, "", false)
	if s := next(t, v, ItemState).State; s.Running || *s.Exit != 3 || s.Offset != 3 {
		t.Errorf("state %+v", s)
	}
	next(t, v, ItemOutput)
	if d := next(t, v, ItemDone).Done; d.Exit != 3 || !v.Ended() {
		t.Errorf("done %+v", d)
	}
	if err := v.Input(t.Context(), []byte("x")); !errors.Is(err, ErrEnded) {
		t.Errorf("input after the end: %v", err)
	}
	for range MaxViewers - 1 {
		view(t, term, ViewOptions{})
	}
	if _, err := term.View(ViewOptions{}); !errors.Is(err, ErrFull) {
		t.Errorf("one viewer too many: %v", err)
	}
}

// TestLaunch types commands into the shells that Launch starts, and reads their marks.
func TestLaunch(t *testing.T) {
	for name, want := range map[string][]string{
		"bash": {"E echo 'a;b' && false", "D 1 1", "E for i in 1 2; do echo $i; done", "D 0 2", "E exit 4"},
		"sh":   {"D 0 0", "echo 'a;b' && false", "D 1 0", "", "D 1 0", "for i in 1 2; do", "D 0 0", "exit 4"},
	} {
		t.Run(name, func(t *testing.T) {
			bin := t.TempDir()
			for _, program := range []string{"sh", name, "printf"} {
				path, err := exec.LookPath(program)
				if err != nil {
					t.Skipf("cannot run here: %v", err)
				}
				if err := os.Symlink(path, bin+"/"+program); err != nil && !errors.Is(err, os.ErrExist) {
					t.Fatal(err)
				}
			}
			cmd := exec.Command("/bin/sh", "-c", Launch())
			cmd.Env = append([]string{"PATH=" + bin, "HOME=" + t.TempDir(), "TERM=xterm"}, Environment("1", "hello")...)
			f, err := pty.Start(cmd)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			typing := []string{"echo 'a;b' && false\r", "\r", "for i in 1 2; do\recho $i\rdone\r", "exit 4\r"}
			var s Scanner
			var got []string
			var all bytes.Buffer
			var input int64
			buf := make([]byte, 4<<10)
			for {
				n, err := f.Read(buf)
				all.Write(buf[:n])
				s.Scan(buf[:n], func(m Mark) {
					switch m.Kind {
					case MarkInput:
						input = m.Offset
						if len(typing) > 0 {
							if _, err := f.WriteString(typing[0]); err != nil {
								t.Error(err)
							}
							typing = typing[1:]
						}
					case MarkCommand:
						got = append(got, "E "+m.Command)
					case MarkEnd:
						if name == "sh" && input > 0 {
							got = append(got, Typed(all.Bytes()[input:m.Start]))
						}
						got = append(got, fmt.Sprintf("D %d %d", m.Exit, m.Number))
					}
				})
				if err != nil {
					break
				}
			}
			if name == "sh" {
				got = append(got, Typed(all.Bytes()[input:]))
			}
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 4 {
				t.Errorf("the shell ended with %v", err)
			}
			if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
				t.Errorf("marks %q, want %q\n%q", got, want, all.String())
			}
			if !strings.Contains(all.String(), "hello") {
				t.Errorf("the prompt lacks the name: %q", all.String())
			}
		})
	}
}
