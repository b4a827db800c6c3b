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
	"github.com/ramus-dev/ramus/internal/durable"
)

const (
	// commandsMax and commandsBytes bound the commands of one push, which are
	// held in memory: a mirror of 50,000 branches fits.
	commandsMax   = 50_000
	commandsBytes = 16 << 20
	// reportMax bounds what git may answer to them.
	reportMax = 32 << 20
	// drainMax is how much of a refused push is read to its end although it
	// is not wanted, so that the client comes to read why.
	drainMax = 1 << 30
)

// command is one ref change that a push asks for (gitprotocol-pack).
type command struct {
	old, new string // hexadecimal; all zeros: no such ref
	ref      string
}

func (c command) creates() bool { return isZero(c.old) }
func (c command) deletes() bool { return isZero(c.new) }

func isZero(hex string) bool { return strings.Trim(hex, "0") == "" }

// pushRequest is the part of a push in front of its pack.
type pushRequest struct {
	commands []command
	report   bool // the client wants a report at all
	band     int  // longest side-band packet; 0: no side bands
	hashLen  int
	unusual  bool // there is more to it than commands: only git knows what it means
}

// packed says whether a pack follows.
func (p pushRequest) packed() bool {
	for _, c := range p.commands {
		if !c.deletes() {
			return true
		}
	}
	return false
}

// parsePush reads commands and push options up to where the pack begins. A
// request without any command, which clients send to try their credentials,
// gives none.
func parsePush(r io.Reader) (pushRequest, error) {
	var p pushRequest
	lines := pktReader{r: r}
	options := false
	for {
		line, kind, err := lines.next()
		if err == io.EOF && len(p.commands) == 0 {
			return p, nil
		}
		if err != nil {
			return p, pushError(err)
		}
		if kind == pktFlush {
			break
		}
		if kind != pktData {
			return p, object.Refuse(ErrInvalid, "unexpected packet among the commands")
		}
		if rest, ok := bytes.CutPrefix(line, []byte("shallow ")); ok {
			if !isObjectName(strings.TrimSuffix(string(rest), "\n")) {
				return p, object.Refuse(ErrInvalid, "malformed shallow line")
			}
			p.unusual = true
			continue
		}
		text, caps, _ := strings.Cut(string(line), "\x00")
		if len(p.commands) == 0 {
			for c := range strings.FieldsSeq(caps) {
				switch c {
				case "report-status", "report-status-v2":
					p.report = true
				case "side-band-64k":
					p.band = pktMax
				case "side-band":
					p.band = max(p.band, 1000)
				case "push-options":
					options, p.unusual = true, true
				}
			}
		}
		c, err := parseCommand(strings.TrimSuffix(text, "\n"))
		if err != nil {
			return p, err
		}
		p.hashLen = len(c.old) / 2
		if p.commands = append(p.commands, c); len(p.commands) > commandsMax {
			return p, object.Refuse(ErrTooLarge, "more than %d refs in one push", commandsMax)
		}
	}
	for n := 0; options && len(p.commands) > 0; n++ {
		_, kind, err := lines.next()
		if err != nil {
			return p, pushError(err)
		}
		if kind == pktFlush {
			break
		}
		if n > 1000 {
			return p, object.Refuse(ErrTooLarge, "too many push options")
		}
	}
	return p, nil
}

func pushError(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return object.Refuse(ErrInvalid, "the push ends within its commands")
	case errors.Is(err, errPktLine):
		return object.Refuse(ErrInvalid, "malformed packet among the commands")
	}
	return err
}

func parseCommand(line string) (command, error) {
	old, rest, _ := strings.Cut(line, " ")
	new, ref, ok := strings.Cut(rest, " ")
	if !ok || !isObjectName(old) || !isObjectName(new) || len(old) != len(new) {
		if strings.HasPrefix(line, "push-cert") {
			return command{}, object.Refuse(ErrInvalid, "signed pushes are not accepted")
		}
		return command{}, object.Refuse(ErrInvalid, "malformed command")
	}
	return command{old, new, ref}, nil
}

func isObjectName(s string) bool { return CheckHash(Hash(s)) == nil }

