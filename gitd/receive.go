package gitd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/gitd/protocol"
	"github.com/ramus-dev/ramus/internal/durable"
)

const (
	// commandsBytes bounds the commands of one push, which are held in memory. A mirror of 50,000
	// branches fits.
	commandsBytes = 16 << 20
	// reportMax bounds what git may answer to them.
	reportMax = 32 << 20
	// drainMax is how much of a refused push is read to its end although it
	// is not wanted, so that the client comes to read why.
	drainMax = 1 << 30
)

// judge says why a command is not allowed, or "".
func (a access) judge(c protocol.Command) string {
	if CheckRef(c.Ref) != nil {
		return "not a valid ref name"
	}
	switch {
	case !a.grant.Writes(c.Ref):
		return "not allowed: " + a.scope()
	case c.Deletes() && !a.grant.Delete:
		return "not allowed: this token may not delete refs"
	case !c.Creates() && !c.Deletes() && !a.grant.Force && !strings.HasPrefix(c.Ref, "refs/heads/"):
		// Outside refs/heads/ git knows no fast-forward: each change is a forced one.
		return "not allowed: this token may not move tags and notes, only add them"
	}
	return ""
}

// scope tells what the grant may write.
func (a access) scope() string {
	if n := len(a.grant.Write); n > 3 {
		return fmt.Sprintf("this token may write only %s and %d more", strings.Join(a.grant.Write[:3], ", "), n-3)
	}
	return "this token may write only " + strings.Join(a.grant.Write, ", ")
}

// receive serves one push: the client's commands and pack are read from in,
// the answer goes to out. Nothing of the repository is touched before all
// commands were found to be allowed and the whole pack was scanned. ended, if
// the transport tells where the client's input ends, is called there. The
// error is one that the client could not be told.
func (s *Server) receive(ctx context.Context, a access, in io.Reader, ended func(), out io.Writer) error {
	store := &pack.Spool{Dir: filepath.Join(a.dir, "objects")}
	defer store.Close()
	t := pack.NewTap(in, store, commandsBytes)
	// An HTTP client sends all it has before it reads the answer.
	drain := func() {
		if ended != nil {
			t.Drain(drainMax)
			ended()
		}
	}
	p, err := protocol.ParsePush(t)
	if err != nil {
		drain()
		return s.refusePush(a, p, err, nil, out)
	}
	if len(p.Commands) == 0 {
		return nil
	}
	reasons := make([]string, len(p.Commands))
	refused := false
	for i, c := range p.Commands {
		reasons[i] = a.judge(c)
		if reasons[i] == "" && s.Secrets.String(c.Ref) != c.Ref {
			reasons[i] = "its name holds the value of a secret"
		}
		refused = refused || reasons[i] != ""
	}
	if refused {
		drain()
		return s.refusePush(a, p, nil, reasons, out)
	}
	objects, begin, memory := int64(0), t.Consumed(), pack.Stats{}.Memory()
	if p.Packed() {
		t.Limit = begin + s.limits.PackBytes
		st, err := pack.Scan(t, p.HashLen, pack.Limits{Bytes: s.limits.PackBytes, Objects: s.limits.Objects, Object: s.limits.ObjectBytes})
		if err == nil {
			err = t.AtEnd(ended != nil)
		}
		if err != nil {
			drain()
			return s.refusePush(a, p, err, nil, out)
		}
		s.log().Debug("pack scanned", "repo", a.name, "objects", st.Objects, "declared", st.Declared)
		objects, memory = st.Objects, st.Memory()
	}
	if err := t.Flush(); err != nil {
		return s.refusePush(a, p, err, nil, out)
	}
	if ended != nil {
		ended()
	}
	give, err := s.memory.acquire(ctx, memory)
	if err != nil {
		return s.refusePush(a, p, err, nil, out)
	}
	defer give()
	if sent, ok := store.Bytes(); ok && ordinaryPush(p) && objects > 0 {
		if taken, err := s.take(ctx, a, p, sent[begin:]); err != nil {
			s.log().Warn("push failed", "repo", a.name, "subject", a.grant.Subject, "err", err)
			return s.refusePush(a, p, err, nil, out)
		} else if taken {
			s.log().Info("push", "repo", a.name, "subject", a.grant.Subject, "refs", 1)
			return tellPush(p, out, "", protocol.AppendLine(protocol.AppendLine(nil, "unpack ok\n"), "ok ", p.Commands[0].Ref, "\n"))
		}
	}
	body, err := store.Reader()
	if err != nil {
		return s.refusePush(a, p, err, nil, out)
	}
	report := &report{band: p.Band}
	git := gitcmd.Command{
		Args:   []string{"receive-pack", "--stateless-rpc", a.dir},
		Config: pushConfig,
		// As in upload: git gets a pipe.
		In: struct{ io.Reader }{body},
	}
	var watch *watch
	if p.Packed() && !s.Secrets.Empty() {
		if watch, err = s.watch(ctx, a, p); err != nil {
			s.log().Error("push refused", "repo", a.name, "err", err)
			return s.refusePush(a, p, err, nil, out)
		}
		git = watch.child(git)
	}
	if r, err := s.Repo(a.name); err == nil {
		r.pushing.RLock()
		defer r.pushing.RUnlock()
		r.locking.RLock()
		defer r.locking.RUnlock()
		defer r.foreign()()
		defer func() {
			r.objects.Packs.Changed()
			if p.Packed() && report.accepted() {
				r.wrote()
			}
		}()
	}
	err = s.serveChild(ctx, a, git, out, report.read)
	if watch != nil {
		err = errors.Join(err, watch.end(err == nil && report.accepted()))
		if len(watch.leaks) > 0 {
			s.log().Warn("push refused: it holds secrets", "repo", a.name, "subject", a.grant.Subject, "leaks", watch.leaks)
			if a.leaked != nil {
				a.leaked(watch.leaks)
			}
			return errors.Join(err, report.release(out))
		}
	}
	if err == nil {
		err = syncPush(a.dir, p)
	}
	if err != nil {
		s.log().Warn("push failed", "repo", a.name, "subject", a.grant.Subject, "err", err)
		return s.refusePush(a, p, err, nil, out)
	}
	s.log().Info("push", "repo", a.name, "subject", a.grant.Subject, "refs", len(p.Commands))
	if a.repo != nil && slices.ContainsFunc(p.Commands, protocol.Command.Deletes) {
		a.repo.view.deleted(ctx)
	}
	return report.release(out)
}

