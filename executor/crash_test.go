package executor_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gitd"
)

// crashWorkflow appends one line a node: a command that ran twice, or was
// lost, shows in the file.
func crashWorkflow(nodes int) string {
	var b strings.Builder
	b.WriteString("id: crash\nnodes:\n")
	for i := range nodes {
		fmt.Fprintf(&b, "  - {id: n%d, run: \"sleep 0.0%d; echo %d >>log; echo said %d\"}\n", i, i%5, i, i)
	}
	return b.String()
}

// crashChild is the server that the crash test kills: it opens the data
// folder, claims the run if nobody has, and waits for its end.
func crashChild(dir string) error {
	git := &gitd.Server{Root: filepath.Join(dir, "repos")}
	ctx := context.Background()
	if err := git.Open(ctx); err != nil {
		return err
	}
	x := &executor.Executor{Data: dir, Git: git, Fleet: &containers.Fleet{Dir: filepath.Join(dir, "fleet"),
		Engine: &containers.Sandbox{Dir: filepath.Join(dir, "sandbox"), Runner: os.Getenv("RAMUS_TEST_RUNNER")}}}
	if err := x.Open(ctx); err != nil {
		return err
	}
	fmt.Println("open")
	c, err := executor.ParseCaller("run:crash")
	if err != nil {
		return err
	}
	nodes, _ := strconv.Atoi(os.Getenv("RAMUS_TEST_NODES"))
	key := os.Getenv("RAMUS_TEST_KEY")
	if key == "" {
		key = "job"
	}
	r, err := x.Submit(ctx, executor.Request{Key: key, Caller: c, Repo: "demo", Workflow: crashWorkflow(nodes)})
	if err != nil {
		return err
	}
	fmt.Println("claimed")
	for !r.Ended() {
		for _, err := range x.Events(ctx, r.Name(), 0, true) {
			if err != nil {
				return err
			}
		}
		time.Sleep(5 * time.Millisecond)
		if r, err = x.Run(ctx, r.Name()); err != nil {
			return err
		}
	}
	fmt.Println("ended", r.State, r.Reason, r.Error)
	return x.Close(ctx, false)
}

// TestCrash kills the server, and now and then the containers with it, at
// random moments, until the run has ended: every command is there once, in
// order. RAMUS_CRASHES says how many runs; each is killed a dozen times.
func TestCrash(t *testing.T) {
	const nodes = 12
	rounds := 2
	if n, err := strconv.Atoi(os.Getenv("RAMUS_CRASHES")); err == nil {
		rounds = n
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for round := range rounds {
		w := newWorld(t, nil)
		w.stop(false)
		kills := 0
		for {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "RAMUS_TEST_CRASH="+w.data, "RAMUS_TEST_RUNNER="+runnerBinary, "RAMUS_TEST_NODES="+strconv.Itoa(nodes))
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			if !lines.Scan() || lines.Text() != "open" {
				t.Fatalf("round %d: the server did not open after %d kills: %q", round, kills, lines.Text())
			}
			ended := ""
			timer := time.AfterFunc(time.Duration(rnd.IntN(1200))*time.Millisecond, func() {
				if kills < 25 {
					_ = cmd.Process.Kill()
				}
			})
			for lines.Scan() {
				if rest, ok := strings.CutPrefix(lines.Text(), "ended "); ok {
					ended = rest
				}
			}
			_, _ = io.Copy(io.Discard, out)
			timer.Stop()
			_ = cmd.Wait()
			if ended != "" {
				if !strings.HasPrefix(ended, "complete") {
					t.Fatalf("round %d: after %d kills the run ended as %s", round, kills, ended)
				}
				break
			}
			kills++
			if rnd.IntN(3) == 0 {
				killContainers(t, w.data)
			}
		}
		w.start()
		got := strings.Fields(w.inRepo("show", "ramus/run-crash:log"))
		if len(got) != nodes {
			t.Errorf("round %d, %d kills: log is %v\n%s", round, kills, got, w.journal("run:crash/job"))
		}
		for i, s := range got {
			if s != strconv.Itoa(i) {
				t.Errorf("round %d, %d kills: log is %v", round, kills, got)
				break
			}
		}
		t.Logf("round %d: complete after %d kills", round, kills)
	}
}

// killContainers kills what runs below a data folder: what an engine that died, or a kernel, would do.
func killContainers(t *testing.T, data string) {
	t.Helper()
	homes, err := os.ReadDir(filepath.Join(data, "sandbox"))
	if err != nil {
		t.Fatal(err)
	}
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		line, err := os.ReadFile(p)
		if err != nil {
			continue
		}
		for _, home := range homes {
			// Process 1 of a container has the container's id on its command line.
			if !strings.Contains(string(line), "RAMUS_CONTAINER="+home.Name()) {
				continue
			}
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(p))); err == nil && pid != os.Getpid() {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}
