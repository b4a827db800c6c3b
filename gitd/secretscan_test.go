package gitd

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/redact/redacttest"
)

const canary = "c4n4ry/+VALUE&of a secret"

func canaries(t testing.TB) *redact.Secrets {
	s, short := redact.New(map[string]string{"CANARY": canary})
	if len(short) > 0 {
		t.Fatal(short)
	}
	return s
}

// noCanary searches the whole folder of the server.
func (w *wire) noCanary() {
	w.t.Helper()
	hits, err := redacttest.Folder(context.Background(), w.Root, canary)
	if err != nil || len(hits) > 0 {
		w.t.Errorf("found %q, %v", hits, err)
	}
}

// TestLeaks pushes objects with a secret. In each kind of object, no ref moves and
// no object of the push stays.
func TestLeaks(t *testing.T) {
	// The data folder is reached by a link, as on some machines.
	real := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	w := newWire(t, func(s *Server) { s.Root, s.Secrets = filepath.Join(link, "root"), canaries(t) })
	dir := w.repo("a")
	long := strings.Repeat("a line that stays as it is\n", 200)
	for _, c := range []struct {
		name, want string
		make       func(c string)
	}{
		{"file", `CANARY in "deep/down/file"`, func(c string) { addFile(t, c, "deep/down/file", "x"+canary+"y") }},
		{"name", `CANARY in the name of a file in "deep"`,
			func(c string) { addFile(t, c, "deep/x"+strings.ReplaceAll(canary, "/", "")+"-"+hexOf(canary), "x") }},
		{"folder", `CANARY in the name of a file`, func(c string) { addFile(t, c, hexOf(canary)+"/file", "x") }},
		{"file in such a folder", `CANARY in "[secret CANARY]/file"`,
			func(c string) { addFile(t, c, hexOf(canary)+"/file", canary) }},
		{"link", `CANARY in "link"`, func(c string) {
			if err := os.Symlink("/"+canary, filepath.Join(c, "link")); err != nil {
				t.Fatal(err)
			}
			stock(t, c, "add", ".")
			stock(t, c, "commit", "-q", "-m", "link")
		}},
		{"message", "CANARY in commit ",
			func(c string) { stock(t, c, "commit", "-q", "--allow-empty", "-m", "It is "+canary) }},
		{"author", "CANARY in commit ", func(c string) {
			stock(t, c, "commit", "-q", "--allow-empty", "-m", "x", "--author", hexOf(canary)+" <a@example.org>")
		}},
		{"removed again", `CANARY in "f"`, func(c string) { addFile(t, c, "f", canary); addFile(t, c, "f", "gone") }},
		{"delta", `CANARY in "long"`, func(c string) {
			addFile(t, c, "long", long+"here it comes: "+canary[:12])
			stock(t, c, "push", "-q", "origin", "HEAD:refs/heads/delta")
			addFile(t, c, "long", long+"here it comes: "+canary)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			clone := w.clone(w.url("a", w.token(full)))
			c.make(clone)
			out, err := stockTry(clone, "push", "origin", "HEAD:refs/heads/topic")
			refused(t, strings.Join(strings.Fields(out), " "), err, c.want)
			if strings.Contains(out, canary) || !strings.Contains(out, "remote: refused: the push holds the value of a secret: ") {
				t.Errorf("the answer is %s", out)
			}
			if _, err := stockTry(dir, "rev-parse", "--verify", "refs/heads/topic"); err == nil {
				t.Error("the branch was made")
			}
			w.noCanary()
		})
	}
	t.Run("tag", func(t *testing.T) {
		clone := w.clone(w.url("a", w.token(full)))
		stock(t, clone, "tag", "-a", "-m", "It is "+canary, "v1")
		out, err := stockTry(clone, "push", "origin", "v1")
		refused(t, out, err, "CANARY in tag ")
	})
	t.Run("name of a ref", func(t *testing.T) {
		clone := w.clone(w.url("a", w.token(full)))
		out, err := stockTry(clone, "push", "origin", "HEAD:refs/heads/"+hexOf(canary))
		refused(t, out, err, "holds the value of a secret")
	})
	w.noCanary()

	// Clean pushes are accepted, whether they create, force or delete, and at a door.
	clone := w.clone(w.url("a", w.token(full)))
	addFile(t, clone, "f", "clean")
	stock(t, clone, "push", "-q", "origin", "HEAD:main", "HEAD:refs/heads/one", "HEAD:refs/heads/two")
	stock(t, clone, "push", "-q", "origin", "+HEAD~1:refs/heads/one", ":refs/heads/two", "HEAD~1:refs/heads/three")
}

