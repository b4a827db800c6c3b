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

// UpstreamPush is a change of a branch of upstream.
type UpstreamPush struct {
	// Upstream is the receiver. An empty URL means the source of the import.
	Upstream
	// Branch is the branch of upstream, without refs/heads/. Upstream.Branch is not used.
	Branch string
	// Commit is the new commit of the branch. Empty deletes the branch.
	Commit Hash
	// Old is the commit at which the branch must be before. The zero Hash means that the branch must not exist.
	// Nil means any commit from which nothing is lost. Then the push is a fast-forward, or the deleted commit is
	// in this repository.
	Old *Hash
}

// upstreamRefs has the commits at which branches of upstream were last seen.
const upstreamRefs = grant.OwnRefs + "upstream"

// saidMax bounds the part of upstream's reason that an error quotes.
const saidMax = 1000

// PushUpstream pushes a commit to a branch of upstream, never by force. Returns [ErrConflict] if somebody else has
// moved the branch. It is no error if the branch is at the commit already, or gone, so a push may be repeated
// after any failure. Returns [ErrUpstreamRefused] if a rule of upstream, such as a protected branch or a hook,
// rejects the push, and [ErrUpstream] for other failures at which another attempt may help. PushUpstream returns
// when upstream has acknowledged the push. The credential is in no argument, URL or file.
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
	src, err := r.upstreamSource(ctx, p.Upstream, p.Branch)
	if err != nil {
		return err
	}
	return src.redactError(r.pushBranch(ctx, src, p))
}

// errUpstreamTime ends a conversation that takes too long.
var errUpstreamTime = fmt.Errorf("the conversation took too long: %w", ErrUpstream)

// upstreamSource returns the source to which a branch is pushed or from which it is fetched.
func (r *Repo) upstreamSource(ctx context.Context, up Upstream, branch string) (source, error) {
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
	src, err := up.resolveSource(ctx)
	if err == nil && src.local {
		err = r.server.refusePartial(ctx, src.location)
	}
	return src, err
}

// pushBranch asks for the commit of the branch, and moves the branch from there and nowhere else.
func (r *Repo) pushBranch(ctx context.Context, src source, p UpstreamPush) error {
	tip, err := r.upstreamTip(ctx, src, p.Branch)
	if err != nil {
		return err
	}
	if tip == p.Commit {
		return nil
	}
	if err := r.checkMove(ctx, tip, p); err != nil {
		return err
	}

	if err := r.sendLarge(ctx, p, tip); err != nil {
		return err
	}
	// Git compares the lease with the commit that upstream reports at the push. Upstream compares the commit that
	// git sends with the one that it has under its lock.
	branch := "refs/heads/" + p.Branch
	said := &gitcmd.Tail{Max: gitcmd.StderrMax}
	out, failed := r.server.git.Output(ctx, gitcmd.Command{Repo: r.dir, Config: src.config, Env: src.env, Progress: said,
		Args: []string{"push", "--porcelain", "--no-verify", "--no-signed", "--no-follow-tags", "--recurse-submodules=no",
			"--force-with-lease=" + branch + ":" + string(tip), "--end-of-options", src.location,
			string(p.Commit) + ":" + branch}})
	if failed == nil {
		return nil
	}
	if ctx.Err() != nil {
		return failed
	}

	report := readReport(out, branch)
	// The reasons of upstream are only text. The commit at which its branch is now is not. An acknowledgement may
	// have been lost, or another push may have been faster.
	now, err := r.upstreamTip(ctx, src, p.Branch)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", failed, ErrUpstream)
	case now == p.Commit:
		return nil
	case now != tip || report.kind == refLocal:
		return fmt.Errorf("it is at %s by now, was at %s: %w", hashOrNothing(now), hashOrNothing(tip), ErrConflict)
	case report.kind == refRemote:
		return fmt.Errorf("%w: %s", ErrUpstreamRefused, report.reason(said))
	}
	return fmt.Errorf("%w: %w", failed, ErrUpstream)
}

// sendLarge sends upstream the Git LFS objects of the commits that it gets. They are there before the pointers to them.
func (r *Repo) sendLarge(ctx context.Context, p UpstreamPush, tip Hash) error {
	if r.server.LFS == nil || p.Commit == "" {
		return nil
	}
	objects, err := r.newPointers(ctx, p.Commit, tip)
	if err != nil || len(objects) == 0 {
		return err
	}
	return r.server.LFS.Send(ctx, r, p.Upstream, objects)
}

