package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUpgradeCheck asks a stand-in of the place of releases.
func TestUpgradeCheck(t *testing.T) {
	t.Parallel()
	answer, status := `{"version":"v9.0.0","notes":"https://example.org/9"}`, http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/version.json" || r.ContentLength > 0 {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		w.WriteHeader(status)
		w.Write([]byte(answer))
	}))
	defer s.Close()
	before := version
	version = "v1.2.3"
	defer func() { version = before }()
	data := t.TempDir()
	check := func(url string, args ...string) (int, string) {
		config := filepath.Join(data, "ramus.yaml")
		if err := os.WriteFile(config, []byte("upgrade: {url: \""+url+"\"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		code := run(t.Context(), append([]string{"upgrade", "--data", data}, args...), stdio{nil, &out, &out}, nil)
		return code, out.String()
	}
	url := s.URL + "/version.json"
	if code, out := check(url, "--check"); code != 0 ||
		!strings.Contains(out, "v9.0.0 is released, and this is v1.2.3\nhttps://example.org/9") {
		t.Errorf("%d: %s", code, out)
	}
	if code, out := check(url, "--check", "--json"); code != 0 || !strings.Contains(out, `"newer": true`) {
		t.Errorf("%d: %s", code, out)
	}
	answer = `{"version":"v1.2.3"}`
	if code, out := check(url, "--check"); code != 0 || !strings.Contains(out, "v1.2.3 is the newest release") {
		t.Errorf("%d: %s", code, out)
	}
	for _, answer = range []string{"", "{}", "<html>", `{"version":"v2", "x":"` + strings.Repeat("x", releaseMax) + `"}`} {
		if code, _ := check(url, "--check"); code != exitAway {
			t.Errorf("%.20s: %d", answer, code)
		}
	}
	answer, status = `{"version":"v9.0.0"}`, http.StatusNotFound
	if code, out := check(url, "--check"); code != exitAway || !strings.Contains(out, "404") {
		t.Errorf("%d: %s", code, out)
	}
	if code, out := check("", "--check"); code != exitFailed || !strings.Contains(out, "upgrade.url") {
		t.Errorf("%d: %s", code, out)
	}
	if code, _ := check(url); code != exitUsage {
		t.Errorf("without --check: %d", code)
	}
}

func TestIsNewer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"v1.2.3", "v1.2.3", false}, {"v1.2.4", "v1.2.3", true}, {"v1.10.0", "v1.9.9", true},
		{"v1.2.3", "v1.2.3-4-gabc", false}, {"v2.0.0", "v1.2.3-4-gabc", true},
		{"v1.0.0", "v2.0.0", false}, {"v1.0.0", "abcdef", true}, {"next", "next", false}, {"v1.0", "v1.0.0", true},
	} {
		if isNewer(c.a, c.b) != c.want {
			t.Errorf("%s is newer than %s: %v", c.a, c.b, !c.want)
		}
	}
}

func FuzzRelease(f *testing.F) {
	f.Add([]byte(`{"version":"v1.0.0","files":[{"name":"a","size":1,"sha256":"x"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parseRelease(b); err == nil && r.Version == "" {
			t.Error("it has no version")
		}
	})
}
