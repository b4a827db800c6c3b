package gitd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ramus-dev/ramus/gitd/lfs"
	gossh "golang.org/x/crypto/ssh"
)

// memoryFiles are Git LFS objects in memory.
type memoryFiles struct {
	mu   sync.Mutex // guards objects
	held map[string][]byte
}

func (m *memoryFiles) key(r *Repo, o lfs.Object) string { return r.Name() + " " + o.OID }

func (m *memoryFiles) Find(_ context.Context, r *Repo, objects []lfs.Object, _ bool) (found []lfs.Object, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range objects {
		if text, ok := m.held[m.key(r, o)]; ok {
			found = append(found, lfs.Object{OID: o.OID, Size: int64(len(text))})
		}
	}
	return found, nil
}

func (m *memoryFiles) Put(_ context.Context, r *Repo, o lfs.Object, from io.Reader) error {
	text, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held == nil {
		m.held = map[string][]byte{}
	}
	m.held[m.key(r, o)] = text
	return nil
}

func (m *memoryFiles) Open(_ context.Context, r *Repo, o lfs.Object) (io.ReadSeekCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	text, ok := m.held[m.key(r, o)]
	if !ok {
		return nil, ErrNotFound
	}
	return nopCloser{bytes.NewReader(text)}, nil
}

func (m *memoryFiles) Send(context.Context, *Repo, Upstream, []lfs.Object) error { return nil }

type nopCloser struct{ io.ReadSeeker }

func (nopCloser) Close() error { return nil }

func largeFile(content string) lfs.Object {
	sum := sha256.Sum256([]byte(content))
	return lfs.Object{OID: hex.EncodeToString(sum[:]), Size: int64(len(content))}
}

// ask sends a request to the Git LFS server of a repository.
func (w *wire) ask(method, url, token, body string, header ...string) (int, string, http.Header) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return res.StatusCode, string(text), res.Header
}

