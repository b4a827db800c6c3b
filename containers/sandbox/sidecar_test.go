package sandbox_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/sandbox"
)

// sidecarMain is a ramus that runs a sidecar until it is killed.
func sidecarMain(dir, id string) int {
	_, err := (&sandbox.Engine{Dir: dir}).RunSidecar(context.Background(), id, containers.Sidecar{
		Owner: "owner", Key: "browser:x", Stdout: os.Stdout,
		Args: []string{"/bin/sh", "-c", "setsid sleep 600 & echo $RAMUS_SIDECAR; exec sleep 600"},
	})
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// A ramus that is killed takes its sidecars along; what they lay in is swept.
func TestSandboxSidecarOutlivedByNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "engine")
	s := &sandbox.Engine{Dir: dir}
	if err := s.Check(t.Context()); err != nil {
		t.Skipf("cannot run here: engine sandbox: %v", err)
	}
	c, err := s.Start(t.Context(), containers.Spec{
		Key: "run:x", Owner: "owner", Dir: filepath.Join(t.TempDir(), "box"),
		ClientKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Remove(context.Background(), c.ID); err != nil {
			t.Error(err)
		}
	}()
	cmd := exec.Command(os.Args[0], "sidecar", dir, c.ID)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	id := strings.TrimSpace(line)
	if err != nil || id == "" {
		t.Fatalf("it says %q, %v", line, err)
	}
	cmd.Process.Kill()
	cmd.Wait()

	left := func() (n int) {
		environs, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, p := range environs {
			if b, err := os.ReadFile(p); err == nil && strings.Contains(string(b), id) {
				n++
			}
		}
		return n
	}
	for deadline := time.Now().Add(time.Minute); left() > 0; {
		if time.Now().After(deadline) {
			t.Fatalf("%d processes of a sidecar outlive ramus", left())
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := s.SweepSidecars(t.Context(), "owner"); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != c.ID {
		t.Errorf("left are %v, %v", entries, err)
	}
	if list, err := s.List(t.Context(), "owner"); err != nil || len(list) != 1 || !list[0].Running {
		t.Errorf("listed are %+v, %v", list, err)
	}
}
