package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/store"
)

// Opened is a bucket under test. It is empty.
type Opened struct {
	store.Bucket
	// Unfinished returns the remains of uploads that have not ended, as names for people.
	Unfinished func() []string
}

// TestBucket checks that buckets of an implementation keep the contract of [store.Bucket].
func TestBucket(t *testing.T, open func(t *testing.T) Opened) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, b store.Bucket)
	}{
		{"missing", testMissing},
		{"sizes", testSizes},
		{"seek", testSeek},
		{"replace", testReplace},
		{"keys", testKeys},
		{"list", testList},
		{"broken input", testBrokenInput},
		{"ended context", testEndedContext},
		{"together", testTogether},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := open(t)
			test.run(t, b.Bucket)
			if left := b.Unfinished(); len(left) > 0 {
				t.Errorf("left of uploads that have ended: %q", left)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// content returns n bytes that are other ones for each seed.
func content(n int, seed uint64) []byte {
	b := make([]byte, n)
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	_, _ = rand.NewChaCha8(key).Read(b) // it does not fail
	return b
}

func put(t *testing.T, b store.Bucket, key string, content []byte) {
	t.Helper()
	if err := b.Put(t.Context(), key,
		io.MultiReader(bytes.NewReader(content))); err != nil { // a reader that can do nothing else
		t.Fatalf("put %s: %v", key, err)
	}
}

func get(b store.Bucket, key string) ([]byte, error) {
	o, err := b.Open(context.Background(), key)
	if err != nil {
		return nil, err
	}
	got, err := io.ReadAll(o)
	if err == nil && int64(len(got)) != o.Size() {
		err = fmt.Errorf("%s has %d bytes, its size is %d", key, len(got), o.Size())
	}
	return got, errors.Join(err, o.Close())
}

func has(t *testing.T, b store.Bucket, key string, want []byte) {
	t.Helper()
	got, err := get(b, key)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes, %v; want %d others", key, len(got), err, len(want))
	}
	if ok, err := b.Exists(t.Context(), key); err != nil || !ok {
		t.Errorf("%s exists: %t, %v", key, ok, err)
	}
}

func hasNot(t *testing.T, b store.Bucket, key string) {
	t.Helper()
	if _, err := get(b, key); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open %s: %v, want %v", key, err, fs.ErrNotExist)
	}
	if ok, err := b.Exists(t.Context(), key); err != nil || ok {
		t.Errorf("%s exists: %t, %v", key, ok, err)
	}
}

func keysOf(t *testing.T, b store.Bucket, prefix string) []string {
	t.Helper()
	var keys []string
	for o, err := range b.List(t.Context(), prefix) {
		if err != nil {
			t.Fatalf("list %q: %v", prefix, err)
		}
		keys = append(keys, o.Key)
	}
	slices.Sort(keys)
	return keys
}

func testMissing(t *testing.T, b store.Bucket) {
	hasNot(t, b, "a/b")
	if err := b.Delete(t.Context(), "a/b"); err != nil {
		t.Errorf("delete: %v", err)
	}
	put(t, b, "a/b", []byte("x"))
	hasNot(t, b, "a") // it is a folder at most
	hasNot(t, b, "a/b/c")
	if err := errors.Join(b.Delete(t.Context(), "a"), b.Delete(t.Context(), "a/b/c")); err != nil {
		t.Errorf("delete: %v", err)
	}
	has(t, b, "a/b", []byte("x"))
	if err := b.Delete(t.Context(), "a/b"); err != nil {
		t.Errorf("delete: %v", err)
	}
	hasNot(t, b, "a/b")
	put(t, b, "a/b", []byte("y"))
	has(t, b, "a/b", []byte("y"))
}

// testSizes has objects around 8 MiB and its multiple, where uploads to S3 get another part.
func testSizes(t *testing.T, b store.Bucket) {
	for i, n := range []int{0, 1, 5 << 20, 8<<20 - 1, 8 << 20, 8<<20 + 1, 16<<20 + 5} {
		key := fmt.Sprint("sizes/", n)
		want := content(n, uint64(i))
		put(t, b, key, want)
		has(t, b, key, want)
	}
}

