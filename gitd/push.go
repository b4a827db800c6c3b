package gitd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/grant"
)

// UpstreamPush says what to do to a branch of upstream.
type UpstreamPush struct {
	// Upstream is who gets it; an empty URL means where the repository was imported.
	Upstream
	// Branch at upstream, without refs/heads/. Upstream.Branch does not count.
	Branch string
	// Commit the branch is to point to; empty: it is deleted.
	Commit Hash
	// Old is what the branch has to point to before: the zero Hash that it must not
	// be there. Nil: whatever it is, as long as nothing is lost by it: the push is a
	// fast-forward, or what is deleted is in this repository.
	Old *Hash
}

// upstreamRefs is where what upstream's branches were last seen at is kept.
const upstreamRefs = grant.OwnRefs + "upstream"

// saidMax bounds what an error quotes of upstream's reason for a refusal.
const saidMax = 1000

// PushUpstream sends a commit to a branch of upstream, never by force: what
// somebody else put there stays, and is [ErrConflict]. A branch that is there already
// as wanted, or gone, is no error, so that a push may be repeated after any failure.
// What upstream's own rules do not allow (a protected branch, a hook) is
// [ErrUpstreamRefused]; everything else that it may be worth to try again is
// [ErrUpstream]. It returns when upstream has acknowledged it.
// The credential is in no argument, URL or file.
func (r *Repo) PushUpstream(ctx context.Context, p UpstreamPush) error {
	if err := r.pushUpstream(ctx, p); err != nil {
		what := "push to"
		if p.Commit == "" {
			what = "delete"
		}
		return fmt.Errorf("cannot %s the branch %.200q of the upstream of %s: %w", what, p.Branch, r.name, err)
	}
	return nil
}

func (r *Repo) pushUpstream(ctx context.Context, p UpstreamPush) error {
	for _, h := range []*Hash{&p.Commit, p.Old} {
		if h != nil && *h != "" {
			if err := CheckHash(*h); err != nil {
				return err
			}
		}
	}
	if p.Commit != "" {
		if kind, err := r.objects.Kind(ctx, p.Commit); err != nil {
			return fmt.Errorf("commit %s: %w", p.Commit, err)
		} else if kind != "commit" {
			return fmt.Errorf("object %s is a %s, a branch needs a commit: %w", p.Commit, kind, ErrInvalid)
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.server.limits.Time, errUpstreamTime)
	defer cancel()
	src, err := r.upstream(ctx, p.Upstream, p.Branch)
	if err != nil {
		return err
	}
	return src.quietly(r.push(ctx, src, p))
}

// errUpstreamTime ends a conversation that upstream does not bring to an end.
var errUpstreamTime = fmt.Errorf("the conversation took too long: %w", ErrUpstream)

// upstream is the source that a branch is pushed to or fetched from.
func (r *Repo) upstream(ctx context.Context, up Upstream, branch string) (source, error) {
	if err := CheckRef("refs/heads/" + branch); err != nil {
		return source{}, err
	}
	if up.URL == "" {
		var err error
		if up.URL, err = r.Upstream(ctx); err != nil {
			return source{}, err
		}
		if up.URL == "" {
			return source{}, fmt.Errorf("it was created here and has no upstream: %w", ErrInvalid)
		}
	}
	src, err := up.source(ctx)
	if err == nil && src.local {
		err = r.server.refusePartial(ctx, src.where)
	}
	return src, err
}

// push looks where the branch is, and moves it from there and nowhere else.
func (r *Repo) push(ctx context.Context, src source, p UpstreamPush) error {
	tip, err := r.upstreamTip(ctx, src, p.Branch)
	if err != nil {
		return err
	}
	if tip == p.Commit {
		return nil
	}
	if err := r.mayMove(ctx, tip, p); err != nil {
		return err
	}
	// Git compares with the lease what upstream says at the push, and upstream what
	// git says with what it has under its lock.
	branch := "refs/heads/" + p.Branch
	said := &gitcmd.Tail{Max: gitcmd.StderrMax}
	out, failed := r.server.git.Output(ctx, gitcmd.Command{Repo: r.dir, Config: src.config, Env: src.env, Progress: said,
		Args: []string{"push", "--porcelain", "--no-verify", "--no-signed", "--no-follow-tags", "--recurse-submodules=no",
			"--force-with-lease=" + branch + ":" + string(tip), "--end-of-options", src.where, string(p.Commit) + ":" + branch}})
	if failed == nil {
		return nil
	}
	if ctx.Err() != nil {
		return failed
	}
	report := readReport(out, branch)
	// What upstream says of its reasons is words. Where its branch stands now is not:
	// an acknowledgement may have been lost, or somebody may have been faster.
	now, err := r.upstreamTip(ctx, src, p.Branch)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", failed, ErrUpstream)
	case now == p.Commit:
		return nil
	case now != tip || report.kind == refLocal:
		return fmt.Errorf("it is at %s by now, was at %s: %w", orNone(now), orNone(tip), ErrConflict)
	case report.kind == refRemote:
		return fmt.Errorf("%w: %s", ErrUpstreamRefused, report.reason(said))
	}
	return fmt.Errorf("%w: %w", failed, ErrUpstream)
}

