package gitd

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestCrashServer runs the server that TestCrash kills. The server is this test's own binary,
// started again.
func TestCrashServer(t *testing.T) {
	root := os.Getenv("RAMUS_CRASH_ROOT")
	if root == "" {
		return // an ordinary run of the tests
	}
	s := &Server{Root: root, KeyFile: filepath.Join(root, ".key"), Anonymous: true}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		t.Fatal(err)
	}
	t.Fatal(http.Serve(l, s.Handler()))
}

// TestCrash kills the server under push load, repeatedly. No acknowledged push is lost, and the
// server is soon up again. RAMUS_CRASHES is the number of kills. The default is 15.
func TestCrash(t *testing.T) {
	crashes := 15
	if testing.Short() {
		crashes = 3
	}
	if n, err := strconv.Atoi(os.Getenv("RAMUS_CRASHES")); err == nil {
		crashes = n
	}
	const pushers = 3
	root := t.TempDir()
	bare := filepath.Join(root, "a.git")
	stock(t, "", "init", "-q", "--bare", "-b", "main", bare)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	// Each server inherits the listener. So nobody else can take the address between two servers,
	// and clients wait.
	listener, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String() + "/a.git"

	start := func() *exec.Cmd {
		cmd := exec.Command(os.Args[0], "-test.run=^TestCrashServer$", "-test.timeout=0")
		cmd.Env = append(os.Environ(), "RAMUS_CRASH_ROOT="+root)
		cmd.ExtraFiles = []*os.File{listener}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	// Each request has a connection of its own, because a kept connection could be to a killed
	// server.
	client := &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	ready := func() {
		t.Helper()
		resp, err := client.Get(url + "/info/refs?service=git-upload-pack")
		if err != nil {
			t.Fatal("the server does not come back: ", err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatal("the server is back, and says ", resp.Status)
		}
	}

	type pusher struct {
		dir   string
		mu    sync.Mutex // guards acked
		acked []string
	}
	all := make([]*pusher, pushers)
	for i := range all {
		all[i] = &pusher{dir: t.TempDir()}
		stock(t, all[i].dir, "init", "-q", "-b", "main")
	}
	acked := make(chan struct{}, 1)
	stop := make(chan struct{})
	var pushing sync.WaitGroup
	defer pushing.Wait()
	stopOnce := sync.OnceFunc(func() { close(stop) })
	defer stopOnce()
	server := start()
	// Without a server and a listener, the pushing clients end.
	defer func() { server.Process.Kill(); server.Wait(); l.Close(); listener.Close() }()
	ready()
	for i, p := range all {
		pushing.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				write(t, filepath.Join(p.dir, "file"), fmt.Sprint(n))
				if _, err := stockTry(p.dir, "add", "file"); err != nil {
					t.Error(err)
					return
				}
				if _, err := stockTry(p.dir, "commit", "-q", "-m", fmt.Sprint(n)); err != nil {
					t.Error(err)
					return
				}
				head, err := stockTry(p.dir, "rev-parse", "HEAD")
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := stockTry(p.dir, "push", "-q", url, fmt.Sprintf("HEAD:refs/heads/p%d", i)); err != nil {
					continue // the push was not acknowledged, so it may be lost
				}
				p.mu.Lock()
				p.acked = append(p.acked, head[:40])
				p.mu.Unlock()
				select {
				case acked <- struct{}{}:
				default:
				}
			}
		})
	}
	// verify checks the repositories with stock git, without the server.
	verify := func() (n int) {
		for i, p := range all {
			p.mu.Lock()
			list := p.acked
			p.mu.Unlock()
			if len(list) == 0 {
				continue
			}
			// Each commit is the parent of the next, so the last one suffices.
			if _, err := stockTry(bare, "merge-base", "--is-ancestor", list[len(list)-1], fmt.Sprintf("refs/heads/p%d", i)); err != nil {
				t.Errorf("an acknowledged push is lost: %v", err)
			}
			n += len(list)
		}
		return n
	}
	var slowest time.Duration
	for range crashes {
		select {
		case <-acked:
		case <-time.After(2 * time.Minute):
			t.Fatal("no push gets through any more")
		}
		time.Sleep(rand.N(300 * time.Millisecond)) // anywhere in a push
		if err := server.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		server.Wait()
		select {
		case <-acked:
		default:
		}
		verify()
		begun := time.Now()
		server = start()
		ready()
		slowest = max(slowest, time.Since(begun))
	}
	stopOnce()
	pushing.Wait()
	lock, err := os.Open(filepath.Join(root, lockName))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	t.Logf("%d kills, %d acknowledged pushes, none lost; back after at most %v", crashes, verify(),
		slowest.Round(time.Millisecond))
	// The lock keeps the repository from being packed during the check. The server's children hold
	// this lock, too.
	if err := errors.Join(server.Process.Kill(), unix.Flock(int(lock.Fd()), unix.LOCK_EX)); err != nil {
		t.Fatal(err)
	}
	fsck(t, bare)
}
