package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/tasks/browser"
)

// TestDeaths checks that a check ends with evidence and names the fault, if any of its processes dies.
func TestDeaths(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		victim  string // words of its command line
		verdict browser.Verdict
		words   string
	}{
		{"page", "--type=renderer", browser.Fail, "the page crashed"},
		{"browser", "--remote-debugging-pipe", browser.Unverified, "ended by itself"},
		{"driver", "run-driver", browser.Unverified, "ended by itself"},
		{"client", "drive\x00", browser.Unverified, "the browser could not be driven: signal: killed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pid := make(chan int, 1)
			s := site(t, map[string]any{
				"/": `<h1>Soon</h1><script>addEventListener('load',()=>fetch('/kill'))</script>`,
				"/kill": func(w http.ResponseWriter, r *http.Request) {
					kill(t, <-pid, c.victim)
					<-r.Context().Done()
				},
			})
			sp := spec(s, "/", browser.Step{Do: "wait_for", Target: "#never", Timeout: browser.Duration(20 * time.Second)})
			o := lookWhile(t, browser.Job{Spec: sp}, func(id int) { pid <- id })
			o.want(t, c.verdict, c.words)
			if o.files["small/console.jsonl"] == nil {
				t.Error("the evidence so far is lost")
			}
		})
	}
}

// kill ends the descendants of a process whose command line has some words.
func kill(t *testing.T, root int, words string) {
	family := []int{root}
	killed := 0
	for i := 0; i < len(family); i++ {
		family = append(family, children(family[i])...)
		line, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(family[i]), "cmdline"))
		if i > 0 && strings.Contains(string(line), words) {
			killed++
			_ = syscall.Kill(family[i], syscall.SIGKILL)
		}
	}
	if killed == 0 {
		t.Errorf("there is no process %q to kill", words)
	}
}

// driveScript runs a script as if it were the driver, in a process of its own: the end of a driver kills
// all children. It prints how it ended and whether a process is left.
func driveScript() {
	_ = adopt()
	work := os.Args[2]
	deadline, err := time.ParseDuration(os.Args[3])
	if err != nil {
		panic(err)
	}
	j := &job{deadline: deadline}
	said, end := j.drive(context.Background(), place{self: filepath.Join(work, "script")}, nil, browser.Job{},
		io.Discard, work, work)
	fmt.Printf("%v, %s, %d left\n", end, said, len(children(os.Getpid())))
	os.Exit(0)
}

// TestWatchdog: a driver that does not end by itself is ended with all it started, also what has made itself a group of
// its own, and files that a driver left at its end.
func TestWatchdog(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		script   string
		deadline time.Duration
		want     string
	}{
		"hangs":  {"setsid sleep 1000 &\n(setsid sh -c 'trap \"\" TERM; sleep 1000; sleep 1000') &\necho words >&2\nsleep 1000", 2 * time.Second, "the deadline passed, words, 0 left"},
		"leaves": {"setsid sleep 1000 &\nexit 3", time.Minute, "exit status 3, , 0 left"},
		"panics": {"echo 'panic: no channel' >&2; echo more >&2; exit 2", time.Minute,
			"exit status 2, panic: no channel, 0 left"},
	} {
		t.Run(name, func(t *testing.T) {
			work := t.TempDir()
			// Ahead of t.Parallel: a program cannot be started as long as a process that another test
			// is just starting has it open for writing.
			if err := os.WriteFile(filepath.Join(work, "script"), []byte("#!/bin/sh\n"+c.script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			t.Parallel()
			out, err := exec.CommandContext(t.Context(), self, "drive-script", work, c.deadline.String()).CombinedOutput()
			if err != nil || strings.TrimSpace(string(out)) != c.want {
				t.Errorf("%s%v, want %s", out, err, c.want)
			}
		})
	}
}

// TestStopped: a check that is ended from outside still writes its evidence, and leaves no process.
func TestStopped(t *testing.T) {
	t.Parallel()
	loaded := make(chan struct{})
	var once sync.Once
	s := site(t, map[string]any{"/": `<img src=/last>`, "/last": func(w http.ResponseWriter, r *http.Request) {
		once.Do(func() { close(loaded) })
		<-r.Context().Done()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	text, _ := json.Marshal(browser.Job{Spec: spec(s, "/"), Deadline: browser.Duration(time.Minute)})
	cmd := command(t, "check")
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-loaded:
	case <-ctx.Done():
	}
	interrupt(t, cmd)
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitOther || !strings.Contains(stderr.String(), "the check was stopped") {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
	if !bytes.Contains(stdout.Bytes(), []byte(indexFile)) {
		t.Error("there is no evidence")
	}
}
