package files

import (
	"bytes"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/transfer"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// part is a part of a form: its header Content-Disposition, and its content.
type part struct{ disposition, content string }

func file(name, content string) part {
	return part{`form-data; name="files"; filename="` + name + `"`, content}
}

func field(name, content string) part { return part{`form-data; name="` + name + `"`, content} }

// form returns a body and its media type.
func form(t testing.TB, parts ...part) (*bytes.Buffer, string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, p := range parts {
		in, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {p.disposition}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(in, p.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b, w.FormDataContentType()
}

// received returns the upload of a body.
func received(t testing.TB, body io.Reader, media string) (*transfer.Upload, error) {
	t.Helper()
	u := (&transfer.Spool{Dir: t.TempDir()}).Begin()
	t.Cleanup(func() { u.Close() })
	r := httptest.NewRequest(http.MethodPost, "/", body)
	r.Header.Set("Content-Type", media)
	return u, receive(&route.Call{W: httptest.NewRecorder(), R: r}, u)
}

func TestReceive(t *testing.T) {
	body, media := form(t, file("a.txt", "a"), field("folder", " /docs/ "), file("deep/er/b.txt", "bb"),
		file("%22q%22.txt", ""), field("replace", "1"), file("", ""))
	u, err := received(t, body, media)
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Check(); err != nil {
		t.Fatal(err)
	}
	if want := []string{"docs/a.txt", "docs/deep/er/b.txt", `docs/"q".txt`}; !slices.Equal(u.Paths(), want) ||
		!u.Replace || u.Bytes() != 3 {
		t.Errorf("%q, replace %v, %d bytes", u.Paths(), u.Replace, u.Bytes())
	}
}

func TestReceiveRefuses(t *testing.T) {
	whole, media := form(t, file("a.txt", "a"), file("b.txt", strings.Repeat("b", 1000)))
	many := make([]part, 2*transfer.MaxFiles+maxFields+1)
	for i := range many {
		many[i] = field("replace", "0")
	}
	tooMany, manyMedia := form(t, many...)
	odd, oddMedia := form(t, field("colour", "blue"))
	nameless, namelessMedia := form(t, file("a.txt", "a"), field("files", "content"))
	long, longMedia := form(t, field("folder", strings.Repeat("x", 4096)))
	for _, c := range []struct {
		name, media string
		body        io.Reader
		kind        route.Kind
	}{
		{"no form", "application/json", strings.NewReader("{}"), route.KindInvalid},
		{"cut", media, bytes.NewReader(whole.Bytes()[:whole.Len()-200]), route.KindInvalid},
		{"garbage", "multipart/form-data; boundary=x", strings.NewReader("garbage"), route.KindInvalid},
		{"many parts", manyMedia, tooMany, route.KindTooLarge},
		{"another field", oddMedia, odd, route.KindInvalid},
		{"a file without a name", namelessMedia, nameless, route.KindInvalid},
		{"a long field", longMedia, long, route.KindTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := received(t, c.body, c.media)
			if err == nil {
				t.Fatal("it was taken")
			}
			if p := route.AsProblem(err, route.Who{}); p.Kind != c.kind {
				t.Errorf("%v: %s, want %s", err, p.Kind, c.kind)
			}
		})
	}
}

func TestArrive(t *testing.T) {
	var api API
	ada, bo := route.Who{Subject: "ada"}, route.Who{Subject: "bo"}
	take := func(who route.Who) bool {
		release, err := api.arrive(who)
		if err == nil {
			t.Cleanup(release)
		}
		return err == nil
	}
	for i, who := range []route.Who{ada, ada, bo} {
		if !take(who) {
			t.Errorf("upload %d has no place", i)
		}
	}
	_, err := api.arrive(ada)
	if p := route.AsProblem(err, ada); p.Kind != route.KindLimited || p.RetryAfter == 0 {
		t.Errorf("%+v", p)
	}
}

// FuzzReceive has no form name a file outside of the work tree.
func FuzzReceive(f *testing.F) {
	for _, d := range []string{`form-data; name="files"; filename="a/b"`, `form-data; name="files"; filename="../x"`,
		`form-data; name="files"; filename*=UTF-8''..%2Fx`, `form-data; name="files"; filename="a\"b"`,
		`form-data; name="files"; filename="C:\\x"`,
		`form-data; name="files"; filename="%2e%2e/x"`, `attachment; filename=x`, `;;;`, `form-data; name="folder"`} {
		f.Add(d, "folder")
		f.Add(d, "../..")
	}
	f.Fuzz(func(t *testing.T, disposition, folder string) {
		if strings.ContainsAny(disposition, "\r\n") {
			return // two headers
		}
		body, media := form(t, part{disposition, "x"}, field("folder", folder))
		u, err := received(t, body, media)
		if err != nil {
			return
		}
		if err := u.Check(); err != nil {
			if !errors.Is(err, gitd.ErrInvalid) && !errors.Is(err, gitd.ErrTooLarge) {
				t.Errorf("%v has no kind", err)
			}
			return
		}
		for _, name := range u.Paths() {
			if !filepath.IsLocal(name) || strings.ContainsAny(name, "\x00\\") || strings.Contains(strings.ToLower(name),
				".git/") {
				t.Errorf("%q", name)
			}
		}
	})
}
