package runner

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// carriers are the two ends of a connection.
func carriers(t *testing.T) (a, b *Carrier) {
	t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	x, err := net.Dial("unix", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	y, err := ln.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	a, b = NewCarrier(x.(*net.UnixConn)), NewCarrier(y)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// file is a descriptor of a nameless file.
func file(t *testing.T, text string) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(fd, []byte(text)); err != nil {
		t.Fatal(err)
	}
	return fd
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// Files come with the bytes that are written after them, by number, once; large writes
// come whole; what nobody takes is closed with the connection.
func TestCarrier(t *testing.T) {
	a, b := carriers(t)
	before := openDescriptors(t)
	for i := range 3 {
		n, err := a.Send(file(t, "file "+strconv.Itoa(i+1)))
		if err != nil || n != uint64(i+1) {
			t.Fatal(n, err)
		}
	}
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	wrote := make(chan error, 1)
	go func() {
		_, err := a.Write(large)
		wrote <- err
	}()
	got := make([]byte, len(large))
	if _, err := io.ReadFull(b, got); err != nil || !bytes.Equal(got, large) {
		t.Fatalf("the bytes are changed: %v", err)
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	for _, n := range []uint64{2, 1} {
		f, err := b.Take(n)
		if err != nil {
			t.Fatal(err)
		}
		text := make([]byte, 6)
		if _, err := f.ReadAt(text, 0); err != nil || string(text) != "file "+strconv.FormatUint(n, 10) {
			t.Errorf("file %d holds %q, %v", n, text, err)
		}
		if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Error("programs that are started would inherit it")
		}
		f.Close()
	}
	for _, n := range []uint64{0, 1, 4} {
		if _, err := b.Take(n); err == nil {
			t.Errorf("file %d can be taken", n)
		}
	}
	if _, err := a.Send(file(t, "never written")); err != nil {
		t.Fatal(err)
	}
	a.Close()
	if n, err := b.Read(got); n != 0 || err != io.EOF {
		t.Errorf("the end is %d, %v", n, err)
	}
	if _, err := a.Send(file(t, "too late")); err == nil {
		t.Error("a closed connection takes a file")
	}
	b.Close()
	if now := openDescriptors(t); now != before-2 {
		t.Errorf("%d descriptors, %d before", now+2, before)
	}
}

// Who floods the other end with files loses the connection, not the other its descriptors.
func TestCarrierFlood(t *testing.T) {
	a, b := carriers(t)
	ended, kept := make(chan error, 1), make(chan int, 1)
	go func() {
		buf := make([]byte, 1)
		for {
			if _, err := b.Read(buf); err != nil {
				b.mu.Lock()
				kept <- len(b.files)
				b.mu.Unlock()
				ended <- err
				b.Close() // as every reader does; who writes on would wait for it without an end
				return
			}
		}
	}()
	sent := 0
	for ; sent < 2*maxCarried; sent++ {
		if _, err := a.Send(file(t, "x")); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Write([]byte("x")); err != nil {
			break
		}
	}
	if err := <-ended; err == io.EOF {
		t.Error("it was told as an end")
	}
	if n := <-kept; sent < maxCarried || n > maxCarried {
		t.Errorf("%d files were sent, %d are kept", sent, n)
	}
}
