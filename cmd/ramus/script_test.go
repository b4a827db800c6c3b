package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers/kubernetes/clustertest"
	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/internal/programs"
	"github.com/ramus-dev/ramus/internal/redact/redacttest"
	"github.com/ramus-dev/ramus/internal/remains"
	"github.com/ramus-dev/ramus/internal/standin/cloudflaretest"
	"github.com/ramus-dev/ramus/internal/standin/githubtest"
	"github.com/ramus-dev/ramus/internal/standin/hetznertest"
	"github.com/ramus-dev/ramus/internal/standin/trackertest"
	"github.com/rogpeppe/go-internal/testscript"
)

// TestScript runs the stories in testdata/script, with the real binary, real git and
// real sandboxes. In addition to testscript's own commands there are
//
//	server [ARG…]         start `ramus serve`; its address is $URL
//	kill-server           SIGKILL, as a power cut would
//	stop-server           SIGTERM; it must end well
//	$EXAMPLES             the folder of examples
//	$PROGRAMS             the folder of ramus and acp-standin
//	$UPGRADE              the folder of data folders of earlier releases
//	$LFS_BYTES            the size of a large file, with RAMUS_TEST=full
//	$STORY                a name that no other story has
//	$CLUSTER_DIR          the folder of the cluster of make cluster
//	cluster-in COMMAND…   runs a command in the network of that cluster
//	api                   an HTTPS server that wants the value of $CANARY; see apiCommand
//	cloud …               a stand-in of Hetzner Cloud; see cloudCommand
//	vault                 a stand-in of Vault; see vaultCommand
//	models [ANSWER]       a stand-in of model APIs that wants the value of $CANARY; see modelsCommand
//	github …              a stand-in of GitHub; see githubCommand
//	forge …               a stand-in of another forge; see forgeCommand
//	tracker …             a stand-in of an issue tracker; see trackerCommand
//	certificate NAME…     certificates and free addresses; see certificateCommand
//	capture NAME REGEXP   put the first group found in stdout into $NAME
//	leaks PATH            nothing below it may hold the value of $CANARY, in any form
//
// At its end a story's data folder must be one that ramus can open, and nothing of
// it may be left on the machine.
func TestScript(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	// Containers of another user must be able to start the binary.
	for dir := bin; dir != os.TempDir() && len(dir) > 1; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := programs.Into(bin, "cmd/ramus", "internal/standin/acp-standin"); err != nil {
		t.Fatal(err)
	}
	if err := writeClusterIn(bin); err != nil {
		t.Fatal(err)
	}
	sandbox := &sandbox.Engine{Dir: t.TempDir(), Runner: filepath.Join(bin, "ramus")}
	sandboxError := sandbox.Check(t.Context())
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Condition: func(cond string) (bool, error) {
			if cond == "sandbox" {
				return sandboxError == nil, nil
			}
			if cond == "cluster" {
				return clustertest.Network() != "", nil
			}
			if cond == "incluster" {
				return onCluster(), nil
			}
			if cond == "full" {
				return os.Getenv("RAMUS_TEST") == "full", nil
			}
			if cond == "devcontainer" { // and Docker
				return exec.Command("docker", "image", "inspect", "ramus/task:latest").Run() == nil &&
					exec.Command(devcontainer(), "--version").Run() == nil, nil
			}
			if program, ok := strings.CutPrefix(cond, "program:"); ok {
				_, err := exec.LookPath(program)
				return err == nil, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", bin+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("RAMUS_DATA", filepath.Join(e.WorkDir, "data"))
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("GIT_CONFIG_NOSYSTEM", "1")
			e.Setenv("NO_COLOR", "1")
			e.Vars = append(e.Vars, testWay()...)
			e.Setenv("TZ", "UTC")
			if os.Getenv("RAMUS_TEST") == "full" {
				e.Setenv("LFS_BYTES", "200000000")
			}
			e.Setenv("EXAMPLES", examples)
			e.Setenv("PROGRAMS", bin)
			e.Setenv("UPGRADE", filepath.Join(filepath.Dir(examples), "cmd", "ramus", "testdata", "upgrade"))
			e.Setenv("DEVCONTAINER", devcontainer())
			e.Setenv("CLUSTER_DIR", clustertest.Dir())
			e.Setenv("STORY", strings.ToLower(rand.Text()[:8]))
			e.Setenv("CANARY", "c4n4ry+/&="+rand.Text()+"'s")
			if err := os.WriteFile(filepath.Join(e.WorkDir, ".gitconfig"),
				[]byte("[user]\n\tname = Ada\n\temail = ada@example.org\n[init]\n\tdefaultBranch = main\n[advice]\n\tdetachedHead = false\n"), 0o600); err != nil {
				return err
			}
			s := &scriptServer{}
			e.Values[serverKey{}] = s
			e.Values[githubKey{}] = new(*githubtest.Server)
			e.Values[forgeKey{}] = new(forgeStory)
			e.Values[cloudKey{}] = new(*hetznertest.Server)
			e.Values[dnsKey{}] = new(*cloudflaretest.Server)
			e.Values[trackerKey{}] = new(*trackertest.Server)
			e.Defer(func() {
				_ = s.signal(syscall.SIGTERM)
				if _, err := os.Stat(filepath.Join(e.WorkDir, "data", "hosts")); err == nil {
					// A server leaves its containers to the next one. A command with
					// its own server removes them. The story's configuration may be
					// one that is refused.
					last := exec.Command(filepath.Join(bin, "ramus"), "ps", "--data", filepath.Join(e.WorkDir, "data"),
						"--config", os.DevNull)
					last.Env = e.Vars
					if out, err := last.CombinedOutput(); err != nil {
						t.Errorf("%s: the data folder cannot be opened at the end: %v\n%s",
							filepath.Base(e.WorkDir), err, out)
					}
				}
				remains.Check(t, e.WorkDir)
			})
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"server": func(ts *testscript.TestScript, neg bool, args []string) {
				url, err := ts.Value(serverKey{}).(*scriptServer).start(ts, args)
				ts.Check(err)
				ts.Setenv("URL", url)
			},
			"kill-server": func(ts *testscript.TestScript, neg bool, args []string) {
				_ = ts.Value(serverKey{}).(*scriptServer).signal(syscall.SIGKILL)
			},
			"stop-server": func(ts *testscript.TestScript, neg bool, args []string) {
				ts.Check(ts.Value(serverKey{}).(*scriptServer).signal(syscall.SIGTERM))
			},
			"certificate": certificateCommand,
			"github":      githubCommand,
			"api":         apiCommand,
			"vault":       vaultCommand,
			"cloud":       cloudCommand,
			"models":      modelsCommand,
			"forge":       forgeCommand,
			"tracker":     trackerCommand,
			"capture": func(ts *testscript.TestScript, neg bool, args []string) {
				if len(args) != 2 {
					ts.Fatalf("usage: capture NAME REGEXP")
				}
				m := regexp.MustCompile(args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
				if len(m) < 2 {
					ts.Fatalf("%s is not in the output", args[1])
				}
				ts.Setenv(args[0], m[1])
			},
			"leaks": func(ts *testscript.TestScript, neg bool, args []string) {
				if len(args) != 1 {
					ts.Fatalf("usage: leaks PATH")
				}
				hits, err := redacttest.Folder(context.Background(), ts.MkAbs(args[0]), ts.Getenv("CANARY"))
				ts.Check(err)
				for _, hit := range hits {
					ts.Logf("the secret is in %s", hit)
				}
				if len(hits) > 0 {
					ts.Fatalf("the secret was found %d times", len(hits))
				}
			},
		},
	})
	if _, err := exec.LookPath("git-lfs"); err != nil {
		t.Skipf("cannot run here: the story lfs: %v", err)
	}
	if sandboxError != nil {
		t.Skipf("cannot run here: sandboxes: %v", sandboxError)
	}
}

