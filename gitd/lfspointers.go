package gitd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/lfs"
)

// LFSPointers returns the SHA-256 of each Git LFS object that a pointer in the repository names. It reads all small
// files of all commits, also of those that no ref reaches any more. Pointers that git forgets at the next prune count.
func (r *Repo) LFSPointers(ctx context.Context) (map[string]bool, error) {
	named, err := r.lfsPointers(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot read the Git LFS pointers of %s: %w", r.name, err)
	}
	return named, nil
}

func (r *Repo) lfsPointers(ctx context.Context) (map[string]bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	small, list := io.Pipe()
	sizes, all := io.Pipe()
	texts, contents := io.Pipe()
	git := &r.server.git
	// git lists all objects, the small files among them are the input of a second git, and pointers are looked for in
	// what that prints.
	failed := make(chan error, 3)
	go func() {
		err := git.Run(ctx, gitcmd.Command{Repo: r.dir, Out: all,
			Args: []string{"cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objectname) %(objecttype) %(objectsize)"}})
		all.CloseWithError(err)
		failed <- err
	}()
	go func() {
		err := pickSmall(sizes, list)
		sizes.CloseWithError(err)
		list.CloseWithError(err)
		failed <- err
	}()
	go func() {
		err := git.Run(ctx, gitcmd.Command{Repo: r.dir, Out: contents, In: small, Args: []string{"cat-file", "--batch", "--buffer"}})
		small.CloseWithError(err)
		contents.CloseWithError(err)
		failed <- err
	}()
	named := map[string]bool{}
	err := readPointers(texts, named)
	if err != nil {
		cancel()
	}
	texts.CloseWithError(err)
	for range cap(failed) {
		err = errors.Join(err, <-failed)
	}
	return named, err
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
func readPointers(from io.Reader, named map[string]bool) error {
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
			named[o.OID] = true
		}
	}
}
