package audit

import (
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
	"github.com/ramus-dev/ramus/internal/clocktest"
	"github.com/ramus-dev/ramus/internal/text"
	"golang.org/x/crypto/ssh"
)

var author = gitd.Person{Name: "ramus", Email: "ramus@localhost"}

// logged is a log with a clock that tests set.
type logged struct {
	*Log
	t     *testing.T
	clock *clocktest.Clock
}

func open(t *testing.T) *logged {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := gitd.NewCommitSigner(pem.EncodeToMemory(block))
	if err != nil {
		t.Fatal(err)
	}
	l := &logged{t: t, clock: clocktest.At(time.Date(2026, 11, 30, 23, 59, 0, 0, time.UTC))}
	git := &gitd.Server{Root: filepath.Join(t.TempDir(), "repos"), Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if err := git.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { git.Close() })
	l.Log = &Log{Git: git, Signer: signer, Author: author, Now: l.clock.Now, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	l.Open()
	t.Cleanup(func() { l.Close() })
	return l
}

// reopen has a new log continue, whose entries gather for some time if nobody waits for them.
func (l *logged) reopen(gather time.Duration) {
	l.t.Helper()
	if err := l.Close(); err != nil {
		l.t.Fatal(err)
	}
	l.Log = &Log{Git: l.Git, Signer: l.Signer, Author: author, Now: l.clock.Now, Log: l.Log.Log, gather: gather}
	l.Open()
}

// waitFor waits until the log has so many entries.
func (l *logged) waitFor(n int) {
	l.t.Helper()
	for range 3000 {
		if list, err := l.Read(l.t.Context(), n); err != nil {
			l.t.Fatal(err)
		} else if len(list) == n {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	l.t.Fatalf("the log never had %d entries", n)
}

// git runs stock git in the repository of the log.
func (l *logged) git(args ...string) string {
	l.t.Helper()
	cmd := exec.CommandContext(l.t.Context(), "git",
		append([]string{"-C", filepath.Join(l.Git.Root, gitd.PeopleRepo+".git")}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		l.t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return string(out)
}

func TestLog(t *testing.T) {
	l := open(t)
	ctx := t.Context()
	if list, err := l.Read(ctx, 10); err != nil || len(list) != 0 {
		t.Fatal(list, err)
	}
	if err := l.Append(ctx, Entry{Who: "github:1", Login: "ada", Action: "people.role", Object: "github:2 admin",
		Result: OK, Place: "203.0.113.0/24"}); err != nil {
		t.Fatal(err)
	}
	l.clock.Add(2 * time.Minute) // the next month
	if err := l.Append(ctx, Entry{Who: "local", Action: "token.create", Object: "evil\u202e\nby root: ok", Result: OK}); err != nil {
		t.Fatal(err)
	}

	list, err := l.Read(ctx, 10)
	if err != nil || len(list) != 2 || list[0].Action != "token.create" || list[1].Login != "ada" ||
		strings.ContainsAny(list[0].Object, "\n\u202e") {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err := l.Read(ctx, 1); err != nil || len(list) != 1 || list[0].Action != "token.create" {
		t.Errorf("%+v, %v", list, err)
	}
	if got := l.git("log", "--format=%s", "refs/ramus/audit/2026-11"); got != "people.role github:2 admin by ada (github:1): ok\n" {
		t.Errorf("%q", got)
	}
	if got := l.git("log", "--format=%B", "refs/ramus/audit/2026-11"); strings.Contains(got, "Previous") {
		t.Errorf("the first month has one before it: %q", got)
	}
	// The first commit of a month names the last of the month before.
	first := strings.TrimSpace(l.git("rev-parse", "refs/ramus/audit/2026-11"))
	if got := l.git("log", "--format=%B", "refs/ramus/audit/2026-12"); !strings.Contains(got, "Previous: "+first) {
		t.Errorf("%q", got)
	}
	l.reopen(0)
	if err := l.Append(ctx, Entry{Who: "local", Action: "token.remove", Object: "evil", Result: OK}); err != nil {
		t.Fatal(err)
	}
	if got := l.git("log", "-1", "--format=%B", "refs/ramus/audit/2026-12"); strings.Contains(got, "Previous") {
		t.Errorf("the second commit of a month, of the next process: %q", got)
	}
	// Stock git checks every commit with the public key.
	signers := filepath.Join(t.TempDir(), "signers")
	if err := os.WriteFile(signers, []byte(l.Signer.AllowedSigner(author)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, month := range []string{"2026-11", "2026-12"} {
		l.git("-c", "gpg.ssh.allowedSignersFile="+signers, "verify-commit", "refs/ramus/audit/"+month)
	}
	l.git("fsck", "--strict")
}

// TestMany has many people act at once. Nothing is lost, and the commits are fewer than the entries.
func TestMany(t *testing.T) {
	l := open(t)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			for n := range 10 {
				e := Entry{Who: fmt.Sprint("github:", i), Action: "a", Object: fmt.Sprint(n), Result: OK}
				if n%2 == 0 {
					if err := l.Note(e); err != nil {
						t.Error(err)
					}
				} else if err := l.Append(context.Background(), e); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	list, err := l.Read(t.Context(), 1000)
	if err != nil || len(list) != 200 {
		t.Errorf("%d entries, %v", len(list), err)
	}
	last := map[string]int{}
	for _, r := range list { // the newest first
		var n int
		fmt.Sscan(r.Object, &n)
		if was, ok := last[r.Who]; ok && n != was-1 {
			t.Errorf("%s: %d comes before %d", r.Who, n, was)
		}
		last[r.Who] = n
	}
	if got := strings.Count(l.git("log", "--format=%H", "refs/ramus/audit/2026-11"), "\n"); got >= 200 {
		t.Errorf("%d commits", got)
	}
	if err := l.Append(t.Context(), Entry{}); err == nil {
		t.Error("a closed log takes entries")
	}
}

// TestClean bounds the fields of an entry, and replaces characters that nobody sees.
func TestClean(t *testing.T) {
	l := &Log{Now: time.Now}
	for _, r := range "\x00\n\t\x1f\x7f\u0080\u009f\u00ad\u061c\u200b\u200c\u200d\u200f\u2028\u202e\u2060\u206f\ufeff\U000e0041" {
		if got := l.clean(Entry{Object: "a" + string(r) + "b"}).Object; got != "a?b" {
			t.Errorf("%U: %q", r, got)
		}
	}
	if got := l.clean(Entry{Object: "~ é \u00a1 漢 \u2010 \U0001f642"}).Object; got != "~ é \u00a1 漢 \u2010 \U0001f642" {
		t.Errorf("visible characters: %q", got)
	}
	if got := l.clean(Entry{Who: strings.Repeat("x", 1000)}).Who; len(got) > maxField+len(text.Ellipsis) || len(got) < maxField {
		t.Errorf("a field of %d bytes", len(got))
	}
}

// TestAgain cannot write an entry, and writes it with the next one, when it can.
func TestAgain(t *testing.T) {
	l := &Log{Git: repotest.NewServer(t), Author: author}
	l.Open()
	defer l.Close()
	inTheWay := filepath.Join(l.Git.Root, gitd.PeopleRepo+".git")
	if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(t.Context(), Entry{Who: "a", Action: "first", Result: OK}); err == nil {
		t.Error("an entry was written to a file that is no repository")
	}
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(t.Context(), Entry{Who: "a", Action: "second", Result: OK}); err != nil {
		t.Error(err)
	}
	if list, err := l.Read(t.Context(), 10); err != nil || len(list) != 2 || list[1].Action != "first" {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestNextProcess has a second log continue the commits of the first.
func TestNextProcess(t *testing.T) {
	l := open(t)
	for range 2 {
		if err := l.Append(t.Context(), Entry{Who: "a", Action: "b", Result: OK}); err != nil {
			t.Fatal(err)
		}
		l.reopen(0)
	}
	if list, err := l.Read(t.Context(), 10); err != nil || len(list) != 2 {
		t.Errorf("%+v, %v", list, err)
	}
	if err := (*Log)(nil).Close(); err != nil {
		t.Error(err)
	}
}

// TestGather writes entries that nobody waits for after some time, or with one that somebody waits for.
func TestGather(t *testing.T) {
	l := open(t)
	note := func() {
		t.Helper()
		if err := l.Note(Entry{Who: "a", Action: "b", Result: OK}); err != nil {
			t.Fatal(err)
		}
	}
	// What cannot be written is written later without a further entry.
	l.reopen(time.Millisecond)
	inTheWay := filepath.Join(l.Git.Root, gitd.PeopleRepo+".git")
	if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(t.Context(), Entry{Who: "a", Action: "b", Result: OK}); err == nil {
		t.Error("an entry was written to a file that is no repository")
	}
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	l.waitFor(1)
	note()
	l.waitFor(2)
	note()
	l.waitFor(3)

	l.reopen(time.Hour)
	for range 20 {
		note()
	}
	if err := l.Append(t.Context(), Entry{Who: "a", Action: "b", Result: OK}); err != nil {
		t.Fatal(err)
	}
	l.waitFor(24)
	if got := strings.Count(l.git("log", "--format=%H", "refs/ramus/audit/2026-11"), "\n"); got != 4 {
		t.Errorf("%d commits", got)
	}
}

// TestFull refuses entries when too many could not be written.
func TestFull(t *testing.T) {
	l := &Log{Now: time.Now, waiting: make([]Entry, maxWaiting-1), wake: make(chan struct{}, 1)}
	if err := l.Note(Entry{}); err != nil {
		t.Error(err)
	}
	if err := l.Note(Entry{}); err == nil || len(l.waiting) != maxWaiting {
		t.Errorf("%d entries wait, %v", len(l.waiting), err)
	}
}