// syncPush returns when what git has taken is on disk. It has written out the pack and
// its index; what names them, and the refs, is left.
func syncPush(dir string, p protocol.PushRequest) error {
	if err := durable.Folder(filepath.Join(dir, pack.Folder)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	names := make([]string, len(p.Commands))
	for i, c := range p.Commands {
		names[i] = c.Ref
	}
	return syncRefs(dir, names...)
}

var errChildTime = object.Refuse(ErrTooLarge, "git took longer than allowed")

// refusePush answers a push that was not done: cause is what was wrong with
// all of it, reasons what was with single commands.
func (s *Server) refusePush(a access, p protocol.PushRequest, cause error, reasons []string, out io.Writer) error {
	unpack := "ok"
	if cause != nil {
		unpack = object.ClientText(cause, "the server could not take the push")
		s.log().Info("push refused", "repo", a.name, "subject", a.grant.Subject, "err", cause)
	}
	if len(p.Commands) == 0 || !p.Report {
		if cause == nil {
			cause = object.Refuse(ErrDenied, "%s", a.scope())
		}
		return cause
	}
	body := protocol.AppendLine(nil, "unpack ", unpack, "\n")
	for i, c := range p.Commands {
		var why string
		switch {
		case reasons == nil:
			why = unpack
		case reasons[i] != "":
			why = reasons[i]
		default:
			why = "not done: another ref of this push is not allowed"
		}
		if len(c.Ref) > object.MaxRef {
			continue // it would not fit into the answer
		}
		body = protocol.AppendLine(body, "ng ", c.Ref, " ", why, "\n")
	}
	if reasons != nil {
		s.log().Info("push refused", "repo", a.name, "subject", a.grant.Subject, "refs", len(p.Commands))
	}
	said := ""
	if cause != nil {
		said = "error: " + unpack + "\n"
	}
	return tellPush(p, out, said, body)
}

// tellPush sends the lines of a report, after what is said to whoever sits before the client.
func tellPush(p protocol.PushRequest, out io.Writer, said string, lines []byte) error {
	b := append(lines, protocol.FlushLine...)
	if p.Band > 0 {
		var msg []byte
		if said != "" {
			msg = protocol.AppendBand(msg, protocol.BandProgress, []byte(said), p.Band)
		}
		b = append(protocol.AppendBand(msg, protocol.BandData, b, p.Band), protocol.FlushLine...)
	}
	_, err := out.Write(b)
	return err
}

// report passes git's progress on at once and keeps its report until it is
// released: what it says is not true before it is on disk.
type report struct {
	band int
	held []byte
}

// read takes git's whole answer from r.
func (h *report) read(r io.Reader, out io.Writer) error {
	lines := protocol.NewReader(r)
	for {
		raw, kind, err := lines.NextRaw()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read git's report: %w", err)
		}
		// An empty data packet keeps the connection alive while git works.
		if h.band > 0 && kind == protocol.Data && len(raw) > 4 && (raw[4] != protocol.BandData || len(raw) == 5) {
			if _, err := out.Write(raw); err != nil {
				return fmt.Errorf("cannot send git's progress: %w", err)
			}
			continue
		}
		if len(h.held)+len(raw) > reportMax {
			return fmt.Errorf("git's report is longer than %d bytes: %w", reportMax, ErrTooLarge)
		}
		h.held = append(h.held, raw...)
	}
}

// accepted tells whether git says of any ref that it moved it; true also where
// the client wanted no report, and nothing is known.
func (h *report) accepted() bool {
	if len(h.held) == 0 {
		return true
	}
	var inner bytes.Buffer
	outer := protocol.NewReader(bytes.NewReader(h.held))
	for {
		raw, kind, err := outer.NextRaw()
		if err != nil {
			break
		}
		switch {
		case h.band == 0:
			inner.Write(raw)
		case kind == protocol.Data && len(raw) > 5:
			inner.Write(raw[5:])
		}
	}
	lines := protocol.NewReader(&inner)
	for {
		line, kind, err := lines.Next()
		if err != nil {
			return false
		}
		if kind == protocol.Data && bytes.HasPrefix(line, []byte("ok ")) {
			return true
		}
	}
}

func (h *report) release(out io.Writer) error {
	_, err := out.Write(h.held)
	return err
}
