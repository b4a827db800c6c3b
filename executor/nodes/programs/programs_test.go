package programs_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/nodes/programs"
	"github.com/ramus-dev/ramus/gitd"
)

// open returns programs, and a server for the script that installs them. lie may change each answer.
func open(t *testing.T, lie func(path string, body []byte) []byte) *programs.Programs {
	t.Helper()
	key, err := gitd.NewSignerKey("test")
	if err != nil {
		t.Fatal(err)
	}
	s, err := gitd.NewCommitSigner(key)
	if err != nil {
		t.Fatal(err)
	}
	p := &programs.Programs{Dir: t.TempDir(), Key: s.PublicKey(),
		Sign: func(text []byte) ([]byte, error) { return s.SignText(programs.Space, text) }}
	for _, arch := range programs.Archs() {
		for _, name := range []string{"kubelet", "K!", "tool"} {
			write(t, filepath.Join(p.Dir, arch, name), "#!/bin/sh\necho "+name+" "+arch+"\n")
		}
	}
	p.Own = filepath.Join(p.Dir, "own")
	write(t, p.Own, "own")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, "/api/agent/")
		text, signature, err := p.Sums(r.Context())
		body := text
		switch arch, name, _ := strings.Cut(path, "/"); {
		case path == "SHA256SUMS":
		case path == "SHA256SUMS.sig":
			body = signature
		default:
			f, x, missing := p.Open(r.Context(), arch, name)
			if missing != nil {
				http.NotFound(w, r)
				return
			}
			defer f.Close()
			body = make([]byte, x.Size)
			_, err = f.Read(body)
		}
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(lie(path, body))
	}))
	t.Cleanup(server.Close)
	p.URL = server.URL + "/"
	return p
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func honest(_ string, body []byte) []byte { return body }

// install runs the script. Returns the folder of programs, and all that the script wrote.
func install(t *testing.T, p *programs.Programs, names ...string) (bin, out string, err error) {
	t.Helper()
	bin = t.TempDir()
	cmd := exec.Command("sh", append([]string{"-s", "--"}, names...)...)
	cmd.Stdin, cmd.Env = strings.NewReader(p.Installer()), append(os.Environ(), "BIN="+bin)
	b, err := cmd.CombinedOutput()
	return bin, string(b), err
}

// TestInstall installs programs, in place of earlier ones.
func TestInstall(t *testing.T) {
	p := open(t, honest)
	bin, out, err := install(t, p, "kubelet", "ramus")
	if err != nil {
		t.Fatal(err, out)
	}
	said, err := exec.Command(filepath.Join(bin, "kubelet")).Output()
	if err != nil || string(said) != "kubelet "+runtime.GOARCH+"\n" {
		t.Errorf("%q, %v", said, err)
	}
	if files, _ := os.ReadDir(bin); len(files) != 2 {
		t.Errorf("files %v", files)
	}
	all, err := p.List(t.Context())
	if err != nil || len(all) != 5 {
		t.Errorf("programs %+v, error %v", all, err)
	}
	write(t, filepath.Join(p.Dir, runtime.GOARCH, "tool"), "#!/bin/sh\necho newer\n")
	if _, out, err := install(t, p, "tool"); err != nil {
		t.Error("after a change:", err, out)
	}
}

// TestWrongPrograms installs nothing if a signature, a sum or a name is wrong.
func TestWrongPrograms(t *testing.T) {
	for name, lie := range map[string]func(path string, body []byte) []byte{
		"a wrong sum": func(path string, body []byte) []byte {
			if path == runtime.GOARCH+"/kubelet" {
				return append(body, '#')
			}
			return body
		},
		"the signature of the sums is wrong": func(path string, body []byte) []byte {
			if path == "SHA256SUMS" {
				return []byte(strings.ReplaceAll(string(body), "a", "b"))
			}
			return body
		},
	} {
		bin, out, err := install(t, open(t, lie), "kubelet")
		if err == nil || !strings.Contains(out, name) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		if files, _ := os.ReadDir(bin); len(files) != 0 {
			t.Errorf("%s: installed %v", name, files)
		}
	}
	if _, out, err := install(t, open(t, honest), "kubelet", "nothing"); err == nil || !strings.Contains(out, "no nothing for") {
		t.Error(err, out)
	}
	p := open(t, honest)
	for _, path := range [][2]string{{"amd64", "../own"}, {"..", "own"}, {"amd64", "K!"}, {"riscv64", "kubelet"}} {
		if _, _, err := p.Open(t.Context(), path[0], path[1]); err == nil {
			t.Errorf("%v is there", path)
		}
	}
}
