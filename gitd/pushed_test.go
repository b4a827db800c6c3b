package gitd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ramus-dev/ramus/gitd/protocol"
)

// pushes collects pushes with options, and answers each with lines.
type pushes struct {
	mu   sync.Mutex // guards all below
	list []Push
	mute int // pushes of clients that cannot show lines
}

// expect is interested in pushes with options or refs that ask for work.
func (p *pushes) expect(_ context.Context, wanted Push) (Happened, error) {
	if len(wanted.Options) == 0 && !slices.ContainsFunc(wanted.Refs, func(r PushedRef) bool { return asksForWork(r.Name) }) {
		return nil, nil
	}
	return func(_ context.Context, done Push, out io.Writer) func(context.Context, io.Writer) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(done.Refs) == 0 && len(wanted.Refs) > 0 {
			return nil
		}
		p.list = append(p.list, done)
		if out == nil {
			p.mute++
		} else {
			fmt.Fprintln(out, "first line")
		}
		return func(_ context.Context, out io.Writer) {
			if out != nil {
				fmt.Fprintln(out, "last line")
			}
		}
	}, nil
}

func (p *pushes) take() []Push {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.list
	p.list = nil
	return list
}

// TestPushOptionsHTTP sends options with stock git. They reach the server only with a push that changed refs.
func TestPushOptionsHTTP(t *testing.T) {
	var got pushes
	w := newWire(t, func(s *Server) { s.Expect = got.expect })
	dir := w.repo("a")
	url := w.url("a", w.token(Grant{Subject: "ada", Repo: "a", Scopes: []string{ScopeWrite}, Delete: true,
		Write: []string{"refs/heads/*"}}))
	c := w.clone(url)
	head := addFile(t, c, "f", "f")
	stock(t, c, "push", "-q", "origin", "HEAD:main")
	if list := got.take(); len(list) != 0 {
		t.Errorf("a push without options: %+v", list)
	}

	for _, version := range []string{"0", "1", "2"} {
		topic := "topic" + version
		out, err := stockTry(c, "-c", "protocol.version="+version, "push", "-o", "run=ci.yaml", "-o", "param.x=1 2", "origin", "HEAD:"+topic)
		if err != nil || !strings.Contains(out, "remote: first line") || !strings.Contains(out, "remote: last line") {
			t.Errorf("%s, %v", out, err)
		}
		list := got.take()
		if len(list) != 1 || list[0].Repo != "a" || list[0].Grant.Subject != "ada" ||
			!slices.Equal(list[0].Options, []string{"run=ci.yaml", "param.x=1 2"}) ||
			!slices.Equal(list[0].Refs, []PushedRef{{Name: "refs/heads/" + topic, Commit: Hash(head)}}) {
			t.Errorf("version %s: %+v", version, list)
		}
	}

	// Of two refs one is refused. The other one is told.
	stock(t, c, "checkout", "-q", "--orphan", "apart")
	apart := Hash(addFile(t, c, "g", "g"))
	limited := w.url("a", w.token(Grant{Subject: "bob", Repo: "a", Scopes: []string{ScopeWrite}, Write: []string{"refs/heads/b/*"}}))
	out, err := stockTry(c, "push", "-o", "x", limited, "HEAD:b/1", "HEAD:other")
	refused(t, out, err, "other")
	if list := got.take(); len(list) != 0 {
		t.Errorf("a refused push: %+v", list)
	}
	out, err = stockTry(c, "push", "-o", "x", url, "HEAD:main", "HEAD:b/2")
	refused(t, out, err, "main")
	if list := got.take(); len(list) != 1 || len(list[0].Refs) != 1 || list[0].Refs[0].Name != "refs/heads/b/2" {
		t.Errorf("a push of which one ref was refused: %+v", list)
	}
	// The name of a ref asks for work too. The ref is gone afterwards, so the same push works again.
	for range 2 {
		out, err := stockTry(c, "push", url, "HEAD:refs/ramus/ask/ci")
		if err != nil || !strings.Contains(out, "remote: last line") {
			t.Errorf("%s, %v", out, err)
		}
		if list := got.take(); len(list) != 1 || len(list[0].Options) != 0 || !slices.Equal(list[0].Refs, []PushedRef{{Name: AskRefs + "ci", Commit: apart}}) {
			t.Errorf("by the name of a ref: %+v", list)
		}
		if refs := stock(t, dir, "for-each-ref", "refs/ramus"); refs != "" {
			t.Errorf("left: %s", refs)
		}
	}
	// Deletions have no commit to work on.
	stock(t, c, "push", "-q", "-o", "x", url, ":b/2")
	if list := got.take(); len(list) != 1 || len(list[0].Refs) != 0 {
		t.Errorf("a deletion: %+v", list)
	}
	fsck(t, dir)
}

// TestPushOptionsInside refuses the options of containers, which would start work.
func TestPushOptionsInside(t *testing.T) {
	var got pushes
	w := newWire(t, func(s *Server) { s.Expect = got.expect })
	w.repo("a")
	door := httptest.NewServer(w.GrantHandler(Grant{Subject: "run:a", Repo: "a", Scopes: []string{ScopeWrite},
		Write: []string{"refs/heads/*"}}))
	t.Cleanup(door.Close)
	c := w.clone(door.URL + "/a.git")
	addFile(t, c, "f", "f")
	out, err := stockTry(c, "push", "-o", "test", "origin", "HEAD:main")
	refused(t, out, err, "does not support push options")
	stock(t, c, "push", "-q", "origin", "HEAD:main")
	if list := got.take(); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}

// TestPushOptionsSSH sends options over SSH.
func TestPushOptionsSSH(t *testing.T) {
	_, ada, file := sshKey(t)
	w := newSSHWire(t, ada+" ada@example.org")
	var got pushes
	w.Server.Expect = got.expect
	w.repo("a")
	env := sshGit(t, file)
	url := "ssh://git@" + w.serveSSH("127.0.0.1") + "/a.git"
	c := w.clone(w.url("a", w.token(Grant{Subject: "x", Repo: "a", Scopes: []string{ScopeWrite}})))
	addFile(t, c, "f", "f")
	out, err := stockEnvTry(env, c, "push", "-o", "test", url, "HEAD:main")
	if err != nil || !strings.Contains(out, "remote: last line") {
		t.Errorf("%s, %v", out, err)
	}
	if list := got.take(); len(list) != 1 || !slices.Equal(list[0].Options, []string{"test"}) {
		t.Errorf("%+v", list)
	}
}

// brokenWriter fails after some writes.
type brokenWriter struct{ left int }

func (w *brokenWriter) Write(b []byte) (int, error) {
	if w.left--; w.left < 0 {
		return 0, errors.New("the client has gone")
	}
	return len(b), nil
}

// TestKeepAlive sends packets while nothing is shown, and notes that the client has gone.
func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &progressWriter{limit: protocol.MaxLine, gone: cancel, out: &brokenWriter{left: 2}}
		stop := w.keepAlive(time.Second)
		<-ctx.Done()
		stop()
		if _, err := w.Write([]byte("x")); err == nil {
			t.Error("a write to a client that has gone")
		}
	})
}
