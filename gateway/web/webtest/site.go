package webtest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ramus-dev/ramus/internal/loopback"
	"github.com/ramus-dev/ramus/internal/programs"
)

// Site is a real ramus that serves its pages on loopback, with an empty data folder and the agents coder and
// reviewer, which are stand-ins that perform the lines of a prompt. Its exported fields up to Config are its options.
type Site struct {
	T T
	// Ramus and Agent are the paths of the programs ramus and acp-standin, which containers of any user can read.
	// Empty builds them.
	Ramus, Agent string
	// Sample is the folder of the repository that is imported.
	Sample string
	// Config has further lines of the configuration.
	Config string
	// NoLink is set if Config lets people sign in, so that the server prints no link for the owner.
	NoLink bool

	// URL is the address of the site, and Data its data folder. Prepare sets them.
	URL, Data string

	dir     string
	environ []string
	server  *exec.Cmd
	read    chan struct{} // closed when the log has ended
	served  bool          // once

	mu   sync.Mutex // guards all below
	log  bytes.Buffer
	link string
}

// siteConfig is the configuration of a site.
const siteConfig = `listen: %s
engine: sandbox
sandbox: {read_only: [%q]}
agents:
  coder:
    kind: acp
    command: [%q]
    state: [.acp-standin]
    permission: ask
    env: {ACP_STANDIN_SCRIPT: "1", ACP_STANDIN_ASK: execute}
  reviewer:
    kind: acp
    command: [%q]
    state: [.acp-standin]
    permission: ask
    env: {ACP_STANDIN_SCRIPT: "1", ACP_STANDIN_ASK: execute}
`

// serving is in the line of a server that listens.
const serving = `msg="serving HTTP"`

// signIn begins the line of `ramus serve` that has the owner's link.
const signIn = "ramus: sign in at "

// Prepare makes the folders, the programs, the configuration, and a Git repository of the sample.
func (s *Site) Prepare() {
	s.T.Helper()
	dir, err := os.MkdirTemp("", "site") // a short path, because sockets are below it
	s.must(err)
	s.dir, s.Data = dir, filepath.Join(dir, "data")
	s.T.Cleanup(func() { os.RemoveAll(dir) })
	s.must(os.Chmod(dir, 0o755)) // containers of another user start the programs
	bin := filepath.Join(dir, "bin")
	if s.Ramus == "" {
		s.must(programs.Into(bin, "cmd/ramus"))
		s.Ramus = filepath.Join(bin, "ramus")
	}
	if s.Agent == "" {
		s.must(programs.Into(bin, "internal/standin/acp-standin"))
		s.Agent = filepath.Join(bin, "acp-standin")
	}
	s.environ = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "RAMUS_DATA=" + s.Data, "NO_COLOR=1",
		"GIT_CONFIG_NOSYSTEM=1", "RAMUS_POOL=0"}
	address := loopback.Address(s.T)
	s.URL = "http://" + address
	s.must(os.MkdirAll(s.Data, 0o700))
	config := fmt.Sprintf(siteConfig, address, filepath.Dir(s.Agent), s.Agent, s.Agent)
	s.must(os.WriteFile(filepath.Join(s.Data, "ramus.yaml"), []byte(config+s.Config), 0o600))
	s.must(os.CopyFS(s.Source(), os.DirFS(s.Sample)))
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"},
		{"-c", "user.name=Ada", "-c", "user.email=ada@example.org", "commit", "-qm", "The sample"}} {
		s.Do("git", append([]string{"-C", s.Source()}, args...)...)
	}
	s.T.Cleanup(func() {
		s.End()
		if s.served {
			s.Do(s.Ramus, "ps") // a command with a server of its own removes the containers that are left
		}
	})
}

// Source is the folder of the repository that is imported.
func (s *Site) Source() string { return filepath.Join(s.dir, "sample") }

func (s *Site) must(err error) {
	s.T.Helper()
	if err != nil {
		s.T.Fatal(err)
	}
}

// Serve starts the server, and returns when it serves.
func (s *Site) Serve() {
	s.T.Helper()
	s.server = exec.Command(s.Ramus, "serve")
	s.server.Dir, s.server.Env = s.dir, s.environ
	stderr, err := s.server.StderrPipe()
	s.must(err)
	s.must(s.server.Start())
	up, read := make(chan struct{}), make(chan struct{})
	s.read = read
	go func() {
		defer close(read)
		s.readLog(stderr, up)
	}()
	select {
	case <-up:
		s.served = true
	case <-read:
		s.server = nil
		s.T.Fatalf("the server does not start:\n%s", s.Log())
	case <-time.After(time.Minute):
		s.T.Fatalf("the server does not serve after a minute:\n%s", s.Log())
	}
}

// readLog keeps the log, and closes up at the last line of a start.
func (s *Site) readLog(r io.Reader, up chan struct{}) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		s.mu.Lock()
		s.log.WriteString(line + "\n")
		rest, isLink := strings.CutPrefix(line, signIn)
		if isLink {
			s.link, _, _ = strings.Cut(rest, " ")
		}
		s.mu.Unlock()
		if up != nil && (isLink || s.NoLink && strings.Contains(line, serving)) {
			close(up)
			up = nil
		}
	}
}

// Link returns the link that signs the owner in, once, which the server printed at its last start.
func (s *Site) Link() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link
}

// Log returns the log of all servers so far.
func (s *Site) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// Kill ends the server at once, as the kernel does with a process that takes too much memory. Returns its process id.
func (s *Site) Kill() int { return s.signal(syscall.SIGKILL) }

// End stops the server, if one runs.
func (s *Site) End() { s.signal(syscall.SIGTERM) }

func (s *Site) signal(sig syscall.Signal) int {
	if s.server == nil {
		return 0
	}
	id := s.server.Process.Pid
	_ = s.server.Process.Signal(sig) // one that has ended needs none
	<-s.read
	_ = s.server.Wait() // its status is that of the signal
	s.server = nil
	return id
}

// Do runs a program with the environment of the site, and returns its output without space around it.
func (s *Site) Do(name string, args ...string) string {
	s.T.Helper()
	out, err := s.try(name, args...)
	if err != nil {
		s.T.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func (s *Site) try(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = s.dir, s.environ
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// Git runs git in the imported repository, as the server has it. Returns "" if git fails.
func (s *Site) Git(args ...string) string {
	out, err := s.try("git", append([]string{"-C", filepath.Join(s.Data, "repos", "sample.git")}, args...)...)
	if err != nil {
		return ""
	}
	return out
}

// Check has git look for faults in the imported repository.
func (s *Site) Check() {
	s.T.Helper()
	s.Do("git", "-C", filepath.Join(s.Data, "repos", "sample.git"), "fsck", "--strict", "--no-dangling")
}

// Get returns the body of a path of the API, by the unix socket.
func (s *Site) Get(path string) string {
	s.T.Helper()
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", filepath.Join(s.Data, "ramus.sock"))
		}}}
	resp, err := client.Get("http://ramus" + path)
	s.must(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	s.must(err)
	if resp.StatusCode != http.StatusOK {
		s.T.Fatalf("%s: %s\n%s", path, resp.Status, body)
	}
	return string(body)
}
