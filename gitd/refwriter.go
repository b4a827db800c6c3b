package gitd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gitd/gitfile"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
)

const (
	// refWriterIdle is the time after which an idle git process ends.
	refWriterIdle = 30 * time.Second
	// refWriterMax bounds the transactions of one git process, which remembers every commit that it has read.
	refWriterMax = 2000
)

const (
	// refWriterFails bounds the refusals of a transaction for reasons that can pass. A kept process may hold
	// outdated state, and another writer may hold a lock.
	refWriterFails = 3
	// refWriterDeaths bounds how often git may be killed from outside.
	refWriterDeaths = 20
	// refWriterWaits bounds the further attempts that meet a lock younger than lockYoung. The holder of such a
	// lock waits for the disk, which can take longer than the tenth of a second that git waits for a lock.
	refWriterWaits = 50
	lockYoung      = 5 * time.Second
)

// The attempts of removeKilledLocks, and the pause between two of them.
const (
	unlockTries = 50
	unlockPause = 10 * time.Millisecond
)

// refWriting changes the refs of a repository.
type refWriting struct {
	repo    *Repo
	packed  packed
	folders refFolders
	turns   refTurns
	native  refWriter // for changes that are more than changes of loose refs

	configMu sync.Mutex        // guards the fields below
	config   gitfile.Signature // of the configuration of the repository when plain was set
	plain    bool              // the configuration does not say how refs are written
}

// init must be called before any other method.
func (w *refWriting) init(r *Repo) {
	w.repo, w.native.repo = r, r
}

// write makes the updates in one transaction and returns when it is durable. Updates of one ref take turns, so
// that they never meet each other's locks.
func (w *refWriting) write(ctx context.Context, updates []RefUpdate) error {
	defer w.turns.acquire(updates)()
	r := w.repo
	r.server.writing.RLock()
	defer r.server.writing.RUnlock()
	if err := r.writeLoose(ctx, updates); !errors.Is(err, errNotLoose) {
		return err
	}
	if err := r.objects.Packs.SyncNames(); err != nil {
		return err
	}
	defer r.expectForeign()()
	if err := w.native.write(ctx, updates); err != nil {
		return err
	}
	names := make([]string, len(updates))
	for i, u := range updates {
		names[i] = u.Name
	}
	return syncRefs(r.dir, names...)
}

// close ends an idle process, and waits for one that is not.
func (w *refWriting) close() {
	w.native.close()
}

// refWriter keeps one `git update-ref --stdin` for a repository. A change takes a third of a millisecond instead
// of the start of a process. It writes for one caller at a time and ends when it is idle.
type refWriter struct {
	repo *Repo

	mu   sync.Mutex // guards the fields below, held during a transaction
	p    *gitcmd.Process
	in   *os.File
	out  *bufio.Reader
	outf *os.File
	used int
	idle *time.Timer
	done context.CancelFunc
}

// write makes the updates in one transaction.
func (w *refWriter) write(ctx context.Context, updates []RefUpdate) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	fails, deaths, waits := 0, 0, 0
	for {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		kept := w.p != nil
		if !kept {
			if err := w.startProcess(); err != nil {
				return err
			}
		}
		w.repo.locking.RLock()
		prepared, err := w.runTransaction(updates)
		w.repo.locking.RUnlock()
		if err == nil {
			w.used++
			if w.used >= refWriterMax {
				w.endProcess()
			} else {
				w.idle = time.AfterFunc(refWriterIdle, w.close)
			}
			return nil
		}
		ended := w.endProcess()
		if ended != nil {
			err = ended // the message of git instead of "EOF"
		}
		if prepared {
			// Git held all locks and had found every ref at its old value, so a ref at New was moved by this
			// transaction. The rest is written again.
			left, e := w.listUnchanged(ctx, updates)
			if e != nil {
				return errors.Join(err, e)
			}
			if len(left) == 0 {
				return nil
			}
			updates = left
		}
		if conflict := w.repo.expectOld(ctx, updates); conflict != nil {
			return conflict
		}
		if conflict := w.repo.checkNameFree(ctx, updates); conflict != nil {
			return conflict
		}
		switch {
		case gitcmd.ExitCode(ended) < 0:
			deaths++
		case kept:
		case waits < refWriterWaits && w.repo.isUnderWay(updates):
			waits++
		default:
			fails++
		}
		if deaths > 0 {
			w.repo.removeKilledLocks(updates)
		}
		if deaths >= refWriterDeaths || fails >= refWriterFails {
			return err
		}
	}
}

// isUnderWay reports whether another writer holds a lock that the updates need, and made it so recently that it
// cannot be a leftover.
func (r *Repo) isUnderWay(updates []RefUpdate) bool {
	young := func(lock string) bool {
		info, err := os.Lstat(filepath.Join(r.dir, filepath.FromSlash(lock)))
		return err == nil && time.Since(info.ModTime()) < lockYoung
	}
	return young("packed-refs.lock") ||
		slices.ContainsFunc(updates, func(u RefUpdate) bool { return young(u.Name + ".lock") })
}

