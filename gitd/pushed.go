package gitd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gitd/grant"
	"github.com/ramus-dev/ramus/gitd/protocol"
)

// Push is a push that changes refs, maybe with options (git push -o).
type Push struct {
	Repo    string
	Grant   Grant // of the person who pushed
	Options []string
	Refs    []PushedRef // those that the push made or moved
}

// PushedRef is a ref that a push makes or moves.
type PushedRef struct {
	Name   string
	Commit Hash
	Old    Hash // before the push; empty if the push makes the ref
}

// Happened is called once when a push is done or has failed, and before the client learns of it, with the refs that the push
// made or moved. It shows lines by out, which is nil if the client cannot show them. If follow is not nil, it is called once when the
// refs that asked for work are gone, and the client has the report. It shows lines in the same way, and returns when there
// is no more to show, or when ctx ends because the client has gone.
type Happened func(ctx context.Context, p Push, out io.Writer) (follow func(ctx context.Context, out io.Writer))

// AskRefs begins the refs of pushes that ask for work by the name of the ref, for clients without options. Such a ref
// is removed when the push has happened.
const AskRefs = grant.OwnRefs + "ask/"

// ReviewRefs begins the refs of pushes whose commit is meant for a base, as refs/for/main. Such a ref is removed in the
// same way.
const ReviewRefs = "refs/for/"

// keepAlive is the time after which a client that waits for the work of its push gets an empty packet. It keeps the
// connection open, and shows that the client has gone.
const keepAlive = 5 * time.Second

// takesOptions reports whether a push by an access may have options. People's pushes may, and those of containers may
// not, because options start work.
func (s *Server) takesOptions(a access) bool {
	return s.Expect != nil && a.repo != nil && !a.repoConfig.Names("receive.advertisepushoptions")
}

// asksForWork reports whether the name of a ref asks for work.
func asksForWork(ref string) bool {
	return strings.HasPrefix(ref, AskRefs) || strings.HasPrefix(ref, ReviewRefs)
}

// sendGitReport sends the report of git. If work follows, the packet that ends it is left out. A client without side bands
// does not wait for the work, because it ends with the report. Some clients with side bands end with the report, too. The
// refs that asked for work are gone by then, so that the next push can ask again.
func (p *incoming) sendGitReport(ctx context.Context, report *gitReport) error {
	p.tellHappened(ctx, false)
	if p.follow != nil && p.request.Band > 0 {
		p.open = true
		report.held = bytes.TrimSuffix(report.held, []byte(protocol.FlushLine))
	}
	return report.send(p.out)
}

// wishes returns the push with the refs that it wants to make or move.
func (p *incoming) wishes() Push {
	wanted := Push{Repo: p.a.name, Grant: p.a.grant, Options: p.request.Options}
	for _, c := range p.request.Commands {
		if c.Deletes() {
			continue
		}
		ref := PushedRef{Name: c.Ref, Commit: Hash(c.New)}
		if !c.Creates() {
			ref.Old = Hash(c.Old)
		}
		wanted.Refs = append(wanted.Refs, ref)
	}
	return wanted
}

// changes returns the push with the refs that it made or moved. Another push may have moved them further.
func (p *incoming) changes(ctx context.Context) Push {
	done := p.wishes()
	done.Refs = slices.DeleteFunc(done.Refs, func(ref PushedRef) bool {
		if p.changed != nil {
			return !p.changed[ref.Name]
		}
		at, err := p.a.repo.readRef(ctx, ref.Name)
		return err != nil || at != ref.Commit
	})
	return done
}

// expect tells [Server.Expect] of the push.
func (p *incoming) expect(ctx context.Context) (err error) {
	if p.a.options {
		p.happened, err = p.s.Expect(ctx, p.wishes())
	}
	return err
}

// tellHappened tells once which refs the push has made or moved, also if the client has gone, and then removes those that
// asked for work. Until its report has been sent, the client sees lines.
func (p *incoming) tellHappened(ctx context.Context, reported bool) {
	asks := func(c protocol.Command) bool { return asksForWork(c.Ref) }
	if !p.a.options || p.happened == nil && !slices.ContainsFunc(p.request.Commands, asks) {
		return
	}
	ctx = context.WithoutCancel(ctx)
	var out io.Writer
	if p.request.Band > 0 && !reported {
		out = &progressWriter{out: p.out, limit: p.request.Band, gone: func() {}}
	}
	done := p.changes(ctx)
	if p.happened != nil {
		p.follow = p.happened(ctx, done, out)
		p.happened = nil
	}
	p.forget(ctx, done.Refs)
}

// showWork shows the work of the push after the report, and ends the answer. A client whose answer has ended sees none.
func (p *incoming) showWork(ctx context.Context) error {
	if !p.open {
		p.follow(ctx, nil)
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := &progressWriter{out: p.out, limit: p.request.Band, gone: cancel}
	stop := out.keepAlive(keepAlive)
	p.follow(ctx, out)
	stop()
	_, err := io.WriteString(p.out, protocol.FlushLine)
	return err
}

// forget removes the refs that asked for work. Their commits are young, so they stay until a run keeps them.
func (p *incoming) forget(ctx context.Context, refs []PushedRef) {
	for _, ref := range refs {
		if err := p.a.repo.ForgetAsk(ctx, ref); err != nil {
			p.s.log().Warn("cannot remove the ref of a push that asked for work", "repo", p.a.name, "ref", ref.Name, "err", err)
		}
	}
}

// ForgetAsk removes a ref below [AskRefs] or [ReviewRefs] that a push has made. It leaves other refs, and one that has moved.
func (r *Repo) ForgetAsk(ctx context.Context, ref PushedRef) error {
	if !asksForWork(ref.Name) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), forgetWithin)
	defer cancel()
	if err := r.Update(ctx, RefUpdate{Name: ref.Name, Old: &ref.Commit}); err != nil && !errors.Is(err, ErrConflict) {
		return err
	}
	return nil
}

// forgetWithin bounds the removal of a ref, also after the client has gone.
const forgetWithin = time.Minute

// progressWriter shows lines to the person at the client of a push. It is safe for concurrent use.
type progressWriter struct {
	limit int    // of a packet
	gone  func() // called when the client does not read any more

	mu  sync.Mutex // guards out
	out io.Writer
}

func (w *progressWriter) Write(b []byte) (int, error) {
	if err := w.send(protocol.AppendBand(nil, protocol.BandProgress, b, w.limit)); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (w *progressWriter) send(packets []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.out.Write(packets)
	if err != nil {
		w.gone()
	}
	return err
}

// keepAlive sends an empty packet again and again, until stop is called, which waits for the last one.
func (w *progressWriter) keepAlive(every time.Duration) (stop func()) {
	quit := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				if w.send([]byte{'0', '0', '0', '5', protocol.BandProgress}) != nil {
					return
				}
			}
		}
	})
	return func() {
		close(quit)
		sending.Wait()
	}
}