func hashOrNothing(h Hash) string {
	if h == "" {
		return "nothing"
	}
	return string(h)
}

// checkMove returns [ErrConflict] if a move of upstream's branch away from tip would lose somebody's commits.
func (r *Repo) checkMove(ctx context.Context, tip Hash, p UpstreamPush) error {
	if p.Old != nil && tip != *p.Old {
		return fmt.Errorf("it is at %s, expected at %s: %w", hashOrNothing(tip), hashOrNothing(*p.Old), ErrConflict)
	}
	if tip == "" || p.Commit == "" && p.Old != nil {
		return nil
	}
	if _, err := r.objects.Commit(ctx, tip); errors.Is(err, ErrNotFound) {
		return fmt.Errorf("it is at %s, which is not here: fetch it first: %w", tip, ErrConflict)
	} else if err != nil || p.Commit == "" {
		return err
	}
	if ok, err := r.isAncestor(ctx, tip, p.Commit); err != nil || ok {
		return err
	}
	return fmt.Errorf("it is at %s, which %s does not contain: %w", tip, p.Commit, ErrConflict)
}

// upstreamTip asks upstream for the commit of a branch. Returns "" if there is no such branch.
func (r *Repo) upstreamTip(ctx context.Context, src source, branch string) (Hash, error) {
	name := "refs/heads/" + branch
	out, err := r.server.git.Output(ctx, gitcmd.Command{Config: src.config, Env: src.env,
		Args: []string{"ls-remote", "--end-of-options", src.location, name}})
	if err != nil {
		if gitcmd.ExitCode(err) > 0 && ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", err, ErrUpstream)
		}
		return "", err
	}
	return readTip(out, name)
}

// readTip finds a ref in the output of git ls-remote, whose pattern matches the ends of names.
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

// The party that rejected a ref of a push.
const (
	refUnknown = iota // nobody reported on it, because the connection failed
	refLocal          // our git, because the branch was not where it was expected
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

// reason returns the reason that upstream gave for the ref, and the lines that its hooks wrote.
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

// FetchUpstream fetches a branch of upstream and returns its tip. An empty URL means the source of the import. The
// ref refs/ramus/upstream/BRANCH keeps the commits, durably. It follows the branch wherever it goes. Returns
// [ErrNotFound] if there is no such branch. The ref stays then.
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
	// The turn comes before the credential, which may not live as long as the wait.
	done, err := takeTurn(ctx, r.refreshing)
	if err != nil {
		return "", err
	}
	defer done()
	src, err := r.upstreamSource(ctx, u, branch)
	if err != nil {
		return "", err
	}
	h, err := r.followBranch(ctx, src, branch)
	return h, src.redactError(gitcmd.ExplainFullDisk(err, r.dir))
}

// followBranch moves refs/ramus/upstream/BRANCH to the commit of upstream's branch.
func (r *Repo) followBranch(ctx context.Context, src source, branch string) (Hash, error) {
	name := upstreamRefs + "/" + branch
	if err := CheckRef(name); err != nil {
		return "", err
	}
	tip, err := r.upstreamTip(ctx, src, branch)
	if err != nil {
		return "", err
	}
	if tip == "" {
		return "", fmt.Errorf("it does not exist: %w", ErrNotFound)
	}
	if have, err := r.readRef(ctx, name); err == nil && have == tip {
		return tip, nil
	} else if err != nil && !errors.Is(err, ErrNotFound) {
		return "", err
	}
	if err := r.removeBlocking(ctx, name); err != nil {
		return "", err
	}

	bytes, err := gitcmd.FreeSpace(r.dir)
	if err != nil {
		return "", err
	}
	lines, done := src.progressWriter(nil)
	defer done()
	err = r.server.runFetch(ctx, src, fetchRequest{dir: r.dir, specs: []string{"+refs/heads/" + branch + ":" + name}},
		bytes, lines)
	if err != nil {
		if gitcmd.ExitCode(err) > 0 && ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", err, ErrUpstream)
		}
		return "", err
	}
	if err := syncfs(r.dir); err != nil {
		return "", err
	}
	return r.readRef(ctx, name) // the branch may have moved since
}

// removeBlocking removes refs that would keep git from making a ref of that name. Upstream cannot have these
// branches any more, because a and a/b cannot both exist.
func (r *Repo) removeBlocking(ctx context.Context, name string) error {
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

// Descends reports whether commit is ancestor or has it in its history. Returns [ErrNotFound] if one of them is
// not in the repository.
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
	return r.isAncestor(ctx, ancestor, commit)
}
