package gitd

import (
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// composer serves one repository by protocol v2, fetches by what is composed and all else
// by native git. composed counts the former, native the fetches among the latter.
func composer(t *testing.T, r *Repo) (url string, composed, native *atomic.Int64) {
	composed, native = &atomic.Int64{}, &atomic.Int64{}
	child := func(w io.Writer, in io.Reader, args ...string) {
		cmd := exec.Command("git", append(append([]string{"-c", "uploadpack.allowFilter=true", "upload-pack", "--stateless-rpc"}, args...), r.dir)...)
		cmd.Env = append(stockEnv(), "GIT_PROTOCOL=version=2")
		cmd.Stdin, cmd.Stdout = in, w
		if err := cmd.Run(); err != nil {
			t.Error(err)
		}
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodGet {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			child(w, nil, "--advertise-refs")
			return
		}
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		var body io.Reader = q.Body
		if q.Header.Get("Content-Encoding") == "gzip" {
			var err error
			if body, err = gzip.NewReader(body); err != nil {
				t.Error(err)
				return
			}
		}
		text, err := io.ReadAll(body)
		if err != nil {
			t.Error(err)
			return
		}
		p, err := parseRequest(strings.NewReader(string(text)))
		if err != nil {
			t.Error(err)
			return
		}
		if p.command == commandFetch {
			answer, err := r.compose(q.Context(), &p.fetch)
			if err != nil {
				t.Error(err)
			}
			if answer != nil {
				defer answer.close()
				composed.Add(1)
				w.Header().Set("Content-Length", fmt.Sprint(answer.size()))
				if err := writeReply(w, answer); err != nil {
					t.Error(err)
				}
				return
			}
			native.Add(1)
		}
		child(w, strings.NewReader(string(text)))
	}))
	t.Cleanup(web.Close)
	return web.URL, composed, native
}

// cloneKinds are the clones that are composed.
var cloneKinds = []struct {
	kind spineKind
	args []string
}{
	{spineWhole, nil},
	{spineWhole, []string{"--no-tags"}},
	{spineBlobless, []string{"--filter=blob:none", "--no-checkout"}},
	{spineShallow, []string{"--depth=1"}},
	{spineShallow, []string{"--depth=1", "--no-tags"}},
}

// TestCompose clones random branches from what is composed and from git itself, and
// compares what the clones have.
func TestCompose(t *testing.T) {
	seeds, each := 2, 3
	if os.Getenv("RAMUS_SPINES") == "full" {
		seeds, each = 40, 20
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			rnd := rand.New(rand.NewPCG(seed, 11))
			r := newRepo(t)
			commits := randomHistory(t, r, rnd, 40)
			if rnd.IntN(2) == 0 {
				if err := r.Maintain(ctx); err != nil {
					t.Fatal(err)
				}
			}
			// The base has moved on since some branches were made.
			older, base := commits[rnd.IntN(4)], commits[4+rnd.IntN(6)]
			for _, k := range cloneKinds {
				for _, b := range []Hash{older, base} {
					if err := r.makeSpine(ctx, b, k.kind); err != nil {
						t.Fatal(err)
					}
				}
			}
			url, composed, native := composer(t, r)
			branches := strings.Fields(git(t, r.dir, "for-each-ref", "--format=%(refname:short)", "refs/heads"))
			rnd.Shuffle(len(branches), func(i, j int) { branches[i], branches[j] = branches[j], branches[i] })
			// The base itself, and a branch of nothing but it.
			git(t, r.dir, "branch", "same", string(base))
			branches = append([]string{"same"}, branches...)
			for _, branch := range branches[:min(len(branches), each)] {
				fits := false
				for _, b := range []Hash{older, base} {
					_, err := tryGit(r.dir, "merge-base", "--is-ancestor", string(b), branch)
					fits = fits || err == nil
				}
				for _, k := range cloneKinds {
					composed.Store(0)
					native.Store(0)
					ours, theirs := filepath.Join(t.TempDir(), "ours"), filepath.Join(t.TempDir(), "theirs")
					args := append([]string{"-c", "transfer.fsckObjects=true", "-c", "protocol.version=2", "clone", "-q", "--single-branch", "-b", branch}, k.args...)
					stock(t, "", append(slices.Clone(args), url, ours)...)
					stock(t, "", append(slices.Clone(args), "--no-local", "-u", "git -c uploadpack.allowFilter=true upload-pack", "file://"+r.dir, theirs)...)
					if fits && composed.Load() != 1 || !fits && native.Load() == 0 {
						t.Errorf("%s %v: descends from a base: %v, composed %d, native %d", branch, k.args, fits, composed.Load(), native.Load())
					}
					compareClones(t, fmt.Sprint(branch, k.args), ours, theirs, k.kind == spineShallow)
				}
			}
		})
	}
}

// compareClones checks that a clone has what another has; more says that objects may be
// among it that nothing reaches.
func compareClones(t *testing.T, what, ours, theirs string, more bool) {
	t.Helper()
	for _, dir := range []string{ours, theirs} {
		stock(t, dir, "config", "remote.origin.url", "none") // nothing must be fetched later
	}
	fsck(t, ours)
	if a, b := stock(t, ours, "for-each-ref"), stock(t, theirs, "for-each-ref"); a != b {
		t.Errorf("%s: refs:\n%s\ngit has:\n%s", what, a, b)
	}
	if a, b := shallowOf(ours), shallowOf(theirs); a != b {
		t.Errorf("%s: shallow at:\n%s\ngit has:\n%s", what, a, b)
	}
	if a, b := stock(t, ours, "rev-parse", "HEAD", "HEAD^{tree}"), stock(t, theirs, "rev-parse", "HEAD", "HEAD^{tree}"); a != b {
		t.Errorf("%s: at %s, git at %s", what, a, b)
	}
	all := []string{"cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)"}
	a, b := strings.Split(stock(t, ours, all...), "\n"), strings.Split(stock(t, theirs, all...), "\n")
	for _, line := range b {
		if !slices.Contains(a, line) {
			t.Errorf("%s: %s is missing", what, line)
		}
	}
	for _, line := range a {
		if !more && !slices.Contains(b, line) {
			t.Errorf("%s: %s is too much", what, line)
		}
	}
	if st := stock(t, ours, "status", "--porcelain"); st != stock(t, theirs, "status", "--porcelain") {
		t.Errorf("%s: the work tree is not clean:\n%s", what, st)
	}
}

func shallowOf(dir string) string {
	b, _ := os.ReadFile(filepath.Join(dir, ".git", "shallow"))
	lines := strings.Fields(string(b))
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
