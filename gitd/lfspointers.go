package gitd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/lfs"
)

// LFSPointers returns the SHA-256 of each Git LFS object that a pointer in the repository names. It reads all small
// files of all commits, also of those that no ref reaches any more. Pointers that git forgets at the next prune count.
func (r *Repo) LFSPointers(ctx context.Context) (map[string]bool, error) {
	named := map[string]bool{}
	err := r.lfsPointers(ctx, func(o lfs.Object) { named[o.OID] = true },
		gitcmd.Command{Args: []string{"cat-file", "--batch-all-objects", "--unordered", listObjects}})
	if err != nil {
		return nil, fmt.Errorf("cannot read the Git LFS pointers of %s: %w", r.name, err)
	}
	return named, nil
}

// listObjects is the option of git cat-file for a list of names, types and sizes.
const listObjects = "--batch-check=%(objectname) %(objecttype) %(objectsize)"

// newPointers returns the Git LFS objects that pointers in the history of a commit name, without those that the known
// upstream branches and tip have already.
func (r *Repo) newPointers(ctx context.Context, commit, tip Hash) ([]lfs.Object, error) {
	known := []string{"rev-list", "--objects", "--no-object-names", string(commit), "--not", "--glob=" + upstreamRefs}
	if tip != "" {
		known = append(known, string(tip))
	}
	seen := map[lfs.Object]bool{}
	err := r.lfsPointers(ctx, func(o lfs.Object) { seen[o] = true },
		gitcmd.Command{Args: known}, gitcmd.Command{Args: []string{"cat-file", listObjects, "--buffer"}})
	if err != nil {
		return nil, fmt.Errorf("cannot read the Git LFS pointers of %s: %w", commit, err)
	}
	return slices.Collect(maps.Keys(seen)), nil
}

// lfsPointers calls found for the pointers among some objects. chain lists the names, types and sizes of these. Each of its
// commands reads the output of the one before.
func (r *Repo) lfsPointers(ctx context.Context, found func(lfs.Object), chain ...gitcmd.Command) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	git := &r.server.git
	failed := make(chan error, len(chain)+2)
	// run starts a git, which reads from in, and returns its output.
	run := func(c gitcmd.Command, in *io.PipeReader) *io.PipeReader {
		out, to := io.Pipe()
		c.Repo, c.Out = r.dir, to
		if in != nil {
			c.In = in
		}
		go func() {
			err := git.Run(ctx, c)
			if in != nil {
				in.CloseWithError(err)
			}
			to.CloseWithError(err)
			failed <- err
		}()
		return out
	}
	var sizes *io.PipeReader
	for _, c := range chain {
		sizes = run(c, sizes)
	}
	// The small files among them are the input of another git, and its output is searched for pointers.
	small, list := io.Pipe()
	go func() {
		err := pickSmall(sizes, list)
		sizes.CloseWithError(err)
		list.CloseWithError(err)
		failed <- err
	}()
	texts := run(gitcmd.Command{Args: []string{"cat-file", "--batch", "--buffer"}}, small)
	err := readPointers(texts, found)
	if err != nil {
		cancel()
	}
	texts.CloseWithError(err)
	for range cap(failed) {
		err = errors.Join(err, <-failed)
	}
	return err
}

// pickSmall copies the names of the files that are small enough for a pointer.
func pickSmall(from io.Reader, to io.Writer) error {
	lines, out := bufio.NewScanner(from), bufio.NewWriter(to)
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), " ")
		kind, size, _ := strings.Cut(rest, " ")
		n, err := strconv.ParseInt(size, 10, 64)
		if err != nil {
			return fmt.Errorf("git lists %.80q", lines.Text())
		}
		if kind != "blob" || n > lfs.PointerMax || n < pointerMin {
			continue
		}
		if _, err := out.WriteString(name + "\n"); err != nil {
			return err
		}
	}
	return errors.Join(lines.Err(), out.Flush())
}

// pointerMin is the number of bytes that the shortest pointer has.
const pointerMin = 100

// readPointers reads the output of git cat-file --batch.
func readPointers(from io.Reader, found func(lfs.Object)) error {
	in := bufio.NewReaderSize(from, 64<<10)
	for {
		head, err := in.ReadString('\n')
		if err == io.EOF && head == "" {
			return nil
		}
		if err != nil {
			return err
		}
		fields := strings.Fields(head)
		if len(fields) == 2 && fields[1] == "missing" {
			continue // it was removed meanwhile
		}
		if len(fields) != 3 {
			return fmt.Errorf("git prints %.80q", head)
		}
		n, err := strconv.Atoi(fields[2])
		if err != nil || n < 0 || n > lfs.PointerMax {
			return fmt.Errorf("git prints %.80q", head)
		}
		text := make([]byte, n+1)
		if _, err := io.ReadFull(in, text); err != nil {
			return err
		}
		if o, ok := lfs.ParsePointer(bytes.TrimSuffix(text, []byte("\n"))); ok {
			found(o)
		}
	}
}
