package remains

import (
	"os/exec"
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	dir := t.TempDir()
	if left := Of(dir); len(left) > 0 {
		t.Fatalf("in an empty folder: %v", left)
	}
	for _, test := range []struct {
		name, script, why string
		unshare           []string
	}{
		{"folder", `cd "$0"; echo up; read end`, "cwd ", nil},
		// It sees the folder at another place, and has no other tie to it.
		{"mount", `mount --bind "$0" /mnt && cd / && echo up && read end`, "at /mnt", []string{"unshare", "-m"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := append(test.unshare, "sh", "-c", test.script, dir)
			cmd := exec.Command(args[0], args[1:]...)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			// It waits by itself: a process that is about to become another program has no command line.
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			if err := cmd.Start(); err != nil {
				t.Skipf("cannot run here: %v", err)
			}
			var up [3]byte
			_, err = out.Read(up[:])
			left := Of(dir)
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			if err != nil {
				t.Skip("cannot run here: this user may not mount")
			}
			if len(left) != 1 || left[0].PID != cmd.Process.Pid || !strings.Contains(left[0].Why, test.why) ||
				!strings.Contains(left[0].Line, "read end") {
				t.Errorf("found %v", left)
			}
			if left := Of(dir); len(left) > 0 {
				t.Errorf("once it has ended: %v", left)
			}
		})
	}
}