func testSeek(t *testing.T, b store.Bucket) {
	want := content(100_000, 1)
	put(t, b, "object", want)
	o, err := b.Open(t.Context(), "object")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	at := int64(0)
	for _, step := range []struct {
		offset int64
		whence int
		want   int64
	}{{0, io.SeekStart, 0}, {50_000, io.SeekStart, 50_000}, {10, io.SeekCurrent, 50_020}, {0, io.SeekCurrent, 50_030},
		{-3, io.SeekEnd, 99_997}, {1, io.SeekStart, 1}, {0, io.SeekEnd, 100_000}, {7, io.SeekEnd, 100_007},
		{99_995, io.SeekStart, 99_995}} {
		if at, err = o.Seek(step.offset, step.whence); err != nil || at != step.want {
			t.Fatalf("seek %d from %d: %d, %v; want %d", step.offset, step.whence, at, err, step.want)
		}
		part := make([]byte, 10)
		n, err := io.ReadFull(o, part)
		from := min(at, int64(len(want)))
		rest := want[from:min(from+10, int64(len(want)))]
		if !bytes.Equal(part[:n], rest) || (n == 10) != (err == nil) {
			t.Errorf("at %d: %d bytes, %v; want %d", at, n, err, len(rest))
		}
	}
	if _, err := o.Seek(-1, io.SeekStart); err == nil {
		t.Error("a seek to before the beginning succeeds")
	}
}

func testReplace(t *testing.T, b store.Bucket) {
	for i, n := range []int{10, 9 << 20, 3, 0, 5} {
		want := content(n, uint64(i))
		put(t, b, "same", want)
		has(t, b, "same", want)
	}
	// A reader that is open when an object is replaced gets the old content, the new content, or an error.
	before, after := content(1<<20, 1), content(1<<20, 2)
	put(t, b, "same", before)
	o, err := b.Open(t.Context(), "same")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	put(t, b, "same", after)
	if got, err := io.ReadAll(o); err == nil && !bytes.Equal(got, before) && !bytes.Equal(got, after) {
		t.Error("what was open is a mixture")
	}
}

func testKeys(t *testing.T, b store.Bucket) {
	good := []string{"a", "sha256/ab/abcdef", "cache/linux-amd64/npm/group/my repo+1.x/hash",
		"with/ünïcode~(1)!*'%25&=@:,;$", ".hidden/..two/x.."}
	for i, key := range good {
		put(t, b, key, content(10+i, uint64(i)))
	}
	for i, key := range good {
		has(t, b, key, content(10+i, uint64(i)))
	}
	slices.Sort(good)
	if got := keysOf(t, b, ""); !slices.Equal(got, good) {
		t.Errorf("listed %q, want %q", got, good)
	}
	for _, key := range []string{"", ".", "..", "/a", "a/", "a//b", "../a", "a/../b", "a/./b", "b.tmp", "c\x00d", `e\f`} {
		if err := b.Put(t.Context(), key, strings.NewReader("x")); !errors.Is(err, record.ErrInvalid) {
			t.Errorf("put %q: %v, want %v", key, err, record.ErrInvalid)
		}
		_, err := b.Open(t.Context(), key)
		_, err2 := b.Exists(t.Context(), key)
		if err3 := b.Delete(t.Context(), key); !errors.Is(err, record.ErrInvalid) ||
			!errors.Is(err2, record.ErrInvalid) || !errors.Is(err3, record.ErrInvalid) {
			t.Errorf("%q: %v, %v, %v; want %v", key, err, err2, err3, record.ErrInvalid)
		}
	}
}

