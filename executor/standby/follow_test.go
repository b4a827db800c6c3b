package standby

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd"
)

// shaky is a connection to a leader in the same process that breaks now and then.
type shaky struct {
	leader *Leader
}

var errShaky = errors.New("the connection broke")

func (s *shaky) breaks() bool { return rand.N(20) == 0 }

func (s *shaky) Next(ctx context.Context, have Have) (Round, error) {
	if s.breaks() {
		return Round{}, errShaky
	}
	r, err := s.leader.Next(ctx, have)
	if err == nil && s.breaks() {
		err = errShaky
	}
	return r, err
}

func (s *shaky) File(ctx context.Context, session, path string, from int64, w io.Writer) error {
	if s.breaks() {
		return errShaky
	}
	return s.leader.Read(ctx, session, path, from, w)
}

func (s *shaky) Upstream(repo string) gitd.Upstream {
	return gitd.Upstream{URL: filepath.Join(s.leader.Data, "repos", repo+".git")}
}

// TestSync changes refs and files from several goroutines, while a stand-by follows over a connection that breaks. With
// Sync the stand-by has each change of a ref when Update returns. At the end it has everything.
func TestSync(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "first")
	if err := makeLeader(t.Context(), data); err != nil {
		t.Fatal(err)
	}
	git, err := openGit(t.Context(), data, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer git.Close()
	l := &Leader{Data: data, Git: git, Allow: true, Sync: true, Wait: time.Minute}
	if err := l.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	git.Duty, git.Settle = l.Duty, l.Settle
	l.Begin()

	second := t.TempDir()
	source, err := Begin(second, Source{Of: "http://first.example"})
	if err != nil {
		t.Fatal(err)
	}
	copied, err := openGit(t.Context(), second, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	f := &Follower{Data: second, Source: source, Git: copied, From: &shaky{leader: l}, RetryEvery: time.Millisecond,
		Name: "x", URL: "http://second.example", Log: slog.New(slog.DiscardHandler)}
	ctx, stop := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() {
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer following.Wait()
	defer stop()

	var work sync.WaitGroup
	for i := range 6 {
		work.Go(func() {
			r, err := git.Repo("app")
			ref := fmt.Sprintf("refs/heads/branch-%d", i)
			for n := 0; n < 15 && err == nil; n++ {
				err = errors.Join(add(data, fmt.Sprintf("live/run-%d/1.jsonl", i), fmt.Sprintf("line %d\n", n)),
					put(data, fmt.Sprintf("live/run-%d/1.output/s.stdout", i), fmt.Sprintf("%0*d\n", n/3+1, n)), // begins again
					put(data, fmt.Sprintf("live/run-%d/1.output/artifacts/a", i), fmt.Sprintf("%0*d\n", n/3+1, n)),
					put(data, fmt.Sprintf("sealed/%d", i), fmt.Sprint(n)))
				var want gitd.Hash
				if n%5 == 4 {
					err = errors.Join(err, r.Update(t.Context(), gitd.RefUpdate{Name: ref}))
				} else if err == nil {
					err = commit(t.Context(), r, ref, fmt.Sprint(i, n))
					want, _ = r.Resolve(t.Context(), ref)
				}
				if err != nil {
					break
				}
				there, missing := copied.Repo("app")
				if missing != nil {
					err = missing
					break
				}
				if got, _ := there.Resolve(t.Context(), ref); got != want {
					t.Errorf("%s is at %q when its change to %q is acknowledged", ref, got, want)
				}
				_, _ = l.Status().Best()
				_ = f.Status()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	if err := l.Settle(t.Context(), ""); err != nil { // the stand-by has a state that is newer than all changes
		t.Fatal(err)
	}
	stop()
	following.Wait()
	if want, got := stateOfFolder(t, data), stateOfFolder(t, second); !maps.Equal(got, want) {
		t.Errorf("the stand-by has\n%v\nwant\n%v", got, want)
	}
	if urls, err := ReadPeers(data); err != nil || len(urls) != 1 || urls[0] != "http://second.example" {
		t.Errorf("the server knows %q, %v", urls, err)
	}

	// A fence ends all who wait, and all work.
	refused := make(chan error, 1)
	go func() { refused <- l.Settle(t.Context(), "") }()
	if err := l.Fence(Fence{Epoch: 1}); err == nil {
		t.Error("an epoch that is not higher ends the server")
	}
	if err := l.Fence(Fence{Epoch: 2, ID: "b", By: "http://second.example"}); err != nil {
		t.Fatal(err)
	}
	if err := <-refused; !errors.Is(err, gitd.ErrFenced) {
		t.Errorf("who waits for a stand-by gets %v", err)
	}
	if err := l.Duty(t.Context(), "app"); !errors.Is(err, gitd.ErrFenced) {
		t.Errorf("work is refused with %v", err)
	}
	if err := l.Fence(Fence{Epoch: 2, ID: "a"}); err != nil {
		t.Error(err)
	}
	if f, err := ReadFence(data); err != nil || f.ID != "b" {
		t.Errorf("the fence is %v, %v, want the higher one", f, err)
	}
}

// TestUnconfirmed tests changes while no stand-by is connected.
func TestUnconfirmed(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "first")
	if err := makeLeader(t.Context(), data); err != nil {
		t.Fatal(err)
	}
	git, err := openGit(t.Context(), data, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer git.Close()
	for _, c := range []struct {
		alone bool
		want  error
	}{{false, gitd.ErrUnconfirmed}, {true, nil}} {
		l := &Leader{Data: data, Git: git, Allow: true, Sync: true, Wait: time.Millisecond, Alone: c.alone}
		if err := l.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.Duty(t.Context(), "app"); err != nil {
			t.Errorf("before it serves, a server gets %v", err)
		}
		l.Begin()
		if err := l.Duty(t.Context(), "app"); !errors.Is(err, c.want) {
			t.Errorf("alone %v: a change is refused with %v", c.alone, err)
		}
		if err := l.Settle(t.Context(), "app"); !errors.Is(err, c.want) {
			t.Errorf("alone %v: a change is acknowledged with %v", c.alone, err)
		}
		if _, err := l.Next(t.Context(), Have{Name: "x", URL: "file:///etc"}); err == nil {
			t.Error("the URL of a follower may be any")
		}
		l.Close()
	}
	if _, err := (&Leader{}).Next(t.Context(), Have{}); err == nil {
		t.Error("a server that allows no stand-by is followed")
	}
}

// TestRoundCheck tests that no name of a round leads out of the data folder of a follower.
func TestRoundCheck(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", ".", "..", "../x", "/etc/passwd", "a/../../x", "a//b", "repos/app.git/config", "standby/fenced.json",
		"ramus.yaml", "ramus.lock", ".x", "./x"} {
		for _, r := range []Round{{Files: []File{{Path: name}}}, {GoneFiles: []string{name}}} {
			if r.check() == nil {
				t.Errorf("%+v is taken", r)
			}
		}
	}
	for _, r := range []Round{{Repos: []Repo{{Name: "../x"}}}, {GoneRepos: []string{"/x"}}, {Files: []File{{Path: "a", Size: -1}}},
		{Files: []File{{Path: "a", Size: 1, From: 2}}}, {Files: []File{{Path: "a", Mode: 1 << 31}}}} {
		if r.check() == nil {
			t.Errorf("%+v is taken", r)
		}
	}
	if r := (Round{Repos: []Repo{{Name: "team/app"}}, Files: []File{{Path: "live/run-x/1.jsonl", Size: 2, Mode: 0o600}}}); r.check() != nil {
		t.Error(r.check())
	}
}
