package gitd

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

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
	// drainMax bounds the part of a refused push that is read although it is not wanted, so that the client
	// comes to read the reason.
	drainMax = 1 << 30
)

// incoming is one push in progress.
type incoming struct {
	s       *Server
	a       access
	request protocol.PushRequest
	out     io.Writer
	// changed are the refs that were changed, as a set. If it is nil, the refs themselves tell.
	changed map[string]bool
	// happened is called when the push is done or has failed, see [Server.Expect]. It may be nil.
	happened Happened
	// follow is called after the report, see [Happened]. It may be nil.
	follow func(ctx context.Context, out io.Writer)
	// open is set if the answer goes on after the report.
	open bool
}

// receive serves one push. It reads the commands and the pack of the client from in and writes the answer to
// out. It changes nothing in the repository before all commands were found to be allowed and the whole pack was
// scanned. If the transport tells where the input of the client ends, ended is not nil and is called there.
// receive returns an error that the client could not be told.
func (s *Server) receive(ctx context.Context, a access, in io.Reader, ended func(), out io.Writer) error {
	p := &incoming{s: s, a: a, out: out}
	err := p.takePush(ctx, in, ended)
	if err == nil {
		s.tellChanged(a.name)
		err = s.settleBase(ctx, a)
	}
	if p.follow != nil {
		err = errors.Join(err, p.showWork(ctx))
	}
	return err
}

// tellChanged tells the owner of the server that refs of a repository may have changed.
func (s *Server) tellChanged(repo string) {
	if s.Changed != nil {
		s.Changed(repo)
	}
}

// takePush reads a push and does it.
func (p *incoming) takePush(ctx context.Context, in io.Reader, ended func()) error {
	s, a := p.s, p.a
	store := &pack.Spool{Dir: filepath.Join(a.dir, "objects")}
	defer store.Close()
	input := pushInput{tap: pack.NewTap(in, store, commandsBytes), ended: ended}
	request, err := protocol.ParsePush(input.tap)
	p.request = request
	if err != nil {
		input.drain()
		return p.refuse(err, nil)
	}
	if len(request.Commands) == 0 {
		return nil
	}
	if reasons := p.checkCommands(); reasons != nil {
		input.drain()
		return p.refuse(nil, reasons)
	}
	if err := s.checkDuty(ctx, a.name); err != nil {
		input.drain()
		return p.refuse(err, nil)
	}

	begin := input.tap.Consumed()
	stats, err := input.scanPack(request, s.limits)
	if err == nil {
		err = input.tap.Flush()
	}
	if err != nil {
		return p.refuse(err, nil)
	}
	if ended != nil {
		ended()
	}
	if request.Packed() {
		s.log().Debug("pack scanned", "repo", a.name, "objects", stats.Objects, "declared", stats.Declared)
	}

	release, err := s.memory.acquire(ctx, stats.Memory())
	if err != nil {
		return p.refuse(err, nil)
	}
	defer release()

	if err := p.expect(ctx); err != nil {
		return p.refuse(err, nil)
	}
	defer p.tellHappened(ctx, true)

	// Git receives the push, unless it is of the simple kind that the server receives itself.
	if sent, ok := store.Bytes(); ok && stats.Objects > 0 {
		received, err := p.receiveInProcess(ctx, sent[begin:])
		if err != nil {
			return p.fail(err)
		}
		if received {
			s.log().Info("push", "repo", a.name, "subject", a.grant.Subject, "refs", 1)
			p.changed = map[string]bool{request.Commands[0].Ref: true}
			p.tellHappened(ctx, false)
			lines := protocol.AppendLine(nil, "unpack ok\n")
			return p.sendReport("", protocol.AppendLine(lines, "ok ", request.Commands[0].Ref, "\n"))
		}
	}

	body, err := store.Reader()
	if err != nil {
		return p.refuse(err, nil)
	}
	return p.receivePack(ctx, body)
}

// receivePack lets git receive the push.
func (p *incoming) receivePack(ctx context.Context, body io.Reader) error {
	s, a := p.s, p.a
	report := &gitReport{band: p.request.Band}
	git := gitcmd.Command{
		Args:   []string{"receive-pack", "--stateless-rpc", a.dir},
		Config: pushConfig,
		// As in uploadPack, git gets a pipe.
		In: struct{ io.Reader }{body},
	}
	var scan *secretScan
	if p.request.Packed() && !s.Secrets.Empty() {
		var err error
		if scan, err = p.startScan(ctx); err != nil {
			s.log().Error("push refused", "repo", a.name, "err", err)
			return p.refuse(err, nil)
		}
		git = scan.addHook(git)
	}

	end := func() {}
	if r, err := s.Repo(a.name); err == nil {
		end = sync.OnceFunc(r.expectGitPush(p.request, report))
		defer end()
	}
	err := s.serveChild(ctx, a, git, p.out, report.read)
	if err == nil && p.request.Report {
		p.changed = report.changed()
	}
	if scan != nil {
		err = errors.Join(err, scan.end(err == nil && report.accepted()))
		if len(scan.leaks) > 0 {
			s.log().Warn("push refused: it holds secrets", "repo", a.name, "subject", a.grant.Subject, "leaks", scan.leaks)
			if a.leaked != nil {
				a.leaked(scan.leaks)
			}
			return errors.Join(err, report.send(p.out))
		}
	}
	if err == nil {
		err = syncPush(a.dir, p.request)
	}
	if err == nil {
		err = s.settle(ctx, a.name)
	}
	if err != nil {
		return p.fail(err)
	}
	s.log().Info("push", "repo", a.name, "subject", a.grant.Subject, "refs", len(p.request.Commands))
	if a.repo != nil && slices.ContainsFunc(p.request.Commands, protocol.Command.Deletes) {
		a.repo.followDeleted(ctx)
	}
	end()
	return p.sendGitReport(ctx, report)
}

