package sealed

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// box returns an open box in a folder.
func box(t testing.TB, dir string) *Box {
	t.Helper()
	b := &Box{Dir: filepath.Join(dir, "sealed"), KeyFile: filepath.Join(dir, "keys", "seal.key")}
	if err := b.Open(); err != nil {
		t.Fatal(err)
	}
	return b
}

func record(name, content string) Record {
	return Record{Head: Head{Owner: "person:ada", Kind: "secret", Name: name}, Content: []byte(content)}
}

func put(t testing.TB, b *Box, r Record) Record {
	t.Helper()
	r, err := b.Put(r)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestBox(t *testing.T) {
	dir := t.TempDir()
	b := box(t, dir)
	one, two := put(t, b, record("ONE", "the value of one")), put(t, b, record("TWO", "the value of two"))
	for range 2 { // before and after a restart
		for _, want := range []Record{one, two} {
			got, err := b.Read(want.ID)
			if err != nil || got.Head != want.Head || !bytes.Equal(got.Content, want.Content) {
				t.Errorf("%+v, %v, want %+v", got, err, want)
			}
		}
		b = box(t, dir)
	}
	file := filepath.Join(b.Dir, one.ID)
	text, err := os.ReadFile(file)
	if err != nil || bytes.Contains(text, []byte("value of")) {
		t.Errorf("the file has the value: %q, %v", text, err)
	}
	for _, name := range []string{file, b.KeyFile} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	put(t, b, one)
	again, err := os.ReadFile(file)
	if err != nil || bytes.Equal(text, again) {
		t.Errorf("the same content is sealed with the same nonce: %v", err)
	}
	if err := b.Remove(one.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Read(one.ID); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed record: %v", err)
	}
	if list, bad, err := b.All(); err != nil || len(list) != 1 || len(bad) != 0 {
		t.Errorf("%v, %v, %v", list, bad, err)
	}
	for _, id := range []string{"", "..", "../keys/seal.key", strings.Repeat("a", 25), strings.Repeat("A", 26)} {
		if _, err := b.Read(id); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %v", id, err)
		}
	}

	// Records without their key are refused as a whole, and not made unreadable by a new key.
	if err := os.Rename(b.KeyFile, b.KeyFile+".kept"); err != nil {
		t.Fatal(err)
	}
	lost := &Box{Dir: b.Dir, KeyFile: b.KeyFile}
	if err := lost.Open(); err == nil || !strings.Contains(err.Error(), "restore it from a backup") {
		t.Errorf("without the key: %v", err)
	}
}

// TestEveryByte changes each byte of a record, cuts the record after each byte, and puts it in the place of others.
func TestEveryByte(t *testing.T) {
	b := box(t, t.TempDir())
	one := put(t, b, record("ONE", "a canary in a cage"))
	other := put(t, b, Record{Head: Head{Owner: "person:bob", Kind: "secret", Name: "ONE"},
		Content: []byte("of another person")})
	file := filepath.Join(b.Dir, one.ID)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, text []byte) {
		t.Helper()
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := b.Read(one.ID)
		if !errors.Is(err, ErrDamaged) || r.Content != nil {
			t.Fatalf("%s: %q, %v", what, r.Content, err)
		}
	}
	for i := range whole {
		for _, flip := range []byte{1, 0x20, 0x80, 0xff} {
			edited := bytes.Clone(whole)
			edited[i] ^= flip
			refused(fmt.Sprintf("byte %d ^ %#x", i, flip), edited)
		}
		refused(fmt.Sprintf("cut at %d", i), whole[:i])
	}
	refused("a byte more", append(bytes.Clone(whole), 0))
	refused("a byte before", append([]byte(" "), whole...))
	refused("too large", append(bytes.Clone(whole), make([]byte, maxRecord)...))
	second, err := os.ReadFile(filepath.Join(b.Dir, other.ID))
	if err != nil {
		t.Fatal(err)
	}
	refused("the file of another record", second)
	refused("the head of another record",
		append(bytes.Clone(second[:bytes.IndexByte(second, '\n')]), whole[bytes.IndexByte(whole, '\n'):]...))
	refused("another owner", bytes.Replace(whole, []byte("person:ada"), []byte("person:bob"), 1))

	if _, bad, err := b.All(); err != nil || len(bad) != 1 || bad[0].Head.ID != one.ID {
		t.Errorf("%+v, %v", bad, err)
	}
	if err := os.WriteFile(file, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Read(one.ID); err != nil {
		t.Errorf("restored: %v", err)
	}
}

// TestKeys changes between keys of the configuration and the box's own.
func TestKeys(t *testing.T) {
	dir := t.TempDir()
	r := put(t, box(t, dir), record("ONE", "the value of one"))
	open := func(change func(*Box)) (*Box, error) {
		b := &Box{Dir: filepath.Join(dir, "sealed"), KeyFile: filepath.Join(dir, "keys", "seal.key")}
		change(b)
		return b, b.Open()
	}
	k1, k2 := NewKey(), NewKey()
	for i, change := range []func(*Box){
		func(b *Box) { b.Key = &k1 },
		func(b *Box) { b.Key, b.Earlier = &k2, []Key{k1} },
		func(b *Box) { b.Key = &k2 },
		func(b *Box) { b.Earlier = []Key{k2} },
		func(*Box) {},
	} {
		b, err := open(change)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := b.Read(r.ID); err != nil || string(got.Content) != "the value of one" || got.Key != b.Keys()[0].ID() {
			t.Errorf("change %d: %+v, %v", i, got, err)
		}
	}
	// A key that the server does not know opens nothing, and the record stays.
	b, err := open(func(b *Box) { b.Key, b.KeyFile = &k1, filepath.Join(dir, "none") })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Read(r.ID); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "not among those") {
		t.Errorf("with another key: %v", err)
	}
	if _, err := b.Rotate(); err == nil || !strings.Contains(err.Error(), "seal_key_earlier") {
		t.Errorf("Rotate replaces a key of the configuration: %v", err)
	}
	for text, ok := range map[string]bool{
		fmt.Sprintf("%x", k1[:]): true, "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=": true,
		"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY": true,
		"0123456789abcdef0123456789abcdef":            true, "short": false, "": false, strings.Repeat("ab", 33): false,
	} {
		if _, err := ParseKey(text); (err == nil) != ok {
			t.Errorf("ParseKey(%q): %v", text, err)
		}
	}
}

