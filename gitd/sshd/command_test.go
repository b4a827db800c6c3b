package sshd

import "testing"

func FuzzSSHCommand(f *testing.F) {
	for _, s := range []string{"whoami", "git-upload-pack '/a.git'", `git receive-pack 'it'\''s'\!''`, "git-upload-pack a'b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		verb, path, ok := ParseCommand(line)
		if ok && verb != "whoami" && verb != "git-lfs-authenticate" && verb != "upload-pack" && verb != "receive-pack" {
			t.Errorf("%q: verb %q, path %q", line, verb, path)
		}
	})
}
