package executor_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/lfs"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/gitd"
	gitlfs "github.com/ramus-dev/ramus/gitd/lfs"
)

// TestLargeFiles commits large files as pointers, both ways, and compares the trees with those of stock git with git-lfs.
func TestLargeFiles(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git-lfs"); err != nil {
		t.Skip("cannot run here: git-lfs is not installed")
	}
	keep := func(x *executor.Executor) {
		bucket, err := store.OpenFolder(filepath.Join(t.TempDir(), "artifacts"))
		if err != nil {
			t.Fatal(err)
		}
		x.Git.LFS = &lfs.Objects{Bucket: bucket}
	}
	t.Run("bound", func(t *testing.T) { largeFiles(t, boundWorld(t, "sandbox", keep)) })
	t.Run("portable", func(t *testing.T) {
		largeFiles(t, newWorldOn(t, "sandbox", func(x *executor.Executor) { keep(x); x.Fleet.Keeper = nil }))
	})
}

func largeFiles(t *testing.T, w *world) {
	oracle := filepath.Join(t.TempDir(), "oracle")
	w.sh(t.TempDir(), "git clone -q "+w.data+"/repos/demo.git "+oracle+" && cd "+oracle+
		" && git lfs install --local >/dev/null")
	const own = "git add -A; git commit -qm own; "
	for _, c := range []struct{ state, change string }{
		{"", `printf '*.bin filter=lfs diff=lfs merge=lfs -text\nmoved/** filter=lfs\n' >.gitattributes; seq 1 300 >a.bin; printf x >small.bin; : >empty.bin; mkdir d; seq 1 200000 >d/big.bin`},
		{"", `seq 1 7 >d/big.bin; cp a.bin a.txt; rm small.bin`},
		{"", `printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 12\n' 7 >pointer.bin`},
		{"", `mv sub moved; chmod +x a.bin`},
		{own, `seq 5 900 >own.bin; ln -s a.bin link.bin`},
		{"", `echo more >>own.bin; printf 'x\r\n' >c.txt`},
	} {
		step := c.change + "\n" + c.state + "true"
		if res, _, errs := w.exec("run:large", step); res.ExitCode != 0 || res.Reason != "" {
			t.Fatalf("after %s: %+v %s", step, res, errs)
		}
		want := strings.TrimSpace(w.sh(oracle, c.change+"\ngit add -A && git write-tree"))
		if got := w.inRepo("rev-parse", "ramus/run-large^{tree}"); got != want {
			t.Fatalf("after %s, the tree differs from that of stock git:\n%s", c.change,
				w.sh(oracle, "git --git-dir="+w.data+"/repos/demo.git ls-tree -r "+got+" >../got; git ls-tree -r "+want+
					" >../want; diff ../want ../got || true"))
		}
		w.sh(oracle, "git -c user.name=o -c user.email=o@example.com commit -q --allow-empty -m step")
	}
	repo, err := w.git.Repo("demo")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"seq 1 300", "printf x", "seq 1 200000", "seq 1 7", "seq 5 900"} {
		text := w.sh(oracle, command)
		sum := sha256.Sum256([]byte(text))
		in, err := w.git.LFS.Open(t.Context(), repo, gitlfs.Object{OID: hex.EncodeToString(sum[:]), Size: int64(len(text))})
		if err != nil {
			t.Errorf("%s: %v", command, err)
			continue
		}
		if got, err := io.ReadAll(in); string(got) != text || err != nil {
			t.Errorf("%s: %d bytes, %v", command, len(got), err)
		}
		in.Close()
	}
	// A file that is too large is no part of the commit, and the run says so.
	w.git.LFS = refusing{w.git.LFS}
	res, _, errs := w.exec("run:refused",
		`printf '*.bin filter=lfs\n' >.gitattributes; seq 1 50000 >refused.bin; echo ok >fine`)
	if got := w.inRepo("ls-tree", "--name-only", "ramus/run-refused"); strings.Contains(got, "refused.bin") ||
		!strings.Contains(got, "fine") {
		t.Errorf("%+v %s: %s", res, errs, got)
	}
}

// refusing takes no object.
type refusing struct{ gitd.LargeFiles }

func (refusing) Put(context.Context, *gitd.Repo, gitlfs.Object, io.Reader) error {
	return gitd.ErrTooLarge
}
