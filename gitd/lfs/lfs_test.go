package lfs_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/ramus-dev/ramus/gitd/lfs"
	"github.com/ramus-dev/ramus/gitd/object"
)

// objectOf returns the object of a content.
func objectOf(content string) lfs.Object {
	sum := sha256.Sum256([]byte(content))
	return lfs.Object{OID: hex.EncodeToString(sum[:]), Size: int64(len(content))}
}

func TestPointer(t *testing.T) {
	o := objectOf("hello")
	text := string(o.Pointer())
	if got, ok := lfs.ParsePointer([]byte(text)); !ok || got != o {
		t.Errorf("read %v, %v", got, ok)
	}
	for name, text := range map[string]string{
		"an extension": strings.Replace(text, "oid ", "ext-0-x sha256:"+o.OID+"\noid ", 1),
		"an old version": strings.Replace(text, "https://git-lfs.github.com/spec/v1",
			"https://hawser.github.com/spec/v1", 1),
		"no last break": strings.TrimSuffix(text, "\n"),
	} {
		if got, ok := lfs.ParsePointer([]byte(text)); !ok || got != o {
			t.Errorf("%s: %v, %v", name, got, ok)
		}
	}
	for name, text := range map[string]string{
		"nothing":              "",
		"text":                 "hello\n",
		"another version":      strings.Replace(text, "/v1", "/v9", 1),
		"no size":              text[:strings.Index(text, "size")],
		"no object":            strings.Replace(text, "oid ", "old ", 1),
		"capitals":             strings.Replace(text, o.OID, strings.ToUpper(o.OID), 1),
		"another hash":         strings.Replace(text, "sha256", "sha1", 1),
		"a negative size":      strings.Replace(text, "size 5", "size -5", 1),
		"a longer file":        text + strings.Repeat("x y\n", 300),
		"a line without a key": text + "x\n",
	} {
		if got, ok := lfs.ParsePointer([]byte(text)); ok {
			t.Errorf("%s: %v", name, got)
		}
	}
	if p := objectOf("").Pointer(); len(p) != 0 {
		t.Errorf("the pointer to nothing is %q", p)
	}
}

func TestParseBatch(t *testing.T) {
	o := objectOf("hello")
	good := fmt.Sprintf(`{"operation":"upload","transfers":["lfs-standalone-file","basic"],"ref":{"name":"refs/heads/main"},"objects":[{"oid":%q,"size":5}],"hash_algo":"sha256"}`, o.OID)
	b, err := lfs.ParseBatch(strings.NewReader(good))
	if err != nil || b.Operation != lfs.Upload || b.RefName() != "refs/heads/main" || len(b.Objects) != 1 || b.Objects[0] != o {
		t.Errorf("read %+v, %v", b, err)
	}
	many := fmt.Sprintf(`{"operation":"download","objects":[%s{}]}`, strings.Repeat("{},", lfs.ObjectsMax))
	for text, kind := range map[string]error{
		``: object.ErrInvalid, `{`: object.ErrInvalid, `[]`: object.ErrInvalid, good + "x": object.ErrInvalid,
		strings.Replace(good, "upload", "remove", 1):          object.ErrInvalid,
		strings.Replace(good, `"basic"`, `"tus"`, 1):          object.ErrInvalid,
		strings.Replace(good, `"sha256"`, `"sha512"`, 1):      object.ErrInvalid,
		strings.Replace(good, `refs/heads/main`, `../x`, 1):   object.ErrInvalid,
		strings.Replace(good, `"size":5`, `"size":"five"`, 1): object.ErrInvalid,
		`{"operation":"upload"}`:                              object.ErrInvalid,
		many:                                                  object.ErrTooLarge,
		strings.Repeat(" ", lfs.RequestMax+1):                 object.ErrTooLarge,
	} {
		_, err := lfs.ParseBatch(strings.NewReader(text))
		if !errors.Is(err, kind) || object.ClientText(err, "") == "" {
			t.Errorf("%.60q: %v, want %v", text, err, kind)
		}
	}
}