const killedRecords = 5

// TestRotateKilled kills a process at each step of a change of keys. Afterwards all records open, and one key is left.
func TestRotateKilled(t *testing.T) {
	if at := os.Getenv("RAMUS_TEST_ROTATE"); at != "" {
		rotateUntil(t, at)
		return
	}
	for n := 0; ; n++ {
		dir := t.TempDir()
		b := box(t, dir)
		want := make(map[string]string)
		for i := range killedRecords {
			r := put(t, b, record("SECRET_"+strconv.Itoa(i), "value "+strconv.Itoa(i)))
			want[r.ID] = string(r.Content)
		}
		first := b.Keys()[0]
		c := exec.Command(os.Args[0], "-test.run=^TestRotateKilled$")
		c.Env = append(os.Environ(), "RAMUS_TEST_ROTATE="+strconv.Itoa(n), "RAMUS_TEST_ROTATE_DIR="+dir)
		out, err := c.CombinedOutput()
		var ended *exec.ExitError
		switch {
		case err == nil && n < killedRecords+4:
			t.Fatalf("the child is not killed at step %d", n)
		case err != nil && !(errors.As(err, &ended) && ended.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL):
			t.Fatalf("step %d: %v\n%s", n, err, out)
		}
		// A file of a process that was killed before it named the file.
		for _, half := range []string{filepath.Join(dir, "sealed", ".new-1"), filepath.Join(dir, "keys", ".new-1")} {
			if err := os.WriteFile(half, []byte("half"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		b = box(t, dir)
		list, bad, listErr := b.All()
		if listErr != nil || len(bad) > 0 || len(list) != killedRecords {
			t.Fatalf("killed at step %d: %d records, %v, %v", n, len(list), bad, listErr)
		}
		for _, r := range list {
			if want[r.ID] != string(r.Content) || r.Key != b.Keys()[0].ID() {
				t.Errorf("killed at step %d: %+v", n, r)
			}
		}
		if len(b.Keys()) != 1 {
			t.Errorf("killed at step %d: %d keys are left", n, len(b.Keys()))
		}
		if changed := b.Keys()[0] != first; changed != (n > 0) {
			t.Errorf("killed at step %d: the key has changed: %v", n, changed)
		}
		names, globErr := filepath.Glob(filepath.Join(dir, "*", "*"))
		hidden, globErr2 := filepath.Glob(filepath.Join(dir, "*", ".*"))
		if globErr != nil || globErr2 != nil || len(names) != killedRecords+2 || len(hidden) > 0 {
			t.Errorf("killed at step %d: the files are %v %v", n, names, hidden)
		}
		if err == nil { // the child came to its end
			return
		}
	}
}

// rotateUntil rotates keys and kills its own process at a step.
func rotateUntil(t *testing.T, at string) {
	left, err := strconv.Atoi(at)
	if err != nil {
		t.Fatal(err)
	}
	b := box(t, os.Getenv("RAMUS_TEST_ROTATE_DIR"))
	b.step = func(string) {
		if left == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		left--
	}
	if _, err := b.Rotate(); err != nil {
		t.Fatal(err)
	}
}

// TestRotate checks that a damaged record neither stops a change of keys nor is lost by it.
func TestRotate(t *testing.T) {
	b := box(t, t.TempDir())
	good, bad := put(t, b, record("GOOD", "the value")), put(t, b, record("BAD", "the value"))
	file := filepath.Join(b.Dir, bad.ID)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)-1] ^= 1
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if n, err := b.Rotate(); err != nil || n != 2 {
			t.Fatalf("%d, %v", n, err)
		}
		if r, err := b.Read(good.ID); err != nil || string(r.Content) != "the value" {
			t.Errorf("%+v, %v", r, err)
		}
		if _, err := b.Read(bad.ID); !errors.Is(err, ErrDamaged) {
			t.Errorf("the damaged record: %v", err)
		}
	}
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(after, text) {
		t.Errorf("the damaged file has changed: %v", err)
	}
	if list, _, err := b.All(); err != nil || !slices.ContainsFunc(list, func(r Record) bool { return r.ID == good.ID }) {
		t.Errorf("%v, %v", list, err)
	}
}

func FuzzUnseal(f *testing.F) {
	k := Key([]byte("0123456789abcdef0123456789abcdef"))
	r := record("NAME", "content")
	r.ID = strings.Repeat("a", 26)
	good, err := seal(k, r)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte("{}\n"))
	f.Add([]byte(`{"v":1,"key":"` + k.ID() + `","id":"` + r.ID + `"}` + "\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, file []byte) {
		got, err := unseal([]Key{k}, r.ID, file)
		switch {
		case err == nil && string(got.Content) != "content":
			t.Errorf("a forged record is accepted: %q", file)
		case err != nil && !errors.Is(err, ErrDamaged):
			t.Errorf("%v", err)
		}
	})
}
