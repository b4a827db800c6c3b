package clone

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// keepAlive is the time after which a client that wants no progress gets an empty packet while git
	// works, as from git itself.
	keepAlive = 5 * time.Second
	// followBuffer is the number of bytes that a follower reads at once.
	followBuffer = 32 << 10
)

// emptyPacket tells a client that more is coming.
var emptyPacket = []byte("0005\x01")

// followBuffers are the buffers of followers.
var followBuffers = sync.Pool{New: func() any { return new([followBuffer]byte) }}

// send sends the reply, as far as it is there and then as it grows.
func (rd *replyReader) send(ctx context.Context, progress bool, out ReplyWriter) error {
	if rd.own == nil {
		f := follower{rd: rd, progress: progress, out: out, lastSent: time.Now()}
		return f.follow(ctx)
	}
	p := &reply{pieces: []replyPiece{{file: rd.own, n: rd.size}}}
	if progress && len(rd.last) > 0 {
		p.pieces = []replyPiece{{file: rd.own, n: rd.packAt}, {data: rd.last},
			{file: rd.own, off: rd.packAt, n: rd.size - rd.packAt}}
	}
	out.SetLength(p.size())
	return p.writeTo(out)
}

// follower sends a reply while git makes it.
type follower struct {
	rd       *replyReader
	progress bool // the client wants progress
	out      ReplyWriter
	at       int64 // bytes of the reply that were sent
	told     int   // bytes of progress that were sent
	signs    int   // of keptReply.signs, how many were handled
	lastSent time.Time
}

// follow sends the reply until it is whole or cannot become whole.
func (f *follower) follow(ctx context.Context) error {
	buf := followBuffers.Get().(*[followBuffer]byte)
	defer followBuffers.Put(buf)
	defer context.AfterFunc(ctx, f.rd.wakeReaders)()
	for {
		to, packets, more, err := f.next(ctx)
		if !more {
			return err
		}
		if packets != nil {
			f.lastSent = time.Now()
			if _, err := f.out.Write(packets); err != nil {
				return fmt.Errorf("cannot send an answer: %w", err)
			}
			continue
		}
		if err := f.copyTo(to, buf[:]); err != nil {
			return err
		}
	}
}

// next waits for something to send. That is either packets of progress, or the reply up to the position to.
// Without more, the reply has been sent, or err says why it was not.
func (f *follower) next(ctx context.Context) (to int64, packets []byte, more bool, err error) {
	rd := f.rd
	rd.mu.Lock()
	defer rd.mu.Unlock()
	rd.at[rd] = f.at
	if rd.large {
		rd.moved.Broadcast()
	}
	for f.at == rd.size && f.signs == rd.signs && !rd.whole && rd.err == nil && ctx.Err() == nil {
		rd.moved.Wait()
	}
	if f.at == rd.size && f.signs == rd.signs {
		err := rd.err
		if err == nil && !rd.whole {
			err = context.Cause(ctx)
		}
		return 0, nil, false, err
	}

	to = rd.size
	switch {
	case f.at < rd.packAt:
		to = rd.packAt // progress belongs after it
	case f.signs != rd.signs:
		// The file ends between two packets.
		if rd.endAt > 0 {
			to = rd.endAt
		}
		if f.at >= to {
			f.signs = rd.signs
		}
		if f.at == to { // beyond the end it is too late for progress
			packets = f.pendingProgress()
		}
	}
	return to, packets, true, nil
}

// pendingProgress returns packets that tell the client of progress, or nil. The caller holds the lock of the reply.
func (f *follower) pendingProgress() []byte {
	if f.progress && len(f.rd.told) > f.told {
		packets := f.rd.told[f.told:]
		f.told = len(f.rd.told)
		return packets
	}
	if time.Since(f.lastSent) > keepAlive {
		return emptyPacket
	}
	return nil
}

// copyTo sends the reply up to the position to.
func (f *follower) copyTo(to int64, buf []byte) error {
	rd := f.rd
	for f.at < to {
		n, err := rd.file.ReadAt(buf[:min(to-f.at, int64(len(buf)))], f.at)
		if n == 0 {
			return fmt.Errorf("cannot read an answer: %w", err)
		}
		if _, err := f.out.Write(buf[:n]); err != nil {
			return fmt.Errorf("cannot send an answer: %w", err)
		}
		f.at, f.lastSent = f.at+int64(n), time.Now()
		rd.mu.Lock()
		if rd.at[rd] = f.at; rd.large {
			rd.moved.Broadcast()
		}
		rd.mu.Unlock()
	}
	return nil
}
