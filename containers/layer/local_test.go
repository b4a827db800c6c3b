package layer

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("cannot run here: not root")
	}
}

func TestCheckLocal(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	l := NewLocal(dir)
	if err := l.Check(context.Background()); err != nil {
		t.Fatal(err)
	}
	if e, _ := os.ReadDir(dir); len(e) > 0 {
		t.Errorf("left: %v", e)
	}
}

// box is a shell with file systems of its own, in a user namespace or not.
type box struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.ReadCloser
}

func startBox(t *testing.T, user bool) *box {
	t.Helper()
	cmd := exec.Command("unshare", "-m", "--", "sh", "-c", "echo ready; exec sh")
	if user {
		cmd = exec.Command("bwrap", "--unshare-all", "--as-pid-1", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--dir", "/tmp/work", "--", "sh", "-c", "echo ready; exec sh")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 60999, Gid: 60999}}
	}
	b := &box{cmd: cmd}
	var err error
	b.in, _ = cmd.StdinPipe()
	b.out, err = cmd.StdoutPipe()
	cmd.Stderr = os.Stderr
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.in.Close(); cmd.Process.Kill(); cmd.Wait() })
	b.say(t, "")
	return b
}

func (b *box) say(t *testing.T, script string) string {
	t.Helper()
	if script != "" {
		fmt.Fprintf(b.in, "(%s) 2>&1; echo ready\n", script)
	}
	var got []byte
	buf := make([]byte, 4096)
	for {
		n, err := b.out.Read(buf)
		got = append(got, buf[:n]...)
		if len(got) >= 6 && string(got[len(got)-6:]) == "ready\n" {
			return string(got[:len(got)-6])
		}
		if err != nil {
			t.Fatalf("%s: %v", got, err)
		}
	}
}

func TestBindSmoke(t *testing.T) {
	needRoot(t)
	for _, user := range []bool{false, true} {
		t.Run(fmt.Sprint(user), func(t *testing.T) {
			dir, _ := os.MkdirTemp("/var/tmp", "layer,:x")
			defer os.RemoveAll(dir)
			base := filepath.Join(dir, "base")
			os.MkdirAll(base+"/sub/deep", 0o755)
			os.WriteFile(base+"/sub/f", []byte("base"), 0o644)
			os.WriteFile(base+"/gone", []byte("base"), 0o644)
			b := startBox(t, user)
			pid := b.cmd.Process.Pid
			target := "/mnt"
			if user {
				out, _ := exec.Command("sh", "-c", fmt.Sprintf("cat /proc/%d/task/%d/children", pid, pid)).Output()
				fmt.Sscan(string(out), &pid)
				target = "/tmp/work"
			}
			start, _ := processStart(pid)
			l := NewLocal(dir)
			bind := Binding{PID: pid, Start: start, Lowers: []string{base}, Dir: dir + "/c", Target: target, UID: 60999, Fill: []File{
				{Path: "new/x", Kind: KindFile, Data: []byte("hello")}, {Path: "gone", Kind: KindWhiteout}, {Path: "l", Kind: KindLink, Data: []byte("sub/f")}}}
			if err := l.Bind(t.Context(), bind); err != nil {
				t.Fatal(err)
			}
			t.Log(b.say(t, "cd "+target+"; ls -lan . new; cat l; mv sub ren; ls -lan; touch z; grep "+target+" /proc/self/mountinfo"))
			if err := l.Put(t.Context(), bind, []File{{Path: "a/b/c", Kind: KindFile, Data: []byte("put"), Exec: true}}); err != nil {
				t.Fatal(err)
			}
			t.Log(b.say(t, "cd "+target+"; ls -lanR a; cat a/b/c"))
			c, err := l.Changes(t.Context(), bind.Upper(), 100)
			for _, c := range c {
				t.Logf("%+v", c)
			}
			t.Log(err)
			// again
			if err := l.Bind(t.Context(), bind); err != nil {
				t.Fatal(err)
			}
			t.Log(b.say(t, "cd "+target+"; ls -lan . "))
		})
	}
}
