package terminal

import (
	"context"
	"sync"
)

// maxTyping is how many bytes a viewer may type ahead of the program. A page sends at most half of it at once.
const maxTyping = 2 << 20

// typing has the frames of a viewer that the program has not taken yet. Other frames must not wait for them. A program that
// prints what it is given waits for acknowledgements before it takes more.
type typing struct {
	ready chan struct{} // has an element if something may have changed

	mu       sync.Mutex // guards all below
	frames   []Frame
	bytes    int  // of the frames, and of the one that the program is taking
	dropping bool // until the program has taken everything, so that no input has a hole
}

// cost returns the number of bytes by which a frame counts for the bound.
func cost(f Frame) int { return len(f.Data) + 64 }

// add adds a frame. Returns false if it is dropped, and whether it is the first of those.
func (t *typing) add(f Frame) (kept, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bytes == 0 {
		t.dropping = false
	}
	if t.dropping {
		return false, false
	}
	if t.bytes+cost(f) > maxTyping {
		t.dropping = true
		return false, true
	}
	t.frames = append(t.frames, f)
	t.bytes += cost(f)
	select {
	case t.ready <- struct{}{}:
	default:
	}
	return true, false
}

// next waits for the next frame. The caller calls done when the program has taken it.
func (t *typing) next(ctx context.Context) (Frame, error) {
	for {
		t.mu.Lock()
		if len(t.frames) > 0 {
			f := t.frames[0]
			t.frames = t.frames[1:]
			t.mu.Unlock()
			return f, nil
		}
		t.mu.Unlock()
		select {
		case <-t.ready:
		case <-ctx.Done():
			return Frame{}, context.Cause(ctx)
		}
	}
}

// done notes that the program has taken a frame.
func (t *typing) done(f Frame) {
	t.mu.Lock()
	t.bytes -= cost(f)
	t.mu.Unlock()
}