func batchOf(operation, ref string, objects ...lfs.Object) string {
	b := lfs.Batch{Operation: operation, Objects: objects}
	if ref != "" {
		b.Ref = &lfs.Ref{Name: ref}
	}
	text, err := json.Marshal(b)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func TestLargeFiles(t *testing.T) {
	w := newWire(t, func(s *Server) {
		s.LFS, s.Secrets = &memoryFiles{}, canaries(t)
		s.Limits.LFSBytes = 1000
	})
	w.repo("a")
	w.repo("b")
	admin := w.token(Grant{Subject: "admin", Repo: "*", Scopes: []string{ScopeWrite}, Write: []string{"refs/*"}})
	reader := w.token(Grant{Subject: "reader", Repo: "a", Scopes: []string{ScopeRead}})
	container := w.token(Grant{Subject: "run:x", Repo: "a", Scopes: []string{ScopeWrite},
		Read: []string{"refs/heads/main"}, Write: []string{"refs/heads/ramus/x"}})
	base := w.http.URL + "/a.git/info/lfs"
	o := largeFile("hello, hello")

	for name, c := range map[string]struct {
		token, body string
		status      int
		text        string
	}{
		"nobody":           {"", batchOf(lfs.Download, "", o), 401, `a token is needed`},
		"another token":    {"x", batchOf(lfs.Download, "", o), 401, `refused`},
		"a reader uploads": {reader, batchOf(lfs.Upload, "", o), 403, `may only read a`},
		"no JSON":          {admin, "{", 400, `no JSON`},
		"another ref": {container, batchOf(lfs.Upload, "refs/heads/main", o), 403,
			`may write only refs/heads/ramus/x`},
		"its own ref": {container, batchOf(lfs.Upload, "refs/heads/ramus/x", o), 200,
			`"upload":{"href":"` + base + "/objects/" + o.OID + `/12"`},
		"a missing object": {reader, batchOf(lfs.Download, "", o), 200, `"code":404`},
		"too large":        {admin, batchOf(lfs.Upload, "", lfs.Object{OID: o.OID, Size: 1001}), 200, `"code":422`},
		"no name of an object": {admin, batchOf(lfs.Upload, "", lfs.Object{OID: "../../etc/passwd", Size: 1}), 200,
			`"code":422`},
	} {
		status, text, header := w.ask("POST", base+"/objects/batch", c.token, c.body)
		if status != c.status || !strings.Contains(text, c.text) || header.Get("Content-Type") != lfs.MediaType {
			t.Errorf("%s: %d %s %s", name, status, text, header)
		}
		if status == 401 && header.Get("LFS-Authenticate") == "" {
			t.Errorf("%s: %v", name, header)
		}
	}

	put := func(token string, o lfs.Object, content string) (int, string) {
		status, text, _ := w.ask("PUT", fmt.Sprintf("%s/objects/%s/%d", base, o.OID, o.Size), token, content)
		return status, text
	}
	secret := "x" + canary + "x"
	for name, c := range map[string]struct {
		token   string
		o       lfs.Object
		content string
		status  int
		text    string
	}{
		"a reader":        {reader, o, "hello, hello", 403, "may only read a"},
		"another content": {admin, o, "hello, hullo", 400, "SHA-256"},
		"a shorter one":   {admin, o, "hello", 400, "announced"},
		"too large": {admin, lfs.Object{OID: o.OID, Size: 1001}, strings.Repeat("x", 1001), 413,
			"lfs_bytes allows 1000"},
		"a secret":      {admin, largeFile(secret), secret, 403, "the secret"},
		"the right one": {container, o, "hello, hello", 200, ""},
	} {
		if status, text := put(c.token, c.o, c.content); status != c.status || !strings.Contains(text, c.text) {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	if status, text := put(admin, o, "hello, hello"); status != 200 {
		t.Fatal(status, text)
	}

	if _, text, _ := w.ask("POST", base+"/objects/batch", reader, batchOf(lfs.Download, "refs/heads/nothing",
		o)); !strings.Contains(text, `"header":{"Authorization":"Bearer `+reader) {
		t.Error(text)
	}
	if _, text, _ := w.ask("POST", base+"/objects/batch", admin, batchOf(lfs.Upload, "", o)); strings.Contains(text,
		"actions") || strings.Contains(text, "error") {
		t.Error(text)
	}
	if status, text, _ := w.ask("POST", base+"/verify", admin, string(mustJSON(o))); status != 200 {
		t.Error(status, text)
	}
	if status, text, _ := w.ask("POST", base+"/verify", admin, string(mustJSON(lfs.Object{OID: o.OID, Size: 5}))); status != 404 {
		t.Error(status, text)
	}

	object := fmt.Sprintf("/info/lfs/objects/%s/%d", o.OID, o.Size)
	for name, c := range map[string]struct {
		path, token string
		header      []string
		status      int
		text        string
	}{
		"a reader":              {"/a.git" + object, reader, nil, 200, "hello, hello"},
		"without .git":          {"/a" + object, reader, nil, 200, "hello, hello"},
		"the rest":              {"/a.git" + object, reader, []string{"Range", "bytes=7-"}, 206, "hello"},
		"the rest, to its end":  {"/a.git" + object, reader, []string{"Range", "bytes=7-11"}, 206, "hello"},
		"the middle is a whole": {"/a.git" + object, reader, []string{"Range", "bytes=7-8"}, 200, "hello, hello"},
		"nobody":                {"/a.git" + object, "", nil, 401, "a token is needed"},
		"another repository":    {"/b.git" + object, admin, nil, 404, "neither"},
		"not for this token":    {"/b.git" + object, reader, nil, 404, "not found"},
		"no repository":         {"/c.git" + object, admin, nil, 404, "not found"},
		"another path":          {"/a.git/info/lfs/x", admin, nil, 404, "not found"},
		"no size":               {"/a.git/info/lfs/objects/" + o.OID, admin, nil, 404, "OID/SIZE"},
	} {
		status, text, _ := w.ask("GET", w.http.URL+c.path, c.token, "", c.header...)
		if status != c.status || !strings.Contains(text, c.text) || status < 300 && text != c.text {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	for _, path := range []string{"locks", "locks/verify"} {
		if status, text, _ := w.ask("POST", base+"/"+path, admin, "{}"); status != 404 || !strings.Contains(text, `"message"`) {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}

func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// TestLargeFilesSSH has stock git-lfs push by SSH. It asks there for a token, and sends the objects by HTTP.
func TestLargeFilesSSH(t *testing.T) {
	if _, err := exec.LookPath("git-lfs"); err != nil {
		t.Skip("cannot run here: git-lfs is not installed")
	}
	_, writer, writerFile := sshKey(t)
	readerKey, reader, readerFile := sshKey(t)
	// serve returns a server with a repository, and its address by SSH.
	serve := func(hasURL bool) (*wire, string) {
		w := newWire(t, func(s *Server) {
			s.LFS = &memoryFiles{}
			s.AuthorizedKeys = filepath.Join(t.TempDir(), "authorized_keys")
			write(t, s.AuthorizedKeys, writer+" writer\nramus-read-only "+reader+" reader\n")
		})
		if hasURL {
			w.URL = w.http.URL
		}
		w.repo("a")
		return w, w.serveSSH("127.0.0.1")
	}
	_, homeless := serve(false)
	w, address := serve(true)
	run := func(key, dir string, args ...string) (string, error) {
		return stockEnvTry(append(sshGit(t, key), "PATH="+os.Getenv("PATH"), "HOME="+t.TempDir()), dir, args...)
	}
	url := "ssh://git@" + address + "/a.git"
	c := filepath.Join(t.TempDir(), "c")
	if out, err := run(writerFile, "", "clone", "-q", url, c); err != nil {
		t.Fatal(out, err)
	}
	for _, args := range [][]string{{"lfs", "install", "--local"}, {"lfs", "track", "*.bin"}} {
		if out, err := run(writerFile, c, args...); err != nil {
			t.Fatal(out, err)
		}
	}
	addFile(t, c, "large.bin", strings.Repeat("large ", 5000))
	out, err := run(writerFile, c, "push", "-q", "ssh://git@"+homeless+"/a.git", "HEAD:main")
	if err == nil {
		t.Fatalf("pushed without an address: %s", out)
	}
	contains(t, out, "sets url in the configuration")
	if out, err := run(writerFile, c, "push", "-q", "origin", "HEAD:main"); err != nil {
		t.Fatal(out, err)
	}
	again := filepath.Join(t.TempDir(), "again")
	if out, err := run(readerFile, "", "clone", "-q", "-c", "filter.lfs.smudge=git-lfs smudge -- %f", "-c",
		"filter.lfs.required=true", url, again); err != nil {
		t.Fatal(out, err)
	}
	if text, err := os.ReadFile(filepath.Join(again, "large.bin")); err != nil || len(text) != 30000 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	// Another server whose upstream this is asks for the Git LFS server in the same way.
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	known := filepath.Join(t.TempDir(), "known_hosts")
	probe, err := gossh.Dial("tcp", address,
		&gossh.ClientConfig{User: "git", Auth: []gossh.AuthMethod{gossh.PublicKeys(readerKey)},
			HostKeyCallback: func(_ string, _ net.Addr, key gossh.PublicKey) error {
				write(t, known, "["+host+"]:"+port+" "+string(gossh.MarshalAuthorizedKey(key)))
				return nil
			}})
	if err != nil {
		t.Fatal(err)
	}
	probe.Close()
	copied, err := w.Create(t.Context(), "copy")
	if err != nil {
		t.Fatal(err)
	}
	remote, err := copied.LFSRemote(t.Context(), Upstream{URL: url, Credential: func(context.Context) (Credential, error) {
		return Credential{KeyFile: readerFile, KnownHosts: known}, nil
	}}, []string{strings.TrimPrefix(w.http.URL, "http://")}, lfs.Download)
	if err != nil {
		t.Fatal(err)
	}
	large := largeFile(strings.Repeat("large ", 5000))
	if found, err := remote.Find(t.Context(), []lfs.Object{large, largeFile("nothing")}); err != nil ||
		len(found) != 1 || found[0] != large {
		t.Errorf("found %v, %v", found, err)
	}

	client := dialSSH(t, address, gossh.PublicKeys(readerKey))
	defer client.Close()
	for command, want := range map[string]string{
		"git-lfs-authenticate a.git upload":   "may only read a",
		"git-lfs-authenticate a.git wat":      "download or upload",
		"git-lfs-authenticate b.git download": "not found",
		"git-lfs-authenticate a.git":          "needs a repository",
	} {
		session, err := client.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		out, err := session.CombinedOutput(command)
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %s %v", command, out, err)
		}
		session.Close()
	}
}
