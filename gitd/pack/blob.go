package pack

import (
	"bufio"
	"context"
	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"io"
	"os"
	"sync"
)

// blobStream is the output of a git cat-file. A read that ends before the whole blob was
// delivered is an error and not an EOF.
type blobStream struct {
	in     *bufio.Reader
	out    *os.File
	p      *gitcmd.Process
	cancel context.CancelFunc
	left   int64
	once   sync.Once
}

func (b *blobStream) Read(p []byte) (int, error) {
	n, err := b.in.Read(p)
	b.left -= int64(n)
	if err == io.EOF && b.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Close ends git. Read has reported all failures by then.
func (b *blobStream) Close() error {
	b.once.Do(func() {
		b.out.Close()
		b.cancel()
		b.p.Wait()
	})
	return nil
}
