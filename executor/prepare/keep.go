package prepare

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/internal/text"
)

// Bounds of the files that survive the sleep of a container.
const (
	keptMax    = 1 << 30 // bytes of their tarball before it is compressed
	keptWithin = 5 * time.Minute
	nothing    = 64 // exit code of a container that has none of them
)

// Kept are files of a caller's container, as a tarball in a bucket. Only containers of the caller open it.
type Kept struct {
	Bucket store.Bucket
	Key    string
}

// KeptPrefix begins the keys of kept files.
const KeptPrefix = "keep/"

// keptSuffix ends them.
const keptSuffix = ".tar.gz"

// KeptOf returns the kept files of a caller of a repository.
func KeptOf(bucket store.Bucket, repo string, c record.Caller) Kept {
	return Kept{bucket, KeptPrefix + repo + "/" + c.Slug() + keptSuffix}
}

// KeptBranch returns the repository and the ref of the branch of the caller whose kept files have a key.
func KeptBranch(key string) (repo, ref string) {
	repo, slug := path.Split(strings.TrimSuffix(strings.TrimPrefix(key, KeptPrefix), keptSuffix))
	return strings.TrimSuffix(repo, "/"), "refs/heads/" + record.BranchPrefix + slug
}

// saveScript writes those of its arguments that exist as a tarball.
const saveScript = `cd ` + containers.WorkDir + ` || exit
for p do
	shift
	if [ -e "$p" ] || [ -L "$p" ]; then set -- "$@" "$p"; fi
done
[ $# -gt 0 ] || exit 64
exec tar -cf - -- "$@"`

// Save keeps files and folders of a container, in place of those that were kept before. Paths that do not exist are left
// out. If none exists nothing is kept.
func (k Kept) Save(ctx context.Context, h *containers.Host, paths []string) error {
	in, out := io.Pipe()
	put := make(chan error, 1)
	go func() {
		err := k.Bucket.Put(ctx, k.Key, in)
		in.CloseWithError(err) // nothing reads from it any more
		put <- err
	}()
	err := save(ctx, h, paths, out)
	out.CloseWithError(err) // Put fails with err, or has read everything
	if failed := <-put; err == nil {
		err = failed
	}
	if errors.Is(err, errNothing) {
		err = k.Delete(ctx)
	}
	if err != nil {
		return fmt.Errorf("cannot keep files of a container: %w", err)
	}
	return nil
}

// errNothing is the error of a container that has none of the files.
var errNothing = errors.New("there is nothing to keep")

func save(ctx context.Context, h *containers.Host, paths []string, out io.Writer) error {
	pack, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err != nil {
		return err
	}
	limit := &text.Limit{W: pack, Left: keptMax}
	said := text.Tail{Limit: 1 << 10}
	p, err := h.Start(ctx, containers.Command{ID: worktree.NewScriptID(),
		Args: append([]string{"sh", "-c", saveScript, "sh"}, paths...), Timeout: keptWithin})
	if err != nil {
		return err
	}
	exit, err := p.Output(limit, &said)
	switch {
	case err != nil:
		return err
	case exit.Code == nothing:
		return errNothing
	case exit.Code != 0:
		return fmt.Errorf("tar ended with %d: %s", exit.Code, strings.Join(strings.Fields(said.String()), " "))
	case limit.Cut || exit.Stdout != keptMax-limit.Left:
		return fmt.Errorf("they have %d MiB; kept are at most %d", exit.Stdout>>20, keptMax>>20)
	}
	return pack.Close()
}

// Delete forgets the files.
func (k Kept) Delete(ctx context.Context) error { return k.Bucket.Delete(ctx, k.Key) }

// restored is the id of the command that restores files, by which a runner remembers that it was done.
const restored = "restored"

// restore puts the kept files into a new container, and reports whether there were any.
func (k Kept) restore(ctx context.Context, h *containers.Host) (bool, error) {
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	in, err := k.Bucket.Open(reading, k.Key)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot read the kept files: %w", err)
	}
	defer in.Close()
	unpack, err := gzip.NewReader(in)
	if err != nil {
		return false, fmt.Errorf("cannot read the kept files: %w", err)
	}
	tar := containers.Command{ID: restored, Args: []string{"tar", "-C", containers.WorkDir, "-xf", "-"}, Timeout: keptWithin}
	err = worktree.Untar(ctx, h, tar, func(ctx context.Context, w io.Writer) error {
		defer context.AfterFunc(ctx, cancel)()
		_, err := io.Copy(w, io.LimitReader(unpack, keptMax))
		return err
	})
	if err != nil {
		return false, fmt.Errorf("cannot restore the kept files: %w", err)
	}
	return true, nil
}