// removeKilledLocks removes the locks that a killed git left on refs. Even a git that is asked to end has a moment
// in which it forgets them, and each would make its ref unwritable until the next start. The locks stay as long as
// another git may hold them, which a long push can.
func (r *Repo) removeKilledLocks(updates []RefUpdate) {
	if !r.server.library.alone || r.server.OwnConfig {
		return
	}
	for try := 0; !r.locking.TryLock(); try++ {
		if try == unlockTries {
			return
		}
		time.Sleep(unlockPause)
	}
	defer r.locking.Unlock()
	for _, u := range updates {
		lock := filepath.Join(r.dir, filepath.FromSlash(u.Name)+".lock")
		if err := os.Remove(lock); err == nil {
			r.server.log().Warn("removed the lock of a git that was killed", "repo", r.name, "ref", u.Name)
		}
	}
}

// listUnchanged returns the updates whose ref is not at its new value.
func (w *refWriter) listUnchanged(ctx context.Context, updates []RefUpdate) ([]RefUpdate, error) {
	var left []RefUpdate
	for _, u := range updates {
		is, err := w.repo.readRef(ctx, u.Name)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		if is != u.New {
			left = append(left, u)
		}
	}
	return left, nil
}

// startProcess starts git. The process outlives the call. It ends with the server, or when it is idle.
func (w *refWriter) startProcess() error {
	inR, inW, err := os.Pipe()
	if err != nil {
		return err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		inR.Close()
		inW.Close()
		return err
	}

	ctx, cancel := context.WithCancel(context.Background())
	p, err := w.repo.server.git.Start(ctx, gitcmd.Command{
		Repo: w.repo.dir,
		Args: []string{"update-ref", "--no-deref", "--stdin", "-z"},
		In:   inR, Out: outW,
	})
	inR.Close()
	outW.Close()
	if err != nil {
		inW.Close()
		outR.Close()
		cancel()
		return err
	}

	// The server waits for every child when it ends, so an idle one must end then.
	context.AfterFunc(p.Context(), func() {
		if context.Cause(p.Context()) == gitcmd.ErrClosed {
			w.close()
		}
	})
	w.p, w.in, w.outf, w.out, w.used, w.done = p, inW, outR, bufio.NewReader(outR), 0, cancel
	return nil
}

// runTransaction runs one transaction. prepared is true once git holds all locks and has found every ref at its
// old value.
func (w *refWriter) runTransaction(updates []RefUpdate) (prepared bool, err error) {
	if w.idle != nil {
		w.idle.Stop()
		w.idle = nil
	}
	var b bytes.Buffer
	b.WriteString("start\x00")
	for _, u := range updates {
		zero := Hash(strings.Repeat("0", 40))
		if len(u.New) == 64 || u.Old != nil && len(*u.Old) == 64 {
			zero = Hash(strings.Repeat("0", 64))
		}
		old := Hash("")
		if u.Old != nil {
			if old = *u.Old; old == "" {
				old = zero
			}
		}
		switch {
		case u.New != "":
			fmt.Fprintf(&b, "update %s\x00%s\x00%s\x00", u.Name, u.New, old)
		case old == zero:
			fmt.Fprintf(&b, "verify %s\x00%s\x00", u.Name, old)
		default:
			fmt.Fprintf(&b, "delete %s\x00%s\x00", u.Name, old)
		}
	}
	b.WriteString("prepare\x00")
	if _, err := w.in.Write(b.Bytes()); err != nil {
		return false, err
	}

	for _, want := range []string{"start: ok\n", "prepare: ok\n"} {
		if err := w.expectAnswer(want); err != nil {
			return false, err
		}
	}
	if _, err := w.in.WriteString("commit\x00"); err != nil {
		return true, err
	}
	return true, w.expectAnswer("commit: ok\n")
}

func (w *refWriter) expectAnswer(want string) error {
	line, err := w.out.ReadString('\n')
	if err != nil {
		return err
	}
	if line != want {
		return fmt.Errorf("git update-ref answered %q instead of %q", line, want)
	}
	return nil
}

// endProcess ends the process and returns its error.
func (w *refWriter) endProcess() error {
	if w.p == nil {
		return nil
	}
	if w.idle != nil {
		w.idle.Stop()
		w.idle = nil
	}
	w.in.Close() // git rolls back an open transaction, and ends
	err := w.p.Wait()
	w.outf.Close()
	w.done()
	w.p = nil
	return err
}

// close ends the process. It waits for a transaction in progress.
func (w *refWriter) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.endProcess(); err != nil && !errors.Is(err, gitcmd.ErrClosed) {
		w.repo.server.log().Warn("git update-ref failed", "repo", w.repo.name, "err", err)
	}
}
