package runner

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/internal/largefile"
)

// largeServer is the Git LFS server of a door with one repository.
type largeServer struct {
	url  string
	held map[string]string // by SHA-256
	full bool
}

func (s *largeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if r.Method == http.MethodPut {
		if s.full {
			w.WriteHeader(http.StatusInsufficientStorage)
			fmt.Fprint(w, `{"message": "the server has no room"}`)
			return
		}
		s.held[filepath.Base(r.URL.Path)] = string(body)
		return
	}
	var q struct {
		Operation string
		Objects   []struct{ OID string }
	}
	if err := json.Unmarshal(body, &q); err != nil || r.URL.Path != "/app.git/info/lfs/objects/batch" ||
		q.Operation != "upload" || len(q.Objects) != 1 {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	oid := q.Objects[0].OID
	if _, ok := s.held[oid]; ok {
		fmt.Fprintf(w, `{"objects": [{"oid": %q}]}`, oid)
		return
	}
	fmt.Fprintf(w, `{"objects": [{"oid": %q, "actions": {"upload": {"href": %q}}}]}`, oid, s.url+"/objects/"+oid)
}

func TestCleanLarge(t *testing.T) {
	s := &largeServer{held: map[string]string{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	t.Chdir(t.TempDir())
	content := strings.Repeat("large ", 1000)
	sum := sha256.Sum256([]byte(content))
	pointer := string(largefile.Pointer{OID: hex.EncodeToString(sum[:]), Size: int64(len(content))}.Text())
	if err := os.WriteFile("a.bin", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a.bin", "link.bin"); err != nil {
		t.Fatal(err)
	}
	clean := func(text, file string) (string, error) {
		var to []string
		if file != "" {
			to = []string{server.URL + "/app.git", file}
		}
		var out bytes.Buffer
		err := cleanLarge(t.Context(), strings.NewReader(text), &out, to)
		return out.String(), err
	}
	if got, err := clean(content, ""); got != pointer || err != nil || len(s.held) > 0 {
		t.Errorf("%q, %v", got, err)
	}
	for _, same := range []string{pointer, ""} {
		if got, err := clean(same, "a.bin"); got != same || err != nil || len(s.held) > 0 {
			t.Errorf("%q became %q, %v", same, got, err)
		}
	}
	s.full = true
	if got, err := clean(content, "a.bin"); got != "" || err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("a full server: %q, %v", got, err)
	}
	s.full = false
	if got, err := clean(content, "link.bin"); got != "" || err == nil {
		t.Errorf("a link: %q, %v", got, err)
	}
	if got, err := clean(content, "a.bin"); got != pointer || err != nil || s.held[hex.EncodeToString(sum[:])] != content {
		t.Errorf("%q, %v", got, err)
	}
	s.full = true // content that the server has is not sent again
	if got, err := clean(content, "a.bin"); got != pointer || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