func testList(t *testing.T, b store.Bucket) {
	if got := keysOf(t, b, ""); len(got) > 0 {
		t.Errorf("an empty bucket has %q", got)
	}
	if got := keysOf(t, b, "no/such/"); len(got) > 0 {
		t.Errorf("no such folder has %q", got)
	}
	all := []string{"a/1", "a/12", "a/2/x", "a/2/y", "a-b/1", "b"}
	start := time.Now()
	for i, key := range all {
		put(t, b, key, make([]byte, i))
	}
	for _, prefix := range []string{"", "a", "a/", "a/1", "a/12", "a/2", "a/2/", "b", "b/", "c", "a-"} {
		var want []string
		for _, key := range all {
			if strings.HasPrefix(key, prefix) {
				want = append(want, key)
			}
		}
		slices.Sort(want)
		if got := keysOf(t, b, prefix); !slices.Equal(got, want) {
			t.Errorf("list %q: %q, want %q", prefix, got, want)
		}
	}
	for o, err := range b.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		// Clocks of file systems and services have at least a second's resolution, and theirs may be another one.
		if o.Size != int64(slices.Index(all, o.Key)) || o.Time.Before(start.Add(-time.Minute)) ||
			o.Time.After(time.Now().Add(time.Minute)) {
			t.Errorf("%+v", o)
		}
	}
	n := 0
	for range b.List(t.Context(), "") {
		if n++; n == 2 {
			break
		}
	}
	if n != 2 {
		t.Errorf("a list that is left after two has %d", n)
	}
}

// brokenReader fails after its content.
type brokenReader struct {
	io.Reader
	err error
}

func (r brokenReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err == io.EOF {
		err = r.err
	}
	return n, err
}

func testBrokenInput(t *testing.T, b store.Bucket) {
	broken := errors.New("broken")
	before := []byte("before")
	put(t, b, "had", before)
	for _, n := range []int{0, 100, 8 << 20, 9 << 20, 17 << 20} {
		for _, key := range []string{"new", "had"} {
			if err := b.Put(t.Context(), key, brokenReader{bytes.NewReader(content(n, 3)), broken}); !errors.Is(err, broken) {
				t.Errorf("%s, after %d bytes: %v, want %v", key, n, err, broken)
			}
		}
	}
	hasNot(t, b, "new")
	has(t, b, "had", before)
	if got := keysOf(t, b, ""); !slices.Equal(got, []string{"had"}) {
		t.Errorf("listed %q", got)
	}
}

// endingReader ends a context in the middle of its content.
type endingReader struct {
	io.Reader
	left int
	end  func()
}

func (r *endingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if r.left -= n; r.left < 0 {
		r.end()
	}
	return n, err
}

func testEndedContext(t *testing.T, b store.Bucket) {
	ended := errors.New("ended")
	put(t, b, "had", content(100_000, 1))
	for _, n := range []int{100, 4 << 20, 10 << 20} {
		ctx, cancel := context.WithCancelCause(t.Context())
		in := &endingReader{Reader: bytes.NewReader(content(20<<20, 2)), left: n, end: func() { cancel(ended) }}
		if err := b.Put(ctx, "new", in); !errors.Is(err, ended) {
			t.Errorf("put: %v, want %v", err, ended)
		}
	}
	hasNot(t, b, "new")

	ctx, cancel := context.WithCancelCause(t.Context())
	o, err := b.Open(ctx, "had")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if _, err := io.ReadFull(o, make([]byte, 10)); err != nil {
		t.Error(err)
	}
	cancel(ended)
	if _, err := b.Open(ctx, "had"); !errors.Is(err, ended) {
		t.Errorf("open: %v, want %v", err, ended)
	}
	if _, err := o.Seek(50_000, io.SeekStart); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(o); !errors.Is(err, ended) {
		t.Errorf("read: %v, want %v", err, ended)
	}
	for _, err = range b.List(ctx, "") {
		if err != nil {
			break
		}
	}
	if !errors.Is(err, ended) {
		t.Errorf("list: %v, want %v", err, ended)
	}
}

// testTogether puts and reads one key from several goroutines: each reads an object whole, and never a mixture.
func testTogether(t *testing.T, b store.Bucket) {
	var all [][]byte
	for i := range 4 {
		all = append(all, content(3000+100*i, uint64(i)))
	}
	put(t, b, "one/key", all[0])
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			for range 5 {
				if err := b.Put(t.Context(), "one/key", bytes.NewReader(all[i])); err != nil {
					t.Errorf("put: %v", err)
				}
				got, err := get(b, "one/key")
				if err != nil || !slices.ContainsFunc(all, func(c []byte) bool { return bytes.Equal(c, got) }) {
					t.Errorf("a mixture of %d bytes, %v", len(got), err)
				}
			}
		})
	}
	wg.Wait()
}