// expectGitPush takes the locks of the repository for a push that git receives. end releases them and makes
// the new objects known.
func (r *Repo) expectGitPush(p protocol.PushRequest, report *gitReport) (end func()) {
	r.pushing.RLock()
	r.locking.RLock()
	endForeign := r.expectForeign()
	return func() {
		r.objects.Packs.Changed()
		if p.Packed() && report.accepted() {
			r.countWrite()
		}
		endForeign()
		r.locking.RUnlock()
		r.pushing.RUnlock()
	}
}

// pushInput is the input of a push.
type pushInput struct {
	tap   *pack.Tap
	ended func() // as for receive
}

// drain reads the rest of a push that is refused. An HTTP client sends all it has before it reads the answer.
func (in pushInput) drain() {
	if in.ended != nil {
		in.tap.Drain(drainMax)
		in.ended()
	}
}

// scanPack scans the pack of a push. It drains the input if the pack is refused. The statistics of a push
// without a pack are zero.
func (in pushInput) scanPack(p protocol.PushRequest, l Limits) (pack.Stats, error) {
	if !p.Packed() {
		return pack.Stats{}, nil
	}
	in.tap.Limit = in.tap.Consumed() + l.PackBytes
	stats, err := pack.Scan(in.tap, p.HashLen, pack.Limits{Bytes: l.PackBytes, Objects: l.Objects, Object: l.ObjectBytes})
	if err == nil {
		err = in.tap.AtEnd(in.ended != nil)
	}
	if err != nil {
		in.drain()
	}
	return stats, err
}

// checkCommands returns the reasons why commands are refused, one for each command. Returns nil if all are
// allowed.
func (p *incoming) checkCommands() []string {
	reasons := make([]string, len(p.request.Commands))
	refused := false
	for i, c := range p.request.Commands {
		reasons[i] = p.a.refusalOf(c)
		if reasons[i] == "" && p.s.Secrets.String(c.Ref) != c.Ref {
			reasons[i] = "its name holds the value of a secret"
		}
		refused = refused || reasons[i] != ""
	}
	if !refused {
		return nil
	}
	return reasons
}

// syncPush returns when the result of a push that git received is on disk. Git has written out the pack and its
// index. Their names and the refs are left.
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

// fail answers a push that failed on the server.
func (p *incoming) fail(err error) error {
	p.s.log().Warn("push failed", "repo", p.a.name, "subject", p.a.grant.Subject, "err", err)
	return p.refuse(err, nil)
}

// refuse answers a push that was not done. cause is the fault of the whole push, reasons are those of single
// commands.
func (p *incoming) refuse(cause error, reasons []string) error {
	commands, log := p.request.Commands, p.s.log().With("repo", p.a.name, "subject", p.a.grant.Subject)
	unpack := "ok"
	if cause != nil {
		unpack = object.ClientText(cause, "the server could not take the push")
		log.Info("push refused", "err", cause)
	}
	if len(commands) == 0 || !p.request.Report {
		if cause == nil {
			cause = object.Refuse(ErrDenied, "%s", p.a.describeScope())
		}
		return cause
	}

	lines := protocol.AppendLine(nil, "unpack ", unpack, "\n")
	for i, c := range commands {
		var reason string
		switch {
		case reasons == nil:
			reason = unpack
		case reasons[i] != "":
			reason = reasons[i]
		default:
			reason = "not done: another ref of this push is not allowed"
		}
		if len(c.Ref) > object.MaxRef {
			continue // it would not fit into the answer
		}
		lines = protocol.AppendLine(lines, "ng ", c.Ref, " ", reason, "\n")
	}
	if reasons != nil {
		log.Info("push refused", "refs", len(commands))
	}

	message := ""
	if cause != nil {
		message = "error: " + unpack + "\n"
	}
	return p.sendReport(message, lines)
}

// sendReport sends the lines of a report, after a message for the person at the client.
func (p *incoming) sendReport(message string, lines []byte) error {
	b := append(lines, protocol.FlushLine...)
	if band := p.request.Band; band > 0 {
		var msg []byte
		if message != "" {
			msg = protocol.AppendBand(msg, protocol.BandProgress, []byte(message), band)
		}
		b = append(protocol.AppendBand(msg, protocol.BandData, b, band), protocol.FlushLine...)
	}
	_, err := p.out.Write(b)
	return err
}
