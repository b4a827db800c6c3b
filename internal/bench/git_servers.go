package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/signin"
)

// The sides of the Git half.
const (
	sideRamus  = "ramus"
	sideCGI    = "git http-backend"
	sideSpawn  = "a git child a request"
	sideGitea  = "Gitea"
	sideStatic = "a static file"
)

// gitServer is a Git server under test with a copy of a repository. All servers' copies have the same bytes.
type gitServer struct {
	*server
	repo string // URL of the repository
	user string
	dir  string // folder of the copy
}

func (g *gitServer) client() *gitClient { return newGitClient(g.repo, g.user) }

// housed serves a repository by `ramus serve`, which owns it. The repositories of `ramus gitd` have other owners, whose
// configuration it obeys, so git responds for it there.
func (b *bench) housed(ctx context.Context, r *repository) (*gitServer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	l.Close()
	h, err := b.house(ctx, "git", 0, "RAMUS_LISTEN="+address)
	if err != nil {
		return nil, err
	}
	if _, err := h.client.CreateRepo(ctx, gateway.CreateRepo{Name: r.name, Source: r.dir}, func(string) {}); err != nil {
		return nil, err
	}
	token, err := h.client.NewToken(ctx, signin.NewToken{Subject: "bench", Repo: r.name, Scopes: []string{"read", "write"}})
	if err != nil {
		return nil, err
	}
	h.url = "http://" + address
	return &gitServer{server: h.server, repo: h.url + "/" + r.name + ".git", user: "bench:" + token.Token,
		dir: filepath.Join(h.data, "repos", r.name+".git")}, nil
}

// serve makes a repository and the servers that are compared over it.
func (b *bench) serve(ctx context.Context, s shape) (*repository, []*gitServer, error) {
	r, err := b.repository(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	servers, err := b.gitServers(ctx, r)
	return r, servers, err
}

// gitServers starts all Git servers with copies of r. The first is ramus, which has imported the repository and asks
// for a token, although the simplest of the others ask for none.
func (b *bench) gitServers(ctx context.Context, r *repository) ([]*gitServer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var out []*gitServer
	add := func(name string, env []string, ready func(string) (string, bool), program string,
		args ...string) (*gitServer, error) {
		root, err := os.MkdirTemp(b.dir, "git-")
		if err != nil {
			return nil, err
		}
		b.onExit(func(context.Context) error { return os.RemoveAll(root) })
		dir := filepath.Join(root, r.name+".git")
		if err := r.copyTo(dir); err != nil {
			return nil, err
		}
		for _, key := range []string{"http.receivepack", "uploadpack.allowFilter"} { // ramus allows both
			if _, err := gitIn(ctx, dir, "config", key, "true"); err != nil {
				return nil, err
			}
		}
		for i, a := range args {
			args[i] = strings.ReplaceAll(a, "ROOT", root)
		}
		s, err := b.start(ctx, name, env, ready, program, args...)
		if err != nil {
			return nil, err
		}
		g := &gitServer{server: s, repo: s.url + "/" + r.name + ".git", dir: dir}
		out = append(out, g)
		return g, nil
	}
	ramus, err := b.housed(ctx, r)
	if err != nil {
		return nil, err
	}
	out = append(out, ramus)
	if _, err := add(sideCGI, nil, serving, self, "peer", "cgi", "ROOT"); err != nil {
		return nil, err
	}
	if _, err := add(sideSpawn, nil, serving, self, "peer", "spawn", "ROOT"); err != nil {
		return nil, err
	}
	if program, err := exec.LookPath(b.gitea); err == nil {
		g, err := b.startGitea(ctx, program, r)
		if err != nil {
			return nil, err
		}
		out = append(out, g)
	}
	return out, nil
}

// wall is the metric of a storm. cpu is the server's CPU time for each of its clients.
var (
	wall    = metric{"wall", "ms"}
	cpuEach = metric{"server CPU each", "ms"}
)

// storm calls work n times concurrently and measures the wall time, and the server's CPU time for each call.
func (s *server) storm(ctx context.Context, n int, work func(ctx context.Context, i int) error) ([]float64, error) {
	before, begin := s.cpu(), time.Now()
	if err := together(ctx, n, work); err != nil {
		return nil, err
	}
	took := ms(time.Since(begin))
	return []float64{took, (s.cpu() - before) / float64(n)}, nil
}

// together calls work n times concurrently.
func together(ctx context.Context, n int, work func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, n)
	var w sync.WaitGroup
	for i := range n {
		w.Go(func() {
			if errs[i] = work(ctx, i); errs[i] != nil {
				cancel()
			}
		})
	}
	w.Wait()
	for _, err := range errs { // the first error that is not a mere consequence of another
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return errors.Join(errs...)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// cloner returns a side whose rounds are storms of clones. what returns the clone of the i-th client in round n. In the
// warm-up round git itself checks the packs.
func cloner(g *gitServer, clients int, what func(n, i int) clone) side {
	var mu sync.Mutex
	objects := map[string]uint32{} // by request, since all responses to it must have the same number
	return side{name: g.name, round: func(ctx context.Context, n int) ([]float64, error) {
		return g.storm(ctx, clients, func(ctx context.Context, i int) error {
			f := what(n, i)
			var pack bytes.Buffer
			check := n == 0 && i < 2
			if check {
				f.pack = &pack
			}
			c := g.client()
			defer c.close()
			got, err := c.clone(ctx, f)
			if err != nil {
				return err
			}
			f.pack = nil
			key := fmt.Sprintf("%v %s", f, got.tip)
			mu.Lock()
			want, known := objects[key]
			objects[key] = got.objects
			mu.Unlock()
			if known && want != got.objects {
				return fmt.Errorf("%d objects came, %d before", got.objects, want)
			}
			if check {
				return checkPack(ctx, g.dir, pack.Bytes(), got.tip, f.depth == 0 && f.filter == "")
			}
			return nil
		})
	}}
}

// checkPack has git index a pack in a new repository. A whole pack must have all objects that its objects name.
func checkPack(ctx context.Context, folder string, pack []byte, tip string, whole bool) error {
	dir, err := os.MkdirTemp(filepath.Dir(folder), "check-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if _, err := gitIn(ctx, "", "init", "-q", "--bare", dir); err != nil {
		return err
	}
	args := []string{"-C", dir, "index-pack", "--stdin"}
	if whole {
		args = append(args, "--strict")
	}
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Env, cmd.Stdin = plainEnv(), bytes.NewReader(pack)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git refuses the pack: %w: %s", err, out)
	}
	_, err = gitIn(ctx, dir, "cat-file", "-e", tip+"^{tree}")
	return err
}

// static serves files from a folder as fast as HTTP can.
func (b *bench) static(ctx context.Context, dir string) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return b.start(ctx, sideStatic, nil, serving, self, "peer", "static", dir)
}

// fileOf reads one file of a static server to its end and checks its length.
func fileOf(ctx context.Context, url string, size int64) error {
	c := &http.Client{Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	r := newPackets(resp.Body).r // the same buffer as the clones have
	n := int64(0)
	for {
		k, err := r.Discard(64 << 10)
		n += int64(k)
		if err != nil {
			break
		}
	}
	if n != size {
		return fmt.Errorf("%d bytes of %d came", n, size)
	}
	return nil
}
