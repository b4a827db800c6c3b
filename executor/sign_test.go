package executor_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gitd"
	"golang.org/x/crypto/ssh"
)

// signing makes a world's server sign, with a key that only this process has.
func signing(t *testing.T) (s *gitd.CommitSigner, opts func(*executor.Executor)) {
	t.Helper()
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("cannot run here: there is no ssh-keygen to check signatures with")
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	if s, err = gitd.NewCommitSigner(pem.EncodeToMemory(block)); err != nil {
		t.Fatal(err)
	}
	return s, func(x *executor.Executor) { x.Git.Signer = s }
}

// signatures returns the commits of a branch that main does not have, oldest first, as stock
// git sees them in a clone. Each has its subject and "G" for good or "N" for none.
func (w *world) signatures(s *gitd.CommitSigner, branch string) (list []string) {
	w.t.Helper()
	allowed := filepath.Join(w.t.TempDir(), "allowed_signers")
	if err := os.WriteFile(allowed, []byte(s.AllowedSigner(w.x.Bot)), 0o600); err != nil {
		w.t.Fatal(err)
	}
	clone := filepath.Join(w.t.TempDir(), "clone")
	out := w.sh(w.t.TempDir(), "git clone -q -b "+branch+" "+filepath.Join(w.data, "repos", "demo.git")+" "+clone+
		" && cd "+clone+
		" && git -c gpg.ssh.allowedSignersFile="+allowed+" log --reverse --format='%G? %s' origin/main..HEAD")
	return strings.Split(strings.TrimSpace(out), "\n")
}

func allGood(t *testing.T, list []string, want int) {
	t.Helper()
	if len(list) != want {
		t.Errorf("%d commits, want %d: %q", len(list), want, list)
	}
	for _, line := range list {
		if !strings.HasPrefix(line, "G ") {
			t.Errorf("%q", line)
		}
	}
}

func TestSignedInContainer(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, engine string) {
		s, opts := signing(t)
		w := newWorldOn(t, engine, opts)
		w.exec("run:one", "echo one >>greeting.txt")
		w.exec("run:one", "echo two >>greeting.txt && git commit -qam 'Made by the command' && echo three >>greeting.txt")
		// Commits that are not pushed yet are parents of each other, are merged and replayed.
		if res, _, errs := w.exec("run:one",
			"set -e; git checkout -q -b side; for i in 1 2 3; do echo $i >side-$i; git add side-$i; git commit -qm \"Side $i\"; done; "+
				"git checkout -q -; echo x >here; git add here; git commit -qm Here; git merge -q --no-ff -m Merged side; git branch -qD side; "+
				"echo y >there; git add there; git commit -qm There; git commit -q --amend -m 'There again'"); res.ExitCode != 0 {
			t.Fatal(errs)
		}
		// The commit of a command that leaves its branch is made nevertheless.
		w.exec("run:one", "git checkout -q --detach && echo detached >detached")
		allGood(t, w.signatures(s, "ramus/run-one"), 1+2+6+1)

		// Commits in another repository of the command are not signed by the host.
		if res, _, errs := w.exec("run:one",
			"cd /tmp && git init -q other && cd other && git -c user.name=x -c user.email=x@x commit -q --allow-empty -m x"); res.ExitCode != 0 {
			t.Error(errs)
		}
		for _, c := range []struct{ name, line, says string }{
			{"another committer", "GIT_COMMITTER_NAME=Eve git commit --allow-empty -m x", "its committer is"},
			{"a history of its own", "git checkout -q --orphan new && git commit -qm x", "a history of its own"},
			{"a tag", "git tag -s -m x v1; git cat-file tag v1 | grep SIGNATURE && exit 0; exit 1",
				"not a commit"}, // git may make the tag unsigned
			{"a file", "echo x >/tmp/f && " + `/ramus -Y sign -n git -f none /tmp/f`, "not a commit"},
		} {
			res, _, errs := w.exec("run:two", c.line)
			if res.ExitCode == 0 || !strings.Contains(errs, c.says) {
				t.Errorf("%s: exit %d, %q", c.name, res.ExitCode, errs)
			}
		}
		// The signer in the container signs nothing but commits.
		if res, out, errs := w.exec("run:two",
			`echo x >/tmp/f; rm -f /tmp/f.sig; /ramus -Y sign -n file -f none /tmp/f; cat /tmp/f.sig`); res.ExitCode == 0 || strings.Contains(out, "SIGNATURE") {
			t.Errorf("%q %q", out, errs)
		}
	})
}

// TestUnsigned checks that no work is lost if it cannot be signed, and that signing can be
// switched off.
func TestUnsigned(t *testing.T) {
	t.Parallel()
	s, opts := signing(t)
	w := newWorld(t, opts)
	if _, err := w.x.Git.Repo("demo"); err != nil {
		t.Fatal(err)
	}
	// A merge of a signed tag has a header that the host does not know.
	w.exec("run:one", `set -e
		git checkout -q -b side; git commit -q --allow-empty -m Side; git checkout -q -
		tag=$(printf 'object %s\ntype commit\ntag v1\ntagger a <a@example.com> 1 +0000\n\nv1\n-----BEGIN PGP SIGNATURE-----\nx\n-----END PGP SIGNATURE-----\n' "$(git rev-parse side)" |
			git hash-object -t tag -w --stdin)
		git update-ref refs/tags/v1 "$tag"; git merge -q --no-ff --no-commit v1; echo work >work`)
	if got := w.signatures(s, "ramus/run-one"); len(got) != 2 || got[0] != "G Side" || !strings.HasPrefix(got[1], "N ") {
		t.Errorf("%q", got)
	}
	if got := w.inRepo("show", "ramus/run-one:work"); got != "work" {
		t.Errorf("%q", got)
	}
	w.exec("run:one", "echo more >>work")
	// The container outlives the server that signs.
	w.stop(true)
	w.opts = nil
	w.start()
	if res, _, errs := w.exec("run:one", "echo own >>work && git commit -qam Own && echo last >>work"); res.ExitCode != 0 {
		t.Fatal(errs)
	}
	w.stop(true)
	w.opts = opts
	w.start()
	if res, _, errs := w.exec("run:one", "echo own >>work && git commit -qam 'Own again'"); res.ExitCode != 0 {
		t.Fatal(errs)
	}
	kinds := ""
	for _, line := range w.signatures(s, "ramus/run-one") {
		kinds += line[:1]
	}
	if kinds != "GNGNNG" {
		t.Errorf("%s", kinds)
	}
}