func FuzzParseBatch(f *testing.F) {
	o := objectOf("hello")
	f.Add([]byte(fmt.Sprintf(`{"operation":"upload","transfers":["basic"],"ref":{"name":"refs/heads/main"},"objects":[{"oid":%q,"size":5}]}`, o.OID)))
	f.Add([]byte(`{"operation":"download","objects":[{"oid":"x","size":-1},{}]}`))
	f.Add([]byte(`{"objects":null,"ref":null,"operation":"download"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := lfs.ParseBatch(bytes.NewReader(text))
		if err != nil {
			if !errors.Is(err, object.ErrInvalid) && !errors.Is(err, object.ErrTooLarge) {
				t.Errorf("%v is of no kind", err)
			}
			return
		}
		if len(b.Objects) == 0 || len(b.Objects) > lfs.ObjectsMax || b.Operation != lfs.Upload && b.Operation != lfs.Download {
			t.Errorf("accepted %+v", b)
		}
		if name := b.RefName(); name != "" && object.CheckRef(name) != nil {
			t.Errorf("accepted the ref %q", name)
		}
	})
}

func FuzzParsePointer(f *testing.F) {
	f.Add(objectOf("hello").Pointer())
	f.Add([]byte("version http://git-media.io/v/2\noid sha256:\nsize 0\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		o, ok := lfs.ParsePointer(text)
		if !ok {
			return
		}
		if err := o.Check(); err != nil {
			t.Fatal(err)
		}
		if o.Size == 0 {
			return
		}
		if again, ok := lfs.ParsePointer(o.Pointer()); !ok || again != o {
			t.Errorf("%v becomes %v", o, again)
		}
	})
}

func TestContent(t *testing.T) {
	o := objectOf("hello")
	for name, in := range map[string]io.Reader{
		"whole": strings.NewReader("hello"), "bytes": iotest.OneByteReader(strings.NewReader("hello")),
		"with its end": iotest.DataErrReader(strings.NewReader("hello")),
	} {
		if text, err := io.ReadAll(lfs.NewContent(o, in)); err != nil || string(text) != "hello" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	for _, text := range []string{"", "hell", "hullo", "hello!", strings.Repeat("hello", 100)} {
		_, err := io.ReadAll(lfs.NewContent(o, strings.NewReader(text)))
		if !errors.Is(err, object.ErrInvalid) || object.ClientText(err, "") == "" {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := io.ReadAll(lfs.NewContent(o,
		iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("hello"))))); !errors.Is(err, iotest.ErrTimeout) {
		t.Errorf("a broken connection: %v", err)
	}
}

// upstream serves one object, from the address that href returns.
func upstream(t *testing.T, content string, href func(own string) string) (*httptest.Server, *lfs.Remote) {
	t.Helper()
	o := objectOf(content)
	var own string
	mux := http.NewServeMux()
	mux.HandleFunc("POST /app.git/info/lfs/objects/batch", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Basic abc" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		var reply lfs.Reply
		b, err := lfs.ParseBatch(r.Body)
		if err != nil {
			t.Error(err)
		}
		for _, asked := range b.Objects {
			offer := lfs.Offer{Object: asked, Error: &lfs.Fault{Code: 404, Message: "no such object"}}
			if asked == o {
				offer.Error = nil
				offer.Actions = map[string]lfs.Action{lfs.Download: {Href: href(own),
					Header: map[string]string{"X-Key": "k"}}}
			}
			reply.Objects = append(reply.Objects, offer)
		}
		_ = json.NewEncoder(w).Encode(reply)
	})
	mux.HandleFunc("GET /object", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Key") != "k" {
			http.Error(w, "no key", http.StatusForbidden)
			return
		}
		_, _ = io.WriteString(w, content)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	own = s.URL
	host := strings.TrimPrefix(s.URL, "http://")
	return s, &lfs.Remote{URL: s.URL + "/app.git/info/lfs", Header: http.Header{"Authorization": {"Basic abc"}},
		Private: []string{host}}
}

func TestRemote(t *testing.T) {
	o, other := objectOf("hello"), objectOf("other")
	_, remote := upstream(t, "hello", func(own string) string { return own + "/object" })
	found, err := remote.Find(t.Context(), []lfs.Object{other, o})
	if err != nil || len(found) != 1 || found[0] != o {
		t.Errorf("found %v, %v", found, err)
	}
	in, err := remote.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if text, err := io.ReadAll(lfs.NewContent(o, in)); err != nil || string(text) != "hello" {
		t.Errorf("read %q, %v", text, err)
	}
	if _, err := remote.Open(t.Context(), other); !errors.Is(err, object.ErrNotFound) {
		t.Errorf("an object that is not there: %v", err)
	}
	remote.Header = nil
	if _, err := remote.Open(t.Context(), o); !errors.Is(err, object.ErrUpstream) {
		t.Errorf("without a credential: %v", err)
	}
}

// TestRemotePrivate checks that the answers of an upstream lead to no address that is not public, unless the operator
// has named it.
func TestRemotePrivate(t *testing.T) {
	inner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_,
			_ = io.WriteString(w, "hello")
	}))
	defer inner.Close()
	o := objectOf("hello")
	for _, href := range []string{inner.URL + "/object", strings.Replace(inner.URL, "127.0.0.1", "localhost", 1),
		"http://169.254.169.254/latest", "http://[::1]:1/"} {
		_, remote := upstream(t, "hello", func(string) string { return href })
		if _, err := remote.Open(t.Context(), o); !errors.Is(err, object.ErrUpstream) || !strings.Contains(err.Error(), "not public") {
			t.Errorf("%s: %v", href, err)
		}
	}
	for _, href := range []string{"file:///etc/passwd", "/object", "gopher://x/", "http:///x"} {
		_, remote := upstream(t, "hello", func(string) string { return href })
		if _, err := remote.Open(t.Context(), o); !errors.Is(err, object.ErrUpstream) {
			t.Errorf("%s: %v", href, err)
		}
	}
	_, remote := upstream(t, "hello", func(string) string { return inner.URL })
	remote.Private = append(remote.Private, strings.TrimPrefix(inner.URL, "http://"))
	in, err := remote.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	in.Close()
}

func TestRemoteFolder(t *testing.T) {
	o := objectOf("hello")
	remote := &lfs.Remote{Dir: t.TempDir()}
	if _, err := remote.Open(t.Context(), o); !errors.Is(err, object.ErrNotFound) {
		t.Errorf("an empty folder: %v", err)
	}
	path := filepath.Join(remote.Dir, o.OID[:2], o.OID[2:4], o.OID)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", path); err != nil {
		t.Fatal(err)
	}
	if _, err := remote.Open(t.Context(), o); err == nil {
		t.Error("a link is followed")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := remote.Find(t.Context(), []lfs.Object{o, objectOf("other")})
	if err != nil || len(found) != 1 {
		t.Errorf("found %v, %v", found, err)
	}
	in, err := remote.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	in.Close()
}
