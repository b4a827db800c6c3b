package main

import (
	"context"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/client"
)

// placeServer is a server that is killed while repositories are renamed and removed.
type placeServer struct {
	*chatServer
	local *client.Client
}

// killDuring calls change, kills the server at a random moment within a time, and starts it again. It returns whether
// change was acknowledged.
func (s *placeServer) killDuring(within time.Duration, change func(context.Context) error) (acknowledged bool) {
	s.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- change(s.t.Context()) }()
	moment := time.NewTimer(rand.N(within))
	defer moment.Stop()
	select {
	case err := <-ended:
		if err != nil {
			s.t.Fatal(err)
		}
		ended <- nil
	case <-moment.C:
	}
	s.kill(syscall.SIGKILL)
	err := <-ended
	s.start()
	return err == nil
}

// there reports whether the server has a repository.
func (s *placeServer) there(name string) bool {
	s.t.Helper()
	_, err := os.Stat(filepath.Join(s.data, "repos", filepath.FromSlash(name)+".git", "HEAD"))
	list, listed := s.local.Repos(s.t.Context())
	if listed != nil {
		s.t.Fatal(listed)
	}
	for _, r := range list {
		if r.Name == name {
			if err != nil {
				s.t.Errorf("%s is listed: %v", name, err)
			}
			return true
		}
	}
	if err == nil {
		s.t.Errorf("%s is not listed", name)
	}
	return false
}

// runsOf returns the names of the runs of a repository.
func (s *placeServer) runsOf(repo string) (names []string) {
	s.t.Helper()
	list, err := s.local.Runs(s.t.Context(), client.Filter{Repo: repo})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range list {
		names = append(names, r.Name())
	}
	return names
}

// TestPlaceKilled kills the server while it renames and removes repositories. A repository is there as a whole, under one
// of its names, or it is gone as a whole. An acknowledged change is done. RAMUS_CRASHES is the number of rounds (3).
func TestPlaceKilled(t *testing.T) {
	t.Parallel()
	rounds, err := strconv.Atoi(os.Getenv("RAMUS_CRASHES"))
	if err != nil {
		rounds = 3
	}
	s := &placeServer{chatServer: newChatServer(t, "")}
	s.local = client.Socket(func(ctx context.Context) (net.Conn, error) { return dialSocket(ctx, s.data) })
	t.Cleanup(s.local.Close)
	s.start()
	s.ramus("exec", "writer", "--repo", "sample", "--", "echo written >made.txt")
	repo := func(name string, args ...string) string {
		return strings.TrimSpace(s.sh(s.data, `git -C "repos/$0.git" "$@"`, append([]string{name}, args...)...))
	}
	tip := repo("sample", "rev-parse", "ramus/run-writer")

	name, other := "sample", "team/product"
	for range rounds {
		done := s.killDuring(30*time.Millisecond, func(ctx context.Context) error {
			_, err := s.local.RenameRepo(ctx, name, other)
			return err
		})
		before, after := s.there(name), s.there(other)
		if before == after || done && before {
			t.Fatalf("%s is there: %v, %s is there: %v; acknowledged: %v", name, before, other, after, done)
		}
		if after {
			name, other = other, name
		}
		repo(name, "fsck", "--strict", "--no-dangling")
		if got := repo(name, "rev-parse", "ramus/run-writer"); got != tip {
			t.Errorf("the branch is at %s, was at %s", got, tip)
		}
		if here, there := s.runsOf(name), s.runsOf(other); len(here) != 1 || len(there) != 0 {
			t.Errorf("%s has the runs %v, %s has %v", name, here, other, there)
		}
	}
	if out := s.ramus("exec", "writer", "--", "cat made.txt"); out != "written\n" {
		t.Errorf("the caller has %q", out)
	}

	for n := range rounds {
		gone := "gone-" + strconv.Itoa(n)
		s.ramus("repo", "import", gone, filepath.Join(filepath.Dir(s.data), "sample"))
		s.ramus("exec", gone, "--repo", gone, "--", "echo written >made.txt")
		done := s.killDuring(60*time.Millisecond, func(ctx context.Context) error {
			_, err := s.local.RemoveRepo(ctx, gone, false)
			return err
		})
		if s.there(gone) {
			if done {
				t.Errorf("the removal of %s was acknowledged", gone)
			}
			repo(gone, "fsck", "--strict", "--no-dangling")
			if runs := s.runsOf(gone); len(runs) != 1 {
				t.Errorf("%s is there, with the runs %v", gone, runs)
			}
			if _, err := s.local.RemoveRepo(t.Context(), gone, false); err != nil {
				t.Error(err)
			}
		}
		if runs := s.runsOf(gone); len(runs) != 0 || s.there(gone) {
			t.Errorf("%s is gone, and has the runs %v", gone, runs)
		}
		if list := s.ramus("ps"); strings.Contains(list, gone) {
			t.Errorf("%s is gone, and listed:\n%s", gone, list)
		}
	}
}