// devcontainer returns the path of the program of @devcontainers/cli, which make setup fetches.
func devcontainer() string {
	if p, err := exec.LookPath("devcontainer"); err == nil {
		return p
	}
	p, _ := filepath.Abs("../../bin/devcontainer/node_modules/.bin/devcontainer")
	return p
}

type serverKey struct{}

// scriptServer is the `ramus serve` of one story.
type scriptServer struct {
	cmd    *exec.Cmd
	logged chan struct{} // closed when all output of the server is in server.log
}

var serving = regexp.MustCompile(`msg="serving HTTP" address=(\S+)`)

func (s *scriptServer) start(ts *testscript.TestScript, args []string) (string, error) {
	if s.cmd != nil {
		return "", errors.New("a server runs already")
	}
	binary := filepath.Join(filepath.SplitList(ts.Getenv("PATH"))[0], "ramus")
	cmd := exec.Command(binary, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	cmd.Dir = ts.Getenv("WORK")
	names := []string{"PATH", "HOME", "RAMUS_DATA", "GIT_CONFIG_NOSYSTEM", "TMPDIR", "CANARY", "RAMUS_SECRETS", "RAMUS_ENV", "SSL_CERT_FILE"}
	for _, way := range testWay() {
		name, _, _ := strings.Cut(way, "=")
		names = append(names, name)
	}
	for _, name := range names {
		if value := ts.Getenv(name); value != "" { // an empty one would override the configuration
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return "", err
	}
	log, err := os.OpenFile(filepath.Join(cmd.Dir, "server.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		log.Close()
		return "", err
	}
	s.cmd, s.logged = cmd, make(chan struct{})
	address := make(chan string, 1)
	go func() {
		defer close(s.logged)
		defer log.Close()
		defer close(address)
		lines := bufio.NewReader(io.TeeReader(stderr, log))
		for {
			line, err := lines.ReadString('\n')
			if m := serving.FindStringSubmatch(line); m != nil {
				address <- m[1]
			}
			if strings.Contains(line, "level=ERROR") {
				fmt.Fprint(os.Stderr, "server: ", line)
			}
			if err != nil {
				return
			}
		}
	}()
	select {
	case a, ok := <-address:
		if !ok {
			return "", errors.New("the server ended before it served")
		}
		return "http://" + a, nil
	case <-time.After(time.Minute):
		return "", errors.New("the server does not serve")
	}
}

func (s *scriptServer) signal(sig syscall.Signal) error {
	if s.cmd == nil {
		return nil
	}
	err := s.cmd.Process.Signal(sig)
	<-s.logged // Wait closes the pipe, even if there is output in it
	werr := s.cmd.Wait()
	s.cmd = nil
	if sig == syscall.SIGKILL {
		return nil
	}
	return errors.Join(err, werr)
}
