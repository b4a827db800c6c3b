package runner

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

func TestToSign(t *testing.T) {
	for line, want := range map[string]string{
		"-Y sign -n git -f /tmp/key /tmp/buffer":              "/tmp/buffer",
		"-Y sign -n git -f /tmp/key -U /tmp/buffer":           "/tmp/buffer",
		"-Y sign -n file -f key f":                            "",
		"-Y sign -f key f":                                    "",
		"-Y sign -n git -f key":                               "",
		"-Y sign -n git -O hashalg=sha256 -f key f":           "",
		"-Y verify -n git -f allowed -I ramus -s f.sig":       "",
		"-Y find-principals -f allowed -s f.sig":              "",
		"-Y check-novalidate -n git -s f.sig -Overify-time=1": "",
		"-Y":                        "",
		"-Y sign -n git -f key -n":  "",
		"-Y sign -n git -f key f g": "g", // git never does; the last is taken
	} {
		file, ours := toSign(strings.Fields(line))
		if got := map[bool]string{true: file}[ours]; got != want {
			t.Errorf("%q: %q, %v", line, file, ours)
		}
	}
}

func TestSign(t *testing.T) {
	var answer atomic.Pointer[http.HandlerFunc]
	answers := func(f http.HandlerFunc) { answer.Store(&f) }
	answers(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "signature") })
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch b, err := io.ReadAll(r.Body); {
		case r.Method != http.MethodPost || err != nil || string(b) != "commit":
			t.Errorf("%s %q %v", r.Method, b, err)
		}
		(*answer.Load())(w, r)
	}))
	t.Cleanup(door.Close)
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	file := filepath.Join(t.TempDir(), "buffer")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("commit")
	if err := sign(t.Context(), door.URL, file); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file + ".sig"); string(got) != "signature" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := os.Remove(file + ".sig"); err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]func(http.ResponseWriter, *http.Request){
		"no":       func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "ramus: no", http.StatusForbidden) },
		"redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
		"cut":      func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		answers(a)
		err := sign(t.Context(), door.URL, file)
		if err == nil || name == "no" && err.Error() != "no" {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(file + ".sig"); err == nil {
			t.Errorf("%s: there is a signature", name)
		}
	}
	put(strings.Repeat("x", signMax+1))
	if err := sign(t.Context(), door.URL, file); err == nil {
		t.Error("too much is sent")
	}
	if err := sign(t.Context(), door.URL, file+"-gone"); err == nil {
		t.Error("a file that is not there is signed")
	}
}
