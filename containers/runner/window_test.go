package runner_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
)

// TestWindow keeps the end of a terminal's output, holds its program back, and loses nothing at its end.
func TestWindow(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		h := b.host(nil)
		const window, hold, lines = 64 << 10, 16 << 10, 20000
		var want bytes.Buffer
		for i := range lines {
			fmt.Fprintf(&want, "line %d\r\n", i+1)
		}
		command := containers.Command{ID: "window", Background: true, Window: window, Hold: hold,
			TTY:   &containers.Window{Rows: 24, Cols: 80},
			Shell: fmt.Sprintf("i=0; while [ $i -lt %d ]; do i=$((i+1)); echo line $i; done; sleep 0.1; printf end", lines)}
		ctx, cancel := context.WithCancel(t.Context())
		p, err := h.Start(ctx, command)
		if err != nil {
			t.Fatal(err)
		}
		if from, _ := p.From(); from != 0 {
			t.Errorf("a new command begins at %d", from)
		}
		// Without an acknowledgement it stops, and goes on with each.
		var got bytes.Buffer
		read := make(chan int)
		left := make(chan error, 1)
		go func() {
			_, err := p.Output(writerFunc(func(q []byte) (int, error) {
				got.Write(q)
				read <- got.Len()
				return len(q), nil
			}), nil)
			left <- err
		}()
		n := 0
		for n < hold {
			n = <-read
		}
		over := n // bytes that were read before the brake
		select {
		case n = <-read:
			over = n
		case <-time.After(50 * time.Millisecond):
		}
		// The brake begins with the attachment, a moment after the program. The window bounds the output of that
		// moment.
		if over > hold+window {
			t.Errorf("%d bytes without an acknowledgement", over)
		}
		for n < 2*window {
			if err := p.Ack(int64(n)); err != nil {
				t.Fatal(err)
			}
			n = <-read
		}
		cancel() // nobody holds it back any more
		for open := true; open; {
			select {
			case <-read:
			case err := <-left:
				open = false
				if !errors.Is(err, context.Canceled) {
					t.Errorf("left with %v", err)
				}
			}
		}
		if !bytes.HasPrefix(want.Bytes(), got.Bytes()) {
			t.Error("the beginning differs")
		}

		// Another attachment goes on where the first one stopped, or at the beginning of the window.
		// It is ended if it is slower than the program. The window has the end when the program has ended.
		all := want.String() + "end"
		var rest bytes.Buffer
		var from int64
		exit, err := containers.Exit{}, containers.ErrGone
		for errors.Is(err, containers.ErrGone) && t.Context().Err() == nil {
			if p, err = h.AttachWindow(t.Context(), "window", 0, 0); err != nil {
				continue
			}
			var upto int64
			if from, upto = p.From(); from == 0 || upto < from {
				t.Errorf("attached from %d to %d", from, upto)
			}
			rest.Reset()
			exit, err = p.Output(&rest, nil)
		}
		if err != nil || exit.Stdout != int64(len(all)) || rest.String() != all[from:] {
			t.Errorf("exit %+v, %v; %d bytes from %d, want %d", exit, err, rest.Len(), from, len(all)-int(from))
		}
		if p, err = h.AttachWindow(t.Context(), "window", int64(len(all))-3, hold); err != nil {
			t.Fatal(err)
		}
		rest.Reset()
		if _, err := p.Output(&rest, nil); err != nil || rest.String() != "end" {
			t.Errorf("the end: %q, %v", rest.String(), err)
		}
		command.ID, command.TTY = "plain", nil
		if _, err := h.Start(t.Context(), command); err == nil || !strings.Contains(err.Error(), "window") {
			t.Errorf("a window without a terminal: %v", err)
		}
	})
}
