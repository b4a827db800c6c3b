package terminal

import (
	"bytes"
	"context"
	"testing"
)

// TestTyping tests that input is kept in its order up to a bound, and that nothing is taken between what was dropped and the
// time when the program has taken all before.
func TestTyping(t *testing.T) {
	q := &typing{ready: make(chan struct{}, 1)}
	part := func(c byte) Frame { return Frame{Type: FrameInput, Data: bytes.Repeat([]byte{c}, 32<<10)} }
	kept := 0
	for kept < 100 {
		ok, first := q.add(part(byte(kept)))
		if !ok {
			if !first {
				t.Error("the first frame that is dropped is not reported")
			}
			break
		}
		kept++
	}
	if kept < 32 || kept == 100 {
		t.Errorf("%d frames of 32 KiB are kept", kept)
	}
	for i := range kept {
		f, err := q.next(t.Context())
		if err != nil || f.Data[0] != byte(i) {
			t.Fatalf("frame %d: %v, %v", i, f.Data[:1], err)
		}
		if ok, first := q.add(Frame{Type: FrameInput, Data: []byte("x")}); ok || first {
			t.Fatal("input has a hole, or a second report")
		}
		q.done(f)
	}
	if ok, _ := q.add(Frame{Type: FrameInput, Data: []byte("x")}); !ok {
		t.Error("a program that has taken everything gets no input")
	}
	ctx, cancel := context.WithCancel(t.Context())
	if f, err := q.next(ctx); err != nil || string(f.Data) != "x" {
		t.Errorf("%+v, %v", f, err)
	}
	cancel()
	if _, err := q.next(ctx); err == nil {
		t.Error("next does not end with its context")
	}
}
