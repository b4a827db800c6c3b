package prepare

import (
	"io"
	"sync"
)

// joined writes two streams into one writer.
type joined struct {
	mu sync.Mutex // guards w
	w  io.Writer
}

func (j *joined) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.w.Write(p)
}
