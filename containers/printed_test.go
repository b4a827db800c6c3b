package containers

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers/runner"
)

// A stream that goes on in a file is written in order: what came by the channel, then
// the file from where it is told, as far as it is told.
func TestPrinted(t *testing.T) {
	name := filepath.Join(t.TempDir(), "spool")
	if err := os.WriteFile(name, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(uint64) (*os.File, error) { return os.Open(name) }
	p := newPrinted()
	var out bytes.Buffer
	done := make(chan error, 1)
	go func() {
		werr, rerr := p.copyTo(&out)
		done <- errors.Join(werr, rerr)
	}()
	if err := p.announce(runner.Output{Before: 3, From: 3, Upto: 5}, open); err != nil {
		t.Fatal(err)
	}
	out.WriteString("012") // nothing of the file is written until it is noted
	p.noteChannel(3, false)
	for _, upto := range []uint64{8, 6, 10} {
		if err := p.announce(runner.Output{Upto: upto}, open); err != nil {
			t.Fatal(err)
		}
	}
	p.finish()
	p.noteChannel(0, true)
	if err := <-done; err != nil || out.String() != "0123456789" {
		t.Errorf("%q, %v", out.String(), err)
	}
	p.close()

	// One that is told of more than there is.
	p = newPrinted()
	if err := p.announce(runner.Output{Upto: 11}, open); err != nil {
		t.Fatal(err)
	}
	p.finish()
	if _, err := p.copyTo(&out); err == nil {
		t.Error("a file that is too short is no error")
	}
	p.close()

	// A connection that ends before all came by the channel.
	p = newPrinted()
	if err := p.announce(runner.Output{Before: 100, From: 1, Upto: 5}, open); err != nil {
		t.Fatal(err)
	}
	p.noteChannel(99, true)
	p.finish()
	out.Reset()
	if werr, rerr := p.copyTo(&out); werr != nil || rerr != nil || out.Len() > 0 {
		t.Errorf("%v, %v, %q", werr, rerr, out.String())
	}
	p.close()

	// A file that is not regular could keep a reader waiting.
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := newPrinted().announce(runner.Output{},
		func(uint64) (*os.File, error) { return os.OpenFile(fifo, os.O_RDWR, 0) }); err == nil {
		t.Error("a pipe is taken for a file")
	}
	if err := newPrinted().announce(runner.Output{Before: 1 << 63}, open); err == nil {
		t.Error("a negative count is taken")
	}
}
