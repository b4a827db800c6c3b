package deps

import (
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/egress"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// warmer is a container that fetches a base's dependencies. No caller has been in it.
type warmer struct {
	c     *Cache
	tree  *worktree.Tree
	lease *containers.Lease
	key   string
	files map[string]string // hashes of the commit's lock files, by name
	n     int               // commands so far
}

func (c *Cache) openWarmer(ctx context.Context, repo *gitd.Repo, commit gitd.Hash) (_ *warmer, err error) {
	base, err := repo.Base(ctx)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(repo.Name()))
	w := &warmer{c: c, tree: c.Trees.NewTree(record.Caller{}, repo, base), key: "base:" + hex.EncodeToString(sum[:8])}
	if w.files, err = repo.Lockfiles(ctx, commit); err != nil {
		return nil, err
	}
	w.lease, err = w.tree.OpenScratch(ctx, worktree.Scratch{
		Key:    w.key,
		Image:  c.Trees.Usual().Image,
		Branch: base,
		Commit: commit,
		Door:   w.door(),
	})
	return w, err
}

// door returns a door where the container reads the base, and reaches the hosts that are allowed.
func (w *warmer) door() http.Handler {
	repo := w.tree.Repo
	git := w.c.Git.GrantHandler(gitd.Grant{
		Subject: w.key,
		Repo:    repo.Name(),
		Read:    []string{"refs/heads/" + w.tree.Base},
		Scopes:  []string{gitd.ScopeRead},
		Expires: w.c.Trees.Now().AddDate(1, 0, 0), // not a bound, because the grant ends with the connection
	})
	return worktree.ScratchDoor(repo, git, &egress.Proxy{Hosts: w.c.Egress, Tell: func(e record.Event) {
		w.c.Log.Debug("the fetching of a base's dependencies asked for a host", "repo", repo.Name(), "host", e.Message,
			"verdict", e.Reason)
	}})
}

// close removes the container.
func (w *warmer) close() { w.tree.CloseScratch(w.lease, w.key) }

// warm fetches an ecosystem's dependencies and keeps them. It returns the size of their tarball.
func (w *warmer) warm(ctx context.Context, l locked) (size int64, err error) {
	names := l.lockfiles(w.files)
	if len(names) > locksMax {
		return 0, fmt.Errorf("%w: it has %d lock files, allowed are %d", ErrCannotFetch, len(names), locksMax)
	}
	for _, name := range names {
		exit, err := w.run(ctx, path.Join(containers.WorkDir, path.Dir(name)), nil, l.fetch...)
		if exit.Code == 127 {
			return 0, fmt.Errorf("%w: containers have no %s", ErrCannotFetch, l.name)
		}
		if err != nil {
			return 0, err
		}
	}
	return w.keep(ctx, l)
}

// run runs a command in the container. Its standard output goes to stdout, which may be nil.
func (w *warmer) run(ctx context.Context, dir string, stdout io.Writer, args ...string) (containers.Exit, error) {
	w.n++
	ctx, cancel := context.WithTimeout(ctx, fetchWithin+time.Minute) // the runner ends the command first
	defer cancel()
	p, err := w.lease.Host.Start(ctx,
		containers.Command{ID: fmt.Sprintf("warm-%d", w.n), Args: args, Dir: dir, Timeout: fetchWithin})
	if err != nil {
		return containers.Exit{}, err
	}
	said := text.Tail{Limit: 2 << 10}
	if stdout == nil {
		stdout = &said
	}
	exit, err := p.Output(stdout, &said)
	if err == nil && exit.Code != 0 {
		late := ""
		if exit.Reason == containers.ReasonTimeout {
			late = " (it took too long)"
		}
		err = fmt.Errorf("%s ended with %d%s: %s", strings.Join(args[:min(2, len(args))], " "), exit.Code, late,
			strings.Join(strings.Fields(w.c.Trees.Secrets.String(said.String())), " "))
	}
	return exit, err
}

// keep takes the fetched files out of the container. A tarball that is not whole is not kept.
func (w *warmer) keep(ctx context.Context, l locked) (size int64, err error) {
	in, out := io.Pipe()
	kept := make(chan error, 1)
	go func() {
		err := w.c.Bucket.Put(ctx, l.key(), in)
		in.CloseWithError(err) // nothing reads from it any more
		kept <- err
	}()
	size, err = w.pack(ctx, l, out)
	out.CloseWithError(err) // Put fails with err, or has read everything
	return size, cmp.Or(err, <-kept)
}

// pack writes the tarball of an ecosystem's folder to out. The host compresses it, so that unpacking gives as many bytes as were counted.
func (w *warmer) pack(ctx context.Context, l locked, out io.Writer) (size int64, err error) {
	pack, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err != nil {
		return 0, err
	}
	limit := &text.Limit{W: pack, Left: tarballMax}
	exit, err := w.run(ctx, containers.WorkDir, limit, "tar", "-C", Dir, "-cf", "-", "--", l.folder)
	size = tarballMax - limit.Left
	if err == nil && (limit.Cut || exit.Stdout != size) {
		most := min(tarballMax, w.c.Trees.Usual().Limits.WithDefaults().Output)
		err = fmt.Errorf("%w: they have %d MiB, kept are at most %d", ErrCannotFetch, exit.Stdout>>20, most>>20)
	}
	if err != nil {
		return 0, err
	}
	return size, pack.Close()
}
