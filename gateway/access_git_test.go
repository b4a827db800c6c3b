package gateway_test

import (
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/signin"
	"github.com/ramus-dev/ramus/gitd"
	gossh "golang.org/x/crypto/ssh"
)

// rights are the operations that a bearer may do by git in the repository team/app.
type rights struct{ main, side, pushMain, pushSide bool }

var (
	none     = rights{}
	looks    = rights{main: true, side: true}
	fullGit  = rights{true, true, true, true}
	mainOnly = rights{main: true}
)

// gitRights has the rights of each kind of caller. They are repeated here independently of the code.
var gitRights = map[string]rights{
	"nobody": none, "garbage": none, "forged": none, "expired admin": none,
	"no scopes": none, "metrics": none, "metrics of a repository": none, "metrics with refs": none,
	"read other": none, "write other": none, "admin other": none,
	"read": looks, "read with refs to push": looks,
	"read main": mainOnly, "read main everywhere": mainOnly,
	"write": fullGit, "admin": fullGit, "socket": fullGit,
	"write below w": {main: true, side: true}, // the branch side is not below w
	"write main":    {main: true, pushMain: true},
}

// TestGitAuthorisation tries every way to fetch and to push as every kind of caller.
func TestGitAuthorisation(t *testing.T) {
	t.Parallel()
	r := open(t, false, nil)
	r.repo(t, "team/app")
	r.repo(t, "other")
	r.branch(t, "team/app", "main")
	side := r.branch(t, "team/app", "side")
	repo, err := r.Git.Repo("team/app")
	if err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(t.TempDir(), "work")
	for _, args := range [][]string{{"clone", "-q", repo.Dir(), work}, {"-C", work, "branch", "-q", "side", "origin/side"}} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
	}
	t.Run("HTTP", func(t *testing.T) {
		seen := map[string]bool{}
		for _, k := range callerKinds {
			seen[k.name] = true
			want, ok := gitRights[k.name]
			if !ok {
				t.Errorf("%s has no row in the test of git", k.name)
				continue
			}
			g := &gitClient{url: r.web.URL + "/team/app.git"}
			token := k.token
			if k.grant != nil {
				grant := *k.grant
				grant.Subject = k.name
				token = r.token(t, grant)
			}
			if token != "" {
				g.config = []string{"-c", "http.extraHeader=Authorization: Bearer " + token}
			}
			if k.local {
				front := httptest.NewServer(r.LocalHandler())
				defer front.Close()
				g.url = front.URL + "/team/app.git"
			}
			g.try(t, k.name, work, want, side)
		}
		for name := range gitRights {
			if !seen[name] {
				t.Errorf("the test of git has a row for %s, which is no kind of caller", name)
			}
		}
	})
	t.Run("SSH", func(t *testing.T) {
		if _, err := exec.LookPath("ssh"); err != nil {
			t.Skip("cannot run here: no ssh client is installed")
		}
		keys := []struct {
			name, options string
			want          rights
		}{
			{"full", "", fullGit},
			{"read-only", "ramus-read-only ", looks},
			{"read-only with refs", `ramus-read-only,ramus-refs="refs/heads/*" `, looks},
			{"other repository", `ramus-repos="other" `, none},
			{"one branch", `ramus-refs="refs/heads/main" `, rights{main: true, side: true, pushMain: true}},
			{"unknown option", `ramus-scope="metrics" `, none},
		}
		dir := t.TempDir()
		var lines strings.Builder
		for i, k := range keys {
			lines.WriteString(k.options + sshKey(t, filepath.Join(dir, fmt.Sprint(i))) + " " +
				strings.ReplaceAll(k.name, " ", "-") + "\n")
		}
		r.Git.AuthorizedKeys = filepath.Join(dir, "authorized_keys")
		if err := os.WriteFile(r.Git.AuthorizedKeys, []byte(lines.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		serveSSH(t, r, l)
		for i, k := range keys {
			g := &gitClient{url: "ssh://git@" + l.Addr().String() + "/team/app.git", env: []string{
				"GIT_SSH_COMMAND=ssh -F /dev/null -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -i " +
					filepath.Join(dir, fmt.Sprint(i))}}
			g.try(t, "ssh key, "+k.name, work, k.want, side)
		}
	})
}

// serveSSH serves git by SSH until the end of the test.
func serveSSH(t *testing.T, r *rooms, l net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Git.ServeSSH(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// gitClient is stock git with its credentials.
type gitClient struct {
	url         string
	config, env []string
}

func (g *gitClient) run(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", append(append([]string{"-C", dir}, g.config...), args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0",
		"GIT_ASKPASS=",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.org")
	cmd.Env = append(cmd.Env, g.env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// try lists and fetches by both versions of the protocol, and pushes. work is a clone with
// the branches main and side, whose next commits are pushed.
func (g *gitClient) try(t *testing.T, who, work string, want rights, side gitd.Hash) {
	t.Helper()
	for _, version := range []string{"0", "2"} {
		dir := t.TempDir()
		if out, err := g.run(dir, "init", "-q"); err != nil {
			t.Fatal(err, out)
		}
		out, err := g.run(dir, "-c", "protocol.version="+version, "ls-remote", g.url)
		if (err == nil) != want.main || strings.Contains(out, "refs/heads/main") != want.main ||
			strings.Contains(out, "refs/heads/side") != want.side {
			t.Errorf("%s, protocol %s, lists %q: %v, want main: %t, side: %t", who, version, out, err, want.main, want.side)
		}
		for _, x := range []struct {
			what string
			may  bool
		}{{string(side), want.side}, {"refs/heads/side", want.side}, {"refs/heads/main", want.main}} {
			if out, err := g.run(dir, "-c", "protocol.version="+version, "fetch", "-q", g.url, x.what); (err == nil) != x.may {
				t.Errorf("%s, protocol %s, fetches %s: %v, want that to work: %t: %s", who, version, x.what, err, x.may, out)
			}
		}
	}
	for branch, may := range map[string]bool{"main": want.pushMain, "side": want.pushSide} {
		for _, args := range [][]string{{"checkout", "-q", branch}, {"commit", "-q", "--allow-empty", "-m", "by " + who}} {
			if out, err := g.run(work, args...); err != nil {
				t.Fatal(args, err, out)
			}
		}
		if out, err := g.run(work, "push", "-q", g.url, "HEAD:refs/heads/"+branch); (err == nil) != may {
			t.Errorf("%s pushes %s: %v, want that to work: %t: %s", who, branch, err, may, out)
		}
	}
}

// sshKey writes a new private key and returns its public line.
func sshKey(t *testing.T, file string) string {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := gossh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	block, err := gossh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(gossh.MarshalAuthorizedKey(signer.PublicKey())))
}

// branch adds a commit to a branch of a repository. The parent of the commit is the tip of main.
func (r *rooms) branch(t *testing.T, name, branch string) gitd.Hash {
	t.Helper()
	repo, err := r.Git.Repo(name)
	if err != nil {
		t.Fatal(err)
	}
	main, err := repo.Resolve(t.Context(), "main")
	if err != nil {
		t.Fatal(err)
	}
	a := gitd.Person{Name: "A", Email: "a@example.org"}
	h, err := repo.WriteCommit(t.Context(),
		gitd.NewCommit{Put: []gitd.File{{Path: "README", Content: []byte("hello\n")},
			{Path: branch, Content: []byte("only on " + branch + "\n")}},
			Parents: []gitd.Hash{main}, Author: a, Committer: a, When: r.Now(), Message: branch})
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/" + branch, New: h}); err != nil {
		t.Fatal(err)
	}
	return h
}

// TestRefsBoundTheAPI checks that the refs that a token may read limit the API as they limit git. A revision that a
// token may not see is not found, by any of its names.
func TestRefsBoundTheAPI(t *testing.T) {
	t.Parallel()
	r := open(t, false, nil)
	r.repo(t, "team/app")
	main, side := r.branch(t, "team/app", "main"), r.branch(t, "team/app", "side")
	token := r.token(t, gitd.Grant{Subject: "x", Repo: "team/app", Scopes: []string{"read"},
		Read: []string{"refs/heads/main"}})
	whole := r.token(t, gitd.Grant{Subject: "x", Repo: "team/app", Scopes: []string{"read"}})
	base := "/api/repos/team%2Fapp"
	for _, path := range []string{"/log?rev=REV", "/log?not=REV", "/diff?to=REV", "/diff?to=main&from=REV",
		"/changes?to=REV", "/changes?to=main&from=REV",
		"/tree?rev=REV", "/file?path=README&rev=REV"} {
		for rev, may := range map[string]bool{
			"main": true, "refs/heads/main": true, "HEAD": true, string(main): true, string(main)[:12]: true,
			"side": false, "refs/heads/side": false, string(side): false, string(side)[:12]: false,
			"refs/ramus/runs/x/y": false, "nothing": false,
		} {
			path := base + strings.ReplaceAll(path, "REV", rev)
			if status, body := r.ask(t, false, token, "GET", path, ""); may && status != 200 || !may && status != 404 ||
				!may && strings.Contains(body, "only on") {
				t.Errorf("%s: status %d, want to be let in: %t: %s", path, status, may, body)
			}
			if status, body := r.ask(t, false, whole, "GET", path, ""); status != 200 &&
				!strings.Contains(path, "not") && !strings.Contains(path, "refs/ramus") {
				t.Errorf("%s by who sees all: status %d: %s", path, status, body)
			}
		}
	}

	// A run cannot start from a branch that its asker may not see, and cannot merge into one that its asker may not
	// push to.
	writer := r.token(t, gitd.Grant{Subject: "w", Repo: "team/app", Scopes: []string{"write"},
		Read: []string{"refs/heads/main"}, Write: []string{"refs/heads/ramus/*"}})
	merging := `{"repo":"team/app","workflow":"id: x\nrepo: {merge_on_success: true}\nnodes: [{id: a, run: 'true'}]\n"}`
	for _, x := range []struct {
		body   string
		status int
	}{
		{`{"repo":"team/app","command":{"shell":"true"}}`, 201},
		{`{"repo":"team/app","base":"side","command":{"shell":"true"}}`, 404},
		{`{"repo":"team/app","workflow":"id: x\nrepo: {base_branch: side}\nnodes: [{id: a, run: 'true'}]\n"}`, 404},
		{`{"repo":"team/app","workflow":"id: x\nnodes: [{id: a, run: 'true'}]\n"}`, 201},
		{merging, 403},
	} {
		if status, body := r.ask(t, false, writer, "POST", "/api/runs", x.body); status != x.status {
			t.Errorf("%s: status %d, want %d: %s", x.body, status, x.status, body)
		}
	}
	caller, err := record.RunCaller("mine")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.local.Submit(t.Context(),
		record.Request{Caller: caller, Repo: "team/app", Command: &record.Command{Shell: "true"}}); err != nil {
		t.Fatal(err)
	}
	for into, status := range map[string]int{"": 403, "main": 403, "side": 403, "ramus/run-mine": 200} {
		if got, body := r.ask(t, false, writer, "POST", "/api/callers/run:mine/merge", `{"into":"`+into+`"}`); got != status {
			t.Errorf("merge into %q: status %d: %s", into, got, body)
		}
	}

	// A new token cannot have refs that its scopes cannot use.
	for _, n := range []signin.NewToken{
		{Subject: "x", Scopes: []string{"read"}, Write: []string{"refs/heads/main"}},
		{Subject: "x", Scopes: []string{"metrics"}, Write: []string{"refs/heads/main"}},
		{Subject: "x", Scopes: []string{"metrics"}, Read: []string{"refs/heads/main"}},
	} {
		if got, err := r.local.NewToken(t.Context(), n); err == nil {
			t.Errorf("%+v became %+v", n, got.Grant)
		}
	}
	made, err := r.local.NewToken(t.Context(), signin.NewToken{Subject: "x", Scopes: []string{"write"},
		Read: []string{"refs/heads/main", "refs/ramus/runs/*"}})
	if err != nil || len(made.Grant.Write) != 1 || made.Grant.Write[0] != "refs/heads/main" {
		t.Errorf("a token that reads main writes %q: %v", made.Grant.Write, err)
	}
}
