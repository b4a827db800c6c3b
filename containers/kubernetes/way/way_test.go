package way

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFrames(t *testing.T) {
	var b bytes.Buffer
	w := &FrameWriter{W: &b}
	large := strings.Repeat("x", maxFrame+1)
	for _, text := range []string{"one", "", large} {
		if err := w.Frame(FrameStdout, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	var got strings.Builder
	frames := 0
	for {
		kind, data, err := ReadFrame(&b, nil)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || kind != FrameStdout {
			t.Fatalf("kind %d, %v", kind, err)
		}
		got.Write(data)
		frames++
	}
	if got.String() != "one"+large || frames != 4 {
		t.Errorf("%d bytes in %d frames", got.Len(), frames)
	}
	b.Write([]byte{FrameStdout, 0, 0, 0, 9, 'x'})
	if _, _, err := ReadFrame(&b, nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a frame that breaks off: %v", err)
	}
	b.Reset()
	b.Write([]byte{FrameStdout, 0xff, 0, 0, 0})
	if _, _, err := ReadFrame(&b, nil); err == nil {
		t.Error("a frame without a bound is read")
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{FrameInput, 0, 0, 0, 1, 'x'})
	f.Fuzz(func(t *testing.T, text []byte) {
		r := bytes.NewReader(text)
		for {
			_, data, err := ReadFrame(r, nil)
			if err != nil {
				return
			}
			if len(data) > maxFrame {
				t.Errorf("a frame has %d bytes", len(data))
			}
		}
	})
}

func TestReplaceNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(path, []byte("127.0.0.1\tlocalhost"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, names := range []string{"127.0.1.1\tdb\n127.0.1.2\tcache\n", "127.0.1.9\tqueue\n", ""} {
		if err := replaceNames(path, strings.NewReader(names)); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if want := "127.0.0.1\tlocalhost\n" + namesMark + names; err != nil || string(b) != want {
			t.Errorf("%q, %v, not %q", b, err, want)
		}
	}
	if err := replaceNames(path, strings.NewReader(strings.Repeat("x", maxHosts+1))); err == nil {
		t.Error("names without a bound are written")
	}
}

// A network that may be the machine's is left alone, before anything is deleted.
func TestHardwareIsNotSealed(t *testing.T) {
	list, err := net.Interfaces()
	if err != nil || len(list) == 0 {
		t.Skipf("cannot run here: there is no network interface: %v", err)
	}
	class := t.TempDir()
	if err := os.MkdirAll(filepath.Join(class, list[0].Name, "device"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := seal(class); !errors.Is(err, errHardware) {
		t.Errorf("seal: %v", err)
	}
}

func TestEnvironmentOfASidecar(t *testing.T) {
	env := Sidecar{Home: "/tmp/home", Env: []string{"A=b"}}.environment([]string{"KUBERNETES_SERVICE_HOST=10.0.0.1",
		"LANG=C"})
	got := strings.Join(env, " ")
	if strings.Contains(got, "KUBERNETES") || !strings.HasSuffix(got, "LANG=C HOME=/tmp/home A=b") {
		t.Errorf("it is %s", got)
	}
}

// Outside of a container of sidecars nothing may be killed.
func TestThisIsNoContainerOfSidecars(t *testing.T) {
	if heldHere() {
		t.Error("the container of the test is taken for one of sidecars")
	}
}

func TestPrintUsage(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), bytes.Repeat([]byte("x"), 10_000), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/usr", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := printUsage(&out, []string{"100", dir, filepath.Join(dir, "missing")}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `"Files":3`) { // the folder, the file and the link
		t.Errorf("it prints %s", out.String())
	}
	if err := printUsage(&out, []string{"100", filepath.Join(dir, "link")}); err == nil {
		t.Error("a link is followed")
	}
	if err := printUsage(&out, []string{"none", dir}); err == nil {
		t.Error("a number that is none is taken")
	}
}