func orNone(h Hash) string {
	if h == "" {
		return "nothing"
	}
	return string(h)
}

// mayMove returns ErrConflict where moving upstream's branch away from tip would
// lose what somebody put there.
func (r *Repo) mayMove(ctx context.Context, tip Hash, p UpstreamPush) error {
	if p.Old != nil && tip != *p.Old {
		return fmt.Errorf("it is at %s, expected at %s: %w", orNone(tip), orNone(*p.Old), ErrConflict)
	}
	if tip == "" || p.Commit == "" && p.Old != nil {
		return nil
	}
	if _, err := r.objects.Commit(ctx, tip); errors.Is(err, ErrNotFound) {
		return fmt.Errorf("it is at %s, which is not here: fetch it first: %w", tip, ErrConflict)
	} else if err != nil || p.Commit == "" {
		return err
	}
	if ok, err := r.reaches(ctx, tip, p.Commit); err != nil || ok {
		return err
	}
	return fmt.Errorf("it is at %s, which %s does not contain: %w", tip, p.Commit, ErrConflict)
}

// upstreamTip asks upstream where a branch is; "" when it is not there.
func (r *Repo) upstreamTip(ctx context.Context, src source, branch string) (Hash, error) {
	name := "refs/heads/" + branch
	out, err := r.server.git.Output(ctx, gitcmd.Command{Config: src.config, Env: src.env,
		Args: []string{"ls-remote", "--end-of-options", src.where, name}})
	if err != nil {
		if gitcmd.ExitCode(err) > 0 && ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", err, ErrUpstream)
		}
		return "", err
	}
	return readTip(out, name)
}

// readTip finds a ref in the output of git ls-remote, whose pattern matches the
// ends of names.
func readTip(out []byte, name string) (Hash, error) {
	for line := range bytes.Lines(out) {
		h, ref, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), "\t")
		if ref != name {
			continue
		}
		if err := CheckHash(Hash(h)); err != nil {
			return "", fmt.Errorf("upstream's %s: %w: %w", name, err, ErrUpstream)
		}
		return Hash(h), nil
	}
	return "", nil
}

// Who did not take a ref of a push.
const (
	refUnknown = iota // nobody said anything of it: the connection failed
	refLocal          // our git: the branch is not where it was expected
	refRemote         // upstream
)

// refReport is the line of `git push --porcelain` about one ref.
type refReport struct {
	kind int
	why  string
}

// readReport reads lines of the form "FLAG TAB FROM:TO TAB SUMMARY (REASON)".
func readReport(out []byte, branch string) refReport {
	for line := range bytes.Lines(out) {
		flag, rest, ok := strings.Cut(strings.TrimRight(string(line), "\r\n"), "\t")
		refs, summary, ok2 := strings.Cut(rest, "\t")
		_, to, ok3 := strings.Cut(refs, ":")
		if !ok || !ok2 || !ok3 || flag != "!" || to != branch {
			continue
		}
		what, why, _ := strings.Cut(summary, "]")
		why = strings.TrimSpace(why)
		if inner, ok := strings.CutPrefix(why, "("); ok {
			why = strings.TrimSuffix(inner, ")")
		}
		switch what {
		case "[rejected":
			return refReport{refLocal, why}
		case "[remote rejected":
			return refReport{refRemote, why}
		}
	}
	return refReport{}
}

