package kubernetes

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/kube"
	"github.com/ramus-dev/ramus/containers/kubernetes/way"
)

const (
	// resumeWait bounds the time for which a link without a carrier is kept. An API server that is brought up to date
	// may be away for some minutes.
	resumeWait = way.SessionWait / 2
	// resumePause is the pause before the second attempt to carry a link again. It doubles up to resumeMaxPause.
	resumePause    = 50 * time.Millisecond
	resumeMaxPause = 2 * time.Second
	// byeWait bounds the time to tell the pod that a link is closed.
	byeWait = time.Second
)

// link is a connection to a runner. It outlives the streams of exec that carry it.
type link struct {
	*way.Stream
	e       *Engine
	w       *watch
	pod     string
	session string
	at      *kube.Exec // the first carrier
	cancel  context.CancelFunc
	done    chan struct{} // is closed when no goroutine of the link is left
	once    sync.Once
}

// errRefused is a pod's answer to a session.
var errRefused = errors.New("the pod refuses the connection")

// dial is Dial, but does not ask the API server why a pod does not answer.
func (e *Engine) dial(ctx context.Context, id string) (*link, error) {
	leave, err := e.tried.takeTurn(ctx, maxTried)
	if err != nil {
		return nil, err
	}
	defer leave()
	w := e.follow()
	if why := w.whyGone(id); why != "" {
		return nil, goneError(why)
	}
	if p := w.pod(id); p != nil {
		if why, ended := p.ended(); ended {
			return nil, goneError(why)
		}
	}
	l := &link{Stream: way.NewStream(), e: e, w: w, pod: id, session: rand.Text(), done: make(chan struct{})}
	x, position, err := l.open(ctx)
	if err != nil {
		return nil, err
	}
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l.at, l.cancel = x, cancel
	if err := w.add(id, l); err != nil {
		cancel()
		x.Close()
		return nil, err
	}
	go l.carry(base, x, position)
	return l, nil
}

// open makes a carrier of the link within tryWait, and returns the position up to which the pod has received.
func (l *link) open(ctx context.Context) (*kube.Exec, int64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, tryWait,
		fmt.Errorf("%w: the pod did not answer within %v", containers.ErrUnavailable, tryWait))
	defer cancel()
	text, err := json.Marshal(way.Opening{Session: l.session, Engine: l.e.identity(), Socket: way.Socket,
		Received: l.Received()})
	if err != nil {
		return nil, 0, err
	}
	words := &said{}
	x, err := l.e.exec(ctx, l.pod, wayName, true, words, way.Program, "way", "connect", string(text))
	if err != nil {
		return nil, 0, err
	}
	defer context.AfterFunc(ctx, func() { x.Close() })()
	kind, data, err := way.ReadFrame(x, nil)
	switch {
	case err != nil && ctx.Err() != nil:
		err = context.Cause(ctx)
	case err != nil:
		if text := words.String(); text != "" {
			err = fmt.Errorf("%w: %s", err, text)
		}
		err = fmt.Errorf("%w: %w", containers.ErrUnavailable, err)
	case kind == way.FrameRefused:
		err = fmt.Errorf("%w: %q", errRefused, data[:min(len(data), maxSaid)])
	case kind != way.FrameHello || len(data) != 8:
		err = fmt.Errorf("%w: it answers with a frame of kind %d", errRefused, kind)
	default:
		return x, int64(binary.BigEndian.Uint64(data)), nil
	}
	x.Close()
	return nil, 0, err
}

// carry has the link carried by one exec after another until it ends.
func (l *link) carry(ctx context.Context, x *kube.Exec, position int64) {
	defer close(l.done)
	defer l.w.drop(l.pod, l)
	for {
		err := l.Carry(x, position)
		if l.Ended() || ctx.Err() != nil {
			l.Fail(io.ErrUnexpectedEOF) // unless it ended in order
			return
		}
		l.e.log().Info("a connection broke and is made again", "pod", l.pod, "err", err)
		if x, position, err = l.again(ctx); err != nil {
			if ctx.Err() == nil {
				// Commands of the pod may go on, and nobody can follow them. So nothing of it is used again.
				l.w.drop(l.pod, l)
				l.w.giveUp(l.pod, "its connection was lost: "+err.Error())
			}
			l.Fail(fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, err))
			return
		}
	}
}

// again makes the next carrier. It tries until the pod is gone or does not know the link, or a time is over.
func (l *link) again(ctx context.Context) (*kube.Exec, int64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, resumeWait,
		fmt.Errorf("no connection to the pod was possible for %v", resumeWait))
	defer cancel()
	pause := resumePause
	for {
		x, position, err := l.openAgain(ctx)
		if err == nil {
			return x, position, nil
		}
		if errors.Is(err, errRefused) || errors.Is(l.e.orGone(ctx, l.pod, err), containers.ErrGone) {
			return nil, 0, err
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, resumeMaxPause)
		case <-ctx.Done():
			return nil, 0, errors.Join(context.Cause(ctx), err)
		}
	}
}

// openAgain is open, when fewer than maxTried other links are being carried again.
func (l *link) openAgain(ctx context.Context) (*kube.Exec, int64, error) {
	leave, err := l.e.retied.takeTurn(ctx, maxTried)
	if err != nil {
		return nil, 0, err
	}
	defer leave()
	return l.open(ctx)
}

// Close closes the connection, and tells the pod so. The runner keeps its commands.
func (l *link) Close() error {
	l.once.Do(func() {
		l.CloseWrite()
		l.Told(byeWait)
		l.lose()
		<-l.done
	})
	return nil
}

// lose ends the link at once.
func (l *link) lose() {
	l.Fail(io.ErrUnexpectedEOF)
	l.cancel()
}

// Patience returns the time for which the link may be silent because it is made again. See [containers.Host].
func (l *link) Patience() time.Duration { return resumeWait }

// LocalAddr returns the address of this side of the first connection to the API server.
func (l *link) LocalAddr() net.Addr { return l.at.LocalAddr() }

// RemoteAddr returns the address of the API server.
func (l *link) RemoteAddr() net.Addr { return l.at.RemoteAddr() }

// SetDeadline sets both deadlines.
func (l *link) SetDeadline(t time.Time) error {
	return cmp.Or(l.SetReadDeadline(t), l.SetWriteDeadline(t))
}