func hexOf(s string) string { return fmt.Sprintf("%x", s) }

// TestLeakOfTheBase pushes to a repository that held the secret before it was known. The
// push is accepted, even if git needs the old object to complete a pack.
func TestLeakOfTheBase(t *testing.T) {
	w := newWire(t, nil)
	w.repo("a")
	clone := w.clone(w.url("a", w.token(full)))
	long := strings.Repeat("a line that stays as it is\n", 200)
	addFile(t, clone, "long", long+canary)
	stock(t, clone, "push", "-q", "origin", "HEAD:main")
	w.Secrets = canaries(t)
	addFile(t, clone, "other", "x")
	stock(t, clone, "push", "-q", "origin", "HEAD:main")
	addFile(t, clone, "long", long+"taken out")
	stock(t, clone, "push", "-q", "origin", "HEAD:main")
	addFile(t, clone, "long", long+"put back: "+canary)
	out, err := stockTry(clone, "push", "origin", "HEAD:main")
	refused(t, out, err, `CANARY in "long"`)
}

// TestLeakHook checks that a push is refused, and not accepted unchecked, if the check
// cannot run.
func TestLeakHook(t *testing.T) {
	w := newWire(t, func(s *Server) { s.Secrets = canaries(t) })
	w.repo("a")
	clone := w.clone(w.url("a", w.token(full)))
	addFile(t, clone, "f", "1")
	stock(t, clone, "push", "-q", "origin", "HEAD:main")
	// If somebody removes the hooks folder, it is made again.
	if err := os.RemoveAll(filepath.Join(w.Root, hooksFolder)); err != nil {
		t.Fatal(err)
	}
	addFile(t, clone, "f", canary)
	out, err := stockTry(clone, "push", "origin", "HEAD:main")
	refused(t, out, err, "CANARY")
	// A file in the place of the hooks folder cannot be replaced.
	if err := os.RemoveAll(filepath.Join(w.Root, hooksFolder)); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(w.Root, hooksFolder), "a file")
	out, err = stockTry(clone, "push", "origin", "HEAD:main")
	refused(t, out, err, "could not take the push")
	if err := os.Remove(filepath.Join(w.Root, hooksFolder)); err != nil {
		t.Fatal(err)
	}
	w.noCanary()
	// The door gets the leaks.
	heard := make(chan []Leak, 1)
	door := httptest.NewServer(w.DoorHandler(func() Grant { return full }, func(l []Leak) { heard <- l }))
	defer door.Close()
	out, err = stockTry(clone, "push", door.URL+"/a.git", "HEAD:main")
	refused(t, out, err, "CANARY")
	if told := <-heard; len(told) != 1 || told[0].Secret != "CANARY" || told[0].Kind != "blob" || told[0].Path != "f" {
		t.Errorf("the door heard %+v", told)
	}
}

func BenchmarkPush(b *testing.B) {
	for _, guarded := range []bool{false, true} {
		b.Run(fmt.Sprintf("guarded=%v", guarded), func(b *testing.B) {
			w := newWire(b, func(s *Server) {
				if guarded {
					s.Secrets = canaries(b)
				}
			})
			w.repo("a")
			clone := w.clone(w.url("a", w.token(full)))
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				addFile(b, clone, "f", fmt.Sprint(i))
				b.StartTimer()
				stock(b, clone, "push", "-q", "origin", "HEAD:main")
			}
		})
	}
}