// reason is what upstream said: its word about the ref, and the lines that its
// hooks wrote.
func (r refReport) reason(said *gitcmd.Tail) string {
	lines := []string{r.why}
	for line := range strings.SplitSeq(said.String(), "; ") {
		if line, ok := strings.CutPrefix(line, "remote:"); ok && strings.TrimSpace(line) != "" {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	text := strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(strings.Join(lines, "; "), "\ufffd"))
	if strings.Trim(text, "; ") == "" {
		return "it gave no reason"
	}
	if len(text) > saidMax {
		text = strings.ToValidUTF8(text[:saidMax], "") + "…"
	}
	return text
}

// FetchUpstream fetches a branch of upstream and returns its tip. An empty URL means where
// the repository was imported. The commits are
// kept, durably, by refs/ramus/upstream/BRANCH, which follows the branch wherever it
// goes. A branch that is not there is [ErrNotFound]; the ref stays then.
func (r *Repo) FetchUpstream(ctx context.Context, u Upstream, branch string) (Hash, error) {
	h, err := r.fetchUpstream(ctx, u, branch)
	if err != nil {
		return "", fmt.Errorf("cannot fetch the branch %.200q of the upstream of %s: %w", branch, r.name, err)
	}
	return h, nil
}

func (r *Repo) fetchUpstream(ctx context.Context, u Upstream, branch string) (Hash, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.server.limits.Time, errUpstreamTime)
	defer cancel()
	// Before the credential is asked for: it may not live as long as one waits here.
	done, err := turn(ctx, r.refreshing)
	if err != nil {
		return "", err
	}
	defer done()
	src, err := r.upstream(ctx, u, branch)
	if err != nil {
		return "", err
	}
	h, err := r.follow(ctx, src, branch)
	return h, src.quietly(gitcmd.ExplainFullDisk(err, r.dir))
}

// follow brings refs/ramus/upstream/BRANCH to where upstream's branch is.
func (r *Repo) follow(ctx context.Context, src source, branch string) (Hash, error) {
	name := upstreamRefs + "/" + branch
	if err := CheckRef(name); err != nil {
		return "", err
	}
	tip, err := r.upstreamTip(ctx, src, branch)
	if err != nil {
		return "", err
	}
	if tip == "" {
		return "", fmt.Errorf("it is not there: %w", ErrNotFound)
	}
	if have, err := r.ref(ctx, name); err == nil && have == tip {
		return tip, nil
	} else if err != nil && !errors.Is(err, ErrNotFound) {
		return "", err
	}
	if err := r.clearWay(ctx, name); err != nil {
		return "", err
	}
	bytes, err := gitcmd.FreeSpace(r.dir)
	if err != nil {
		return "", err
	}
	lines, done := src.listen(nil)
	defer done()
	err = r.server.fetch(ctx, src, fetch{dir: r.dir, specs: []string{"+refs/heads/" + branch + ":" + name}}, bytes, lines)
	if err != nil {
		if gitcmd.ExitCode(err) > 0 && ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", err, ErrUpstream)
		}
		return "", err
	}
	if err := syncfs(r.dir); err != nil {
		return "", err
	}
	return r.ref(ctx, name) // the branch may have moved on since it was asked for
}

// clearWay removes what would keep git from making a ref of that name: branches
// that upstream cannot have any more, because a and a/b cannot both exist.
func (r *Repo) clearWay(ctx context.Context, name string) error {
	refs, err := r.Refs(ctx, upstreamRefs)
	if err != nil {
		return err
	}
	var gone []RefUpdate
	for _, ref := range refs {
		if strings.HasPrefix(ref.Name, name+"/") || strings.HasPrefix(name, ref.Name+"/") {
			gone = append(gone, RefUpdate{Name: ref.Name})
		}
	}
	return r.Update(ctx, gone...)
}

// Descends tells whether commit is ancestor or has it in its history. One that is not
// here is [ErrNotFound].
func (r *Repo) Descends(ctx context.Context, commit, ancestor Hash) (bool, error) {
	ok, err := r.descends(ctx, commit, ancestor)
	if err != nil {
		return false, fmt.Errorf("cannot tell whether %.80s descends from %.80s in %s: %w", commit, ancestor, r.name, err)
	}
	return ok, nil
}

func (r *Repo) descends(ctx context.Context, commit, ancestor Hash) (bool, error) {
	for _, h := range []Hash{commit, ancestor} {
		if err := CheckHash(h); err != nil {
			return false, err
		}
		if _, err := r.objects.Commit(ctx, h); err != nil {
			return false, fmt.Errorf("%s: %w", h, err)
		}
	}
	return r.reaches(ctx, ancestor, commit)
}
