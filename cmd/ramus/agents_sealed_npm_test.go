package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ramus-dev/ramus/internal/loopback"
	"github.com/ramus-dev/ramus/internal/programs"
	"github.com/ramus-dev/ramus/internal/redact/redacttest"
	"github.com/ramus-dev/ramus/internal/standin/modeltest"
)

// TestSealedKeyFromNPM has Claude Code work with the sealed key of a person, while the server's own key is wrong. The
// key is in no file of the data folder, no answer, and nowhere in the container: not in its configuration, the
// environment and the arguments of its processes, or its files.
func TestSealedKeyFromNPM(t *testing.T) {
	t.Parallel()
	if os.Getenv("RAMUS_TEST") != "npm" {
		t.Skip("only with RAMUS_TEST=npm: downloads and runs coding agents, for some minutes")
	}
	const canary = "sk-c4n4ry/+VALUE&of-a-sealed-key"
	binary := filepath.Join(t.TempDir(), "ramus")
	if err := programs.Into(filepath.Dir(binary), "cmd/ramus"); err != nil {
		t.Fatal(err)
	}
	a := npmAgents[0]
	image := a.build(t)
	for _, name := range a.agents {
		t.Run(name, func(t *testing.T) {
			s := a.site(t, strings.HasSuffix(name, "-acp"), image, binary)
			s.model.Key = canary
			stop := s.serve("ada")
			cmd := exec.CommandContext(t.Context(), binary, "secret", "set", "--agent", "claude-code")
			cmd.Env, cmd.Stdin = s.environ, strings.NewReader(canary)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("the key cannot be stored: %v\n%s", err, out)
			}

			w := &containerSearch{t: t, owner: s.owner(), value: canary}
			play := s.model.Answer
			s.model.Answer = func(q modeltest.Question) modeltest.Answer {
				answer := play(q)
				if len(q.Tools) > 0 {
					w.processes()
				}
				if answer.Text == finished {
					w.files()
				}
				return answer
			}
			s.edit("conv:sealed", name)
			if w.searched == 0 || !w.exported {
				t.Errorf("%d containers were searched, exported: %v", w.searched, w.exported)
			}

			answers := s.ramus("evidence", "conv:sealed", "--json") + s.ramus("log", "conv:sealed", "--patch", "--output") +
				s.ramus("secret", "list", "--json") + stop()
			for _, form := range redacttest.Text([]byte(answers), canary) {
				t.Errorf("an answer or the log has the key, %s", form)
			}
			hits, err := redacttest.Folder(t.Context(), s.data, canary)
			if err != nil {
				t.Fatal(err)
			}
			for _, hit := range hits {
				t.Errorf("the key is in %s", hit)
			}
			s.silent()
		})
	}
}

// serve starts a server for further commands, which come from a person with a token. stop ends it and returns its log.
func (s *agentSite) serve(subject string) (stop func() string) {
	s.t.Helper()
	server := &chatServer{t: s.t, binary: s.binary, data: s.data, addr: loopback.Address(s.t), environ: s.environ}
	s.config += fmt.Sprintf("listen: %s\nurl: http://%[1]s\n", server.addr)
	s.configure("\x00", "")
	token := strings.Fields(s.ramus("token", "create", "--subject", subject, "--scope", "write"))[0]
	server.start()
	own := s.environ
	s.t.Cleanup(func() { server.kill(syscall.SIGTERM) })
	s.environ = append(slices.Clone(own), "RAMUS_URL=http://"+server.addr, "RAMUS_TOKEN="+token)
	return func() string {
		server.kill(syscall.SIGTERM)
		s.environ = own
		s.ramus("ps") // a command with its own server removes the containers that are left
		return server.log.String()
	}
}

// owner returns the installation's name in the labels of its containers.
func (s *agentSite) owner() string {
	s.t.Helper()
	owner, err := os.ReadFile(filepath.Join(s.data, "hosts", "owner"))
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(string(owner))
}

// containerSearch looks for a value in the containers of an installation. It searches while the agent waits for an
// answer of the model, so the agent's process is there with all that it has.
type containerSearch struct {
	t     *testing.T
	owner string
	value string

	mu       sync.Mutex
	searched int  // containers in which the agent's process was seen
	exported bool // whether the files of such a container were searched
}

// processes searches the configuration of each container, and the environment and arguments of its processes.
func (w *containerSearch) processes() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range w.containers() {
		processes := w.docker("exec", id, "sh", "-c", "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; true")
		w.search("the processes of the container", processes)
		w.search("the configuration of the container", w.docker("inspect", id))
		if bytes.Contains(processes, []byte("claude")) {
			w.searched++
		}
	}
}

// files searches the files of each container.
func (w *containerSearch) files() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range w.containers() {
		files := w.docker("export", id)
		w.search("a file of the container", files)
		w.t.Logf("searched %d bytes of files", len(files))
		w.exported = w.exported || len(files) > 0
	}
}

// containers returns the identifiers of the installation's running containers.
func (w *containerSearch) containers() []string {
	return strings.Fields(string(w.docker("ps", "-q", "--no-trunc", "--filter", "label=ramus.owner="+w.owner)))
}

func (w *containerSearch) search(place string, text []byte) {
	for _, form := range redacttest.Text(text, w.value) {
		w.t.Errorf("%s has the key, %s", place, form)
	}
}

// docker returns the output of a command, which is empty if the container has gone.
func (w *containerSearch) docker(args ...string) []byte {
	out, err := exec.CommandContext(w.t.Context(), "docker", args...).Output()
	if err != nil {
		return nil
	}
	return out
}
