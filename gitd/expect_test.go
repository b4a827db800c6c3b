package gitd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ramus-dev/ramus/gitd/protocol"
)

// expectations collects pushes before and after they change refs, and answers each with a line.
type expectations struct {
	t *testing.T
	s *Server

	mu     sync.Mutex // guards all below
	refuse error
	deaf   bool   // nothing is expected
	stale  bool   // the refs have moved before the push
	settle func() // called before a push is acknowledged
	wanted []Push
	done   []Push
	mute   int // pushes of clients that cannot show lines
}

func (e *expectations) expect(ctx context.Context, p Push) (Happened, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.deaf || e.refuse != nil {
		return nil, e.refuse
	}
	e.wanted = append(e.wanted, p)
	repo, err := e.s.Repo(p.Repo)
	if err != nil {
		return nil, err
	}
	for _, ref := range p.Refs {
		if at, err := repo.Resolve(ctx, ref.Name); !e.stale && at != ref.Old || err != nil && !errors.Is(err, ErrNotFound) {
			e.t.Errorf("%s is at %q before its push, want %q: %v", ref.Name, at, ref.Old, err)
		}
	}
	return func(ctx context.Context, p Push, out io.Writer) func(context.Context, io.Writer) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.done = append(e.done, p)
		for _, ref := range p.Refs { // their objects can be read
			if _, err := repo.TreeOf(ctx, ref.Commit); err != nil || ctx.Err() != nil {
				e.t.Errorf("%s: %v, %v", ref.Name, err, ctx.Err())
			}
		}
		if out == nil {
			e.mute++
			return nil
		}
		fmt.Fprintln(out, "a line")
		return nil
	}, nil
}

// settled is [Server.Settle].
func (e *expectations) settled(context.Context, string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.settle != nil {
		e.settle()
	}
	return nil
}

// set changes the fields of e.
func (e *expectations) set(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

// take returns the refs that pushes wanted to change, and those that they did change.
func (e *expectations) take() (wanted, done []PushedRef) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.wanted) != len(e.done) {
		e.t.Errorf("%d pushes, and %d ends", len(e.wanted), len(e.done))
	}
	for _, p := range e.wanted {
		wanted = append(wanted, p.Refs...)
	}
	for _, p := range e.done {
		done = append(done, p.Refs...)
	}
	e.wanted, e.done = nil, nil
	return wanted, done
}

// TestExpect tells of each push by a person before and after it changes refs, over HTTP and SSH, also if the server itself
// receives it, and of no other.
func TestExpect(t *testing.T) {
	_, ada, file := sshKey(t)
	w := newSSHWire(t, ada+" ada@example.org")
	e := &expectations{t: t, s: w.Server}
	w.Server.Expect, w.Server.Settle = e.expect, e.settled
	dir := w.repo("a")
	url := w.url("a", w.token(Grant{Subject: "ada", Repo: "a", Scopes: []string{ScopeWrite},
		Write: []string{"refs/heads/*"}}))
	c := w.clone(url)
	check := func(what string, wanted int, done ...PushedRef) {
		t.Helper()
		w, d := e.take()
		if len(w) != wanted || !slices.Equal(d, done) {
			t.Errorf("%s: %d refs, want %d; changed %+v, want %+v", what, len(w), wanted, d, done)
		}
	}
	push := func(env []string, args ...string) string {
		t.Helper()
		out, err := stockEnvTry(env, c, append([]string{"push"}, args...)...)
		if err != nil || !strings.Contains(out, "remote: a line") {
			t.Errorf("%v: %s, %v", args, out, err)
		}
		return out
	}

	first := Hash(addFile(t, c, "f", "f"))
	old := Hash(stock(t, c, "rev-parse", "origin/main"))
	push(nil, "origin", "HEAD:main")
	check("one branch", 1, PushedRef{"refs/heads/main", first, old})
	second := Hash(addFile(t, c, "g", "g"))
	push(nil, "origin", "HEAD:main", "HEAD:other")
	check("two branches", 2, PushedRef{"refs/heads/main", second, first}, PushedRef{"refs/heads/other", second, ""})
	push(nil, "origin", "HEAD:third")
	check("no objects", 1, PushedRef{"refs/heads/third", second, ""})
	third := Hash(addFile(t, c, "h", "h"))
	push(sshGit(t, file), "ssh://git@"+w.serveSSH("127.0.0.1")+"/a.git", "HEAD:main")
	check("SSH", 1, PushedRef{"refs/heads/main", third, second})

	// A client without side bands sees nothing. A push that fails changes nothing.
	blob := packOfMade(madeBlob("x"))
	for _, x := range []struct {
		old  string
		id   Hash
		done []PushedRef
	}{{zeroHash, third, []PushedRef{{"refs/heads/mute", third, ""}}}, {string(second), first, nil}} {
		e.set(func() { e.stale = x.done == nil })
		body := protocol.AppendLine(nil, x.old, " ", string(x.id), " refs/heads/mute\x00report-status")
		body = append(append(body, protocol.FlushLine...), blob...)
		if status, out := w.post("git-receive-pack", "a", bytes.NewReader(body)); status != 200 || strings.Contains(out, "a line") {
			t.Errorf("%d, %s", status, out)
		}
		check("no side bands", 1, x.done...)
	}
	if e.mute != 2 {
		t.Errorf("%d mute pushes, want 2", e.mute)
	}

	// A ref that another push moves before the server answers was moved nevertheless.
	for _, more := range [][]string{nil, {"HEAD:more"}} {
		commit := Hash(addFile(t, c, "j", fmt.Sprint(more)))
		was := Hash(stock(t, dir, "rev-parse", "main"))
		e.set(func() { e.settle = func() { stock(t, dir, "update-ref", "refs/heads/main", string(was)) } })
		push(nil, append([]string{"origin", "HEAD:main"}, more...)...)
		e.set(func() { e.settle = nil })
		want := []PushedRef{{"refs/heads/main", commit, was}}
		for range more {
			want = append(want, PushedRef{"refs/heads/more", commit, ""})
		}
		check("moved further", len(want), want...)
	}

	// Containers start nothing.
	door := httptest.NewServer(w.GrantHandler(Grant{Subject: "run:a", Repo: "a", Scopes: []string{ScopeWrite}, Write: []string{"refs/heads/*"}}))
	t.Cleanup(door.Close)
	stock(t, c, "push", "-q", door.URL+"/a.git", "HEAD:inside")
	check("a container", 0)

	// Refs that ask for work are removed, also if nobody is interested in them.
	e.set(func() { e.deaf = true })
	stock(t, c, "push", "-q", "origin", "HEAD:"+AskRefs+"a", "HEAD:"+ReviewRefs+"main")
	if refs := stock(t, dir, "for-each-ref", "refs/ramus", "refs/for"); refs != "" {
		t.Errorf("left: %s", refs)
	}

	// An error refuses the push.
	e.set(func() { e.refuse = errors.New("no space") })
	addFile(t, c, "i", "i")
	out, err := stockTry(c, "push", "origin", "HEAD:main")
	refused(t, out, err, "the server could not take the push")
	e.set(func() { e.refuse = nil })
	check("refused", 0)
}