// judge says why a command is not allowed, or "".
func (a access) judge(c command) string {
	if CheckRef(c.ref) != nil {
		return "not a valid ref name"
	}
	switch {
	case !a.grant.writes(c.ref):
		return "not allowed: " + a.scope()
	case c.deletes() && !a.grant.Delete:
		return "not allowed: this token may not delete refs"
	case !c.creates() && !c.deletes() && !a.grant.Force && !strings.HasPrefix(c.ref, "refs/heads/"):
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
	p, err := parsePush(t)
	if err != nil {
		drain()
		return s.refusePush(a, p, err, nil, out)
	}
	if len(p.commands) == 0 {
		return nil
	}
	reasons := make([]string, len(p.commands))
	refused := false
	for i, c := range p.commands {
		reasons[i] = a.judge(c)
		if reasons[i] == "" && s.Secrets.String(c.ref) != c.ref {
			reasons[i] = "its name holds the value of a secret"
		}
		refused = refused || reasons[i] != ""
	}
	if refused {
		drain()
		return s.refusePush(a, p, nil, reasons, out)
	}
	objects, begin, memory := int64(0), t.Consumed(), pack.Stats{}.Memory()
	if p.packed() {
		t.Limit = begin + s.limits.PackBytes
		st, err := pack.Scan(t, p.hashLen, pack.Limits{Bytes: s.limits.PackBytes, Objects: s.limits.Objects, Object: s.limits.ObjectBytes})
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
	give, err := s.memory.take(ctx, memory)
	if err != nil {
		return s.refusePush(a, p, err, nil, out)
	}
	defer give()
	if sent, ok := store.Bytes(); ok && p.ordinary() && objects > 0 {
		if taken, err := s.take(ctx, a, p, sent[begin:]); err != nil {
			s.log().Warn("push failed", "repo", a.name, "subject", a.grant.Subject, "err", err)
			return s.refusePush(a, p, err, nil, out)
		} else if taken {
			s.log().Info("push", "repo", a.name, "subject", a.grant.Subject, "refs", 1)
			return p.tell(out, "", appendPkt(appendPkt(nil, "unpack ok\n"), "ok ", p.commands[0].ref, "\n"))
		}
	}
	body, err := store.Reader()
	if err != nil {
		return s.refusePush(a, p, err, nil, out)
	}
	report := &report{band: p.band}
	git := gitcmd.Command{
		Args:   []string{"receive-pack", "--stateless-rpc", a.dir},
		Config: pushConfig,
		// As in upload: git gets a pipe.
		In: struct{ io.Reader }{body},
	}
	var watch *watch
	if p.packed() && !s.Secrets.Empty() {
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
			if p.packed() && report.accepted() {
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
	s.log().Info("push", "repo", a.name, "subject", a.grant.Subject, "refs", len(p.commands))
	if a.repo != nil && slices.ContainsFunc(p.commands, command.deletes) {
		a.repo.view.deleted(ctx)
	}
	return report.release(out)
}

// syncPush returns when what git has taken is on disk. It has written out the pack and
// its index; what names them, and the refs, is left.
func syncPush(dir string, p pushRequest) error {
	if err := durable.Folder(filepath.Join(dir, pack.Folder)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	names := make([]string, len(p.commands))
	for i, c := range p.commands {
		names[i] = c.ref
	}
	return syncRefs(dir, names...)
}

var errChildTime = object.Refuse(ErrTooLarge, "git took longer than allowed")

// refusePush answers a push that was not done: cause is what was wrong with
// all of it, reasons what was with single commands.
func (s *Server) refusePush(a access, p pushRequest, cause error, reasons []string, out io.Writer) error {
	unpack := "ok"
	if cause != nil {
		unpack = object.ClientText(cause, "the server could not take the push")
		s.log().Info("push refused", "repo", a.name, "subject", a.grant.Subject, "err", cause)
	}
	if len(p.commands) == 0 || !p.report {
		if cause == nil {
			cause = object.Refuse(ErrDenied, "%s", a.scope())
		}
		return cause
	}
	body := appendPkt(nil, "unpack ", unpack, "\n")
	for i, c := range p.commands {
		var why string
		switch {
		case reasons == nil:
			why = unpack
		case reasons[i] != "":
			why = reasons[i]
		default:
			why = "not done: another ref of this push is not allowed"
		}
		if len(c.ref) > refMax {
			continue // it would not fit into the answer
		}
		body = appendPkt(body, "ng ", c.ref, " ", why, "\n")
	}
	if reasons != nil {
		s.log().Info("push refused", "repo", a.name, "subject", a.grant.Subject, "refs", len(p.commands))
	}
	said := ""
	if cause != nil {
		said = "error: " + unpack + "\n"
	}
	return p.tell(out, said, body)
}

// tell sends the lines of a report, after what is said to whoever sits before the client.
func (p pushRequest) tell(out io.Writer, said string, lines []byte) error {
	b := append(lines, flushPkt...)
	if p.band > 0 {
		var msg []byte
		if said != "" {
			msg = appendBand(msg, bandProgress, []byte(said), p.band)
		}
		b = append(appendBand(msg, bandData, b, p.band), flushPkt...)
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
	lines := pktReader{r: r}
	for {
		raw, kind, err := lines.nextRaw()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read git's report: %w", err)
		}
		// An empty data packet keeps the connection alive while git works.
		if h.band > 0 && kind == pktData && len(raw) > 4 && (raw[4] != bandData || len(raw) == 5) {
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
	outer := pktReader{r: bytes.NewReader(h.held)}
	for {
		raw, kind, err := outer.nextRaw()
		if err != nil {
			break
		}
		switch {
		case h.band == 0:
			inner.Write(raw)
		case kind == pktData && len(raw) > 5:
			inner.Write(raw[5:])
		}
	}
	lines := pktReader{r: &inner}
	for {
		line, kind, err := lines.next()
		if err != nil {
			return false
		}
		if kind == pktData && bytes.HasPrefix(line, []byte("ok ")) {
			return true
		}
	}
}

func (h *report) release(out io.Writer) error {
	_, err := out.Write(h.held)
	return err
}
