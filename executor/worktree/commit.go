package worktree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// After a command its files are committed. The tree of the commit is a function of the files and of the .gitignore
// and .gitattributes among them. git makes the commit inside the container, with a git directory of ramus's own
// (scripts/commit.sh), or the host makes it from the upper layer of a bound work tree (snapshot.go). The trees are
// equal.
//
// No work is lost on the way. A push by somebody else during the command is merged here. If both changed the same
// lines the branch keeps the push, and the work is kept at refs/ramus/conflicts. A file that no push may bring is
// left out and kept as an artifact.

// stagePrefix begins the refs for commits that a caller's container pushes and the host merges.
func stagePrefix(c record.Caller) string { return gitd.StageRefs + "/" + c.Slug() }

// commitTries bounds how often a commit is tried. Each failure changes the next try.
const commitTries = 16

// maxCommitOutput bounds the output of the commit script, in bytes.
const maxCommitOutput = 1 << 20

// messageMax bounds a commit message that git gets in a variable, in bytes. Linux takes 128 KiB.
const messageMax = 100 << 10

// maxListing bounds a list of changed files, in bytes.
const maxListing = 64 << 20

// leftMax bounds how many files are left out by name. With more, all changes are left out.
const leftMax = 1000

// Committed is the result of a commit.
type Committed struct {
	Tip       gitd.Hash // of the branch
	At        gitd.Hash // the commit of the container's work tree; another one if a push was merged
	Notes     string    // for people
	Artifacts bool      // there are files in /artifacts
	Left      []LeftOut // files that the commit does not hold, and that were not returned before
}

// LeftOut is a file of the work tree that no commit may hold.
type LeftOut struct {
	Path string
	Why  string // with the limit
}

func LeftText(left []LeftOut) string {
	const shown = 5
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s not committed: ", len(left), plural(len(left), "file was", "files were"))
	for i, f := range left {
		if i == shown {
			fmt.Fprintf(&b, "; and %d more", len(left)-shown)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s (%s)", text.Clip(strconv.Quote(f.Path), 300), f.Why)
	}
	return b.String()
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// Uncommitted is the error of a commit that did not reach the branch, although the command has ended.
type Uncommitted struct {
	Reason record.Reason
	Text   string
	Left   []LeftOut // files that are kept nowhere yet
}

func (u *Uncommitted) Error() string { return u.Text }

// Commit commits the container's work tree to the branch. before is the commit that the work tree was at. paths limit
// the commit. Without paths it is of everything. Commit returns after the index is written, so that commands that run
// in the container find it. The work tree stays as it is, also if a push was merged on the server. The error is an
// *Uncommitted if the changes could not be committed.
func (t *Tree) Commit(ctx context.Context, h *containers.Host, before gitd.Hash, author gitd.Person, message string, paths []string) (Committed, error) {
	defer t.awaitIndex()
	return t.CommitLast(ctx, h, before, author, message, paths)
}

// CommitLast is Commit for a container in which nothing runs any more. It does not wait for the index. The next command brings the work
// tree to a tip that it does not have.
func (t *Tree) CommitLast(ctx context.Context, h *containers.Host, before gitd.Hash, author gitd.Person, message string, paths []string) (Committed, error) {
	t.takeLeaks() // of pushes of the command's own
	if len(paths) == 0 {
		if made, ok := t.snapshot(ctx, before, author, message); ok {
			return made, nil
		}
	}
	c := &gitCommit{t: t, h: h, before: before, author: author, message: message, paths: paths}
	return c.run(ctx)
}

// CommitAll is Commit for a commit that has all of the paths or is not made. No file of them is left out.
func (t *Tree) CommitAll(ctx context.Context, h *containers.Host, before gitd.Hash, author gitd.Person, message string,
	paths []string) (Committed, error) {
	defer t.awaitIndex()
	t.takeLeaks() // of pushes of the command's own
	c := &gitCommit{t: t, h: h, before: before, author: author, message: message, paths: paths, all: true}
	return c.run(ctx)
}

// gitCommit is a commit that git makes inside the container.
type gitCommit struct {
	t       *Tree
	h       *containers.Host
	before  gitd.Hash // that the container's work tree was at
	author  gitd.Person
	message string
	paths   []string // limit the commit; none for everything
	all     bool     // nothing is left out
	runID   string   // the run of the ref of a conflict; empty for the run at work

	// How it is tried, changed by failures.
	flat   bool        // without commits of the command's own
	apart  bool        // without the objects of the container's repository
	after  remedy      // the last that was tried after a push was refused
	leave  []LeftOut   // stay as they are in the parent
	clean  []gitd.Leak // were taken out of the files
	cleans int         // how often
}

// remedy is a change after a refused push. Each is tried once, in this order.
type remedy int

const (
	remedyNone  remedy = iota
	remedyWait         // the server may have been busy
	remedyNames        // files with names or sizes that no push may bring are left out
	remedyFlat         // as remedyNames, without commits of the command's own, which may hold these files
	remedyApart        // without the objects of the container's repository, and without deltas
	remedyRules        // files that git itself reads are left out
	remedyAll          // all files are left out
)

// busyPause is the wait before a refused push is tried again.
const busyPause = 2 * time.Second

// run tries until the commit is on the branch or nothing is left to try.
func (c *gitCommit) run(ctx context.Context) (Committed, error) {
	var last error
	for range commitTries {
		tip, err := c.t.Tip(ctx)
		if err != nil && !errors.Is(err, ErrBranchGone) {
			return Committed{}, err
		}

		// The container cannot push to a branch that moved or is gone.
		stage := ""
		if tip != c.before {
			stage = stagePrefix(c.t.Caller) + "/" + record.NewToken()
		}
		out, err := c.script(ctx, tip, stage)
		if err == nil {
			return c.land(ctx, out, tip, stage)
		}
		last = err
		if again, err := c.adapt(ctx, last, tip); err != nil {
			last = errors.Join(last, err)
			break
		} else if !again {
			break
		}
	}
	c.t.setKnown("")
	return Committed{}, c.refused(ctx, last)
}

// script runs scripts/commit.sh.
func (c *gitCommit) script(ctx context.Context, tip gitd.Hash, stage string) (commitOutput, error) {
	env := append(c.t.scriptEnv(c.author, c.before, tip),
		"RAMUS_MESSAGE="+text.Clip(strings.ToValidUTF8(c.message, "\uFFFD"), messageMax))
	if stage != "" {
		env = append(env, "RAMUS_STAGE="+stage)
		c.t.setStaging(stage)
		defer c.t.setStaging("")
	}
	if tip == "" {
		env = append(env, "RAMUS_FETCH=refs/heads/"+c.t.Base)
	}
	if c.flat {
		env = append(env, "RAMUS_FLAT=1")
	}
	if c.apart {
		env = append(env, "RAMUS_APART=1")
	}
	var stdin strings.Builder
	switch {
	case len(c.leave) > 0:
		env = append(env, "RAMUS_LEAVE=1")
		for _, f := range c.leave {
			stdin.WriteString(f.Path + "\x00")
		}
	default:
		if seed := c.t.seedIndex(ctx, c.before); seed != nil {
			env = append(env, "RAMUS_SEED=1")
			stdin.Write(seed)
		}
	}
	stdout := text.Tail{Limit: maxCommitOutput}
	stderr, err := c.t.scriptTo(ctx, c.h, commitScript, env, strings.NewReader(stdin.String()), &stdout, c.paths...)
	out := parseCommitOutput(stdout.String())
	out.notes = stderr
	return out, err
}

func (t *Tree) setStaging(ref string) {
	t.mu.Lock()
	t.staging = ref
	t.mu.Unlock()
}

// commitOutput are the records that scripts/commit.sh and scripts/sync.sh print.
type commitOutput struct {
	tip       gitd.Hash
	index     string
	left      []string
	artifacts bool
	loose     bool // the container's repository is not at the tip
	notes     string
}

func parseCommitOutput(text string) (out commitOutput) {
	for record := range strings.SplitSeq(text, "\x00") {
		name, value, _ := strings.Cut(record, " ")
		switch name {
		case "tip", "staged":
			out.tip = gitd.Hash(value)
		case "index":
			out.index = value
		case "left":
			out.left = append(out.left, value)
		case "artifacts":
			out.artifacts = true
		case "loose":
			out.loose = true
		}
	}
	return out
}

// adapt changes how the commit is tried after a failure. It returns false if nothing is left to change.
func (c *gitCommit) adapt(ctx context.Context, failed error, tip gitd.Hash) (again bool, err error) {
	var s *ScriptError
	if !errors.As(failed, &s) {
		return false, nil
	}
	leaks := c.t.takeLeaks()
	switch {
	case s.Code == scriptNoGit, s.Code == scriptMidst:
		return false, nil
	case s.Code == scriptPush && len(leaks) > 0:
		if c.cleans++; c.cleans > cleanings {
			return false, nil
		}
		return true, c.cleanLeaks(ctx, tip, leaks)
	case s.Code == scriptPush:
		if now, err := c.t.Tip(ctx); err == nil && now != tip || errors.Is(err, ErrBranchGone) && tip != "" {
			return true, nil // somebody else was faster
		}
		return c.remedy(ctx, tip)
	}
	if c.apart {
		return false, nil
	}
	c.apart = true
	return true, nil
}

// remedy prepares the next try after a push was refused. It returns false after the last.
func (c *gitCommit) remedy(ctx context.Context, tip gitd.Hash) (again bool, err error) {
	for c.after < remedyAll {
		c.after++
		if c.all && c.after != remedyWait && c.after != remedyApart {
			continue
		}
		switch c.after {
		case remedyWait:
			select {
			case <-time.After(busyPause):
			case <-ctx.Done():
				return false, context.Cause(ctx)
			}
			return true, nil
		case remedyApart:
			if c.apart {
				continue
			}
			c.apart = true
			return true, nil
		case remedyFlat:
			if len(c.leave) == 0 || c.flat {
				continue
			}
			c.flat = true
			return true, nil
		default:
			leave, err := c.judge(ctx, tip, c.after)
			if err != nil {
				return false, err
			}
			if len(leave) > len(c.leave) {
				c.leave = leave
				return true, nil
			}
		}
	}
	return false, nil
}

// cleanLeaks takes secrets out of the files that would be committed.
func (c *gitCommit) cleanLeaks(ctx context.Context, tip gitd.Hash, leaks []gitd.Leak) error {
	c.flat = true
	listed, err := c.list(ctx, tip)
	if err != nil {
		return fmt.Errorf("cannot take secrets out of the work tree: %w", err)
	}
	names := make([]string, len(listed))
	for i, l := range listed {
		names[i] = l.path
	}
	c.clean = append(c.clean, leaks...)
	return c.t.cleanTree(ctx, c.h, names, leaks)
}

// change is a path that a commit would change.
type change struct {
	path string
	mode uint32 // zero if the file is deleted
}

// list returns the paths that differ from the commit before the command, its own commits included.
func (c *gitCommit) list(ctx context.Context, tip gitd.Hash) ([]change, error) {
	env := append(c.t.scriptEnv(c.author, c.before, tip), "RAMUS_MESSAGE=", "RAMUS_LIST=1", "RAMUS_FLAT=1")
	if c.apart {
		env = append(env, "RAMUS_APART=1")
	}
	var listed strings.Builder
	out := &text.Limit{W: &listed, Left: maxListing}
	if _, err := c.t.scriptTo(ctx, c.h, commitScript, env, nil, out, c.paths...); err != nil {
		return nil, err
	}
	if out.Cut {
		return nil, fmt.Errorf("the names of the changed files have more than %d MiB: %w", maxListing>>20, gitd.ErrTooLarge)
	}
	return parseRaw(listed.String()), nil
}

// parseRaw reads the output of git diff-index -z --raw: ":100644 100755 HASH HASH M", the path.
func parseRaw(text string) (list []change) {
	fields := strings.Split(text, "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		modes := strings.Fields(strings.TrimPrefix(fields[i], ":"))
		if len(modes) != 5 {
			return list
		}
		mode, err := strconv.ParseUint(modes[1], 8, 32)
		if err != nil {
			return list
		}
		list = append(list, change{path: fields[i+1], mode: uint32(mode)})
	}
	return list
}

// judge finds the files that a remedy leaves out.
func (c *gitCommit) judge(ctx context.Context, tip gitd.Hash, r remedy) ([]LeftOut, error) {
	listed, err := c.list(ctx, tip)
	if err != nil {
		return nil, err
	}
	files, err := c.h.Files(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot look at the changed files: %w", err)
	}
	defer files.Close()
	defer context.AfterFunc(ctx, func() { files.Close() })()

	var left, rules, all []LeftOut
	sizes := make(map[string]int64)
	var total int64
	for _, l := range listed {
		if l.mode == 0 {
			continue
		}
		if info, err := files.Lstat(path.Join(c.t.dir(), l.path)); err == nil && info.Mode().IsRegular() {
			sizes[l.path] = info.Size()
		}
		all = append(all, LeftOut{l.path, "git refuses the commit with it"})
		if err := c.t.store.Git.Commitable(l.path, l.mode, sizes[l.path]); err != nil {
			left = append(left, LeftOut{l.path, leftWhy(err)})
			continue
		}
		total += sizes[l.path]
		if base := strings.ToLower(path.Base(l.path)); strings.HasPrefix(base, ".gitm") || strings.HasPrefix(base, ".gita") {
			rules = append(rules, LeftOut{l.path, "git refuses its content"})
		}
	}
	if max := c.t.store.Git.PackBytes(); total > max && len(left) == 0 {
		left = tooMuch(all, sizes, total, max)
	}

	switch {
	case r == remedyAll, len(left) > leftMax:
		return all, nil
	case r == remedyRules:
		return append(left, rules...), nil
	}
	return left, nil
}

// leftWhy returns the reason for which a file is left out, without the kind of the error.
func leftWhy(err error) string {
	text := err.Error()
	for _, kind := range []error{gitd.ErrInvalid, gitd.ErrTooLarge} {
		text = strings.TrimSuffix(text, ": "+kind.Error())
	}
	return text
}

// tooMuch returns the largest files, so that the rest is small enough for one push.
func tooMuch(all []LeftOut, sizes map[string]int64, total, max int64) (left []LeftOut) {
	bySize := slices.Clone(all)
	slices.SortStableFunc(bySize, func(a, b LeftOut) int { return cmp.Compare(sizes[b.Path], sizes[a.Path]) })
	for _, f := range bySize {
		if total <= max {
			break
		}
		left = append(left, LeftOut{f.Path,
			fmt.Sprintf("%d bytes; git.limits.pack_bytes allows %d for all changes together", sizes[f.Path], max)})
		total -= sizes[f.Path]
	}
	return left
}

// land moves the branch to a commit that reached the server, if it is not there yet.
func (c *gitCommit) land(ctx context.Context, out commitOutput, tip gitd.Hash, stage string) (Committed, error) {
	t := c.t
	made := Committed{Notes: out.notes, Artifacts: out.artifacts, Left: c.fresh(ctx, out.left)}
	if len(c.clean) > 0 {
		made.Notes += leakNote(c.clean)
	}
	t.setIndexed(out.index)
	made.At = out.tip
	if stage != "" {
		var err error
		if made.Tip, err = c.merge(ctx, tip, stage); err != nil {
			return Committed{}, err
		}
		t.setKnown(out.tip)
		if made.Tip == out.tip {
			t.settle(ctx, made.Tip, len(c.paths) == 0)
		}
		return made, nil
	}

	// The ref on the server counts, not the container's output.
	after, err := t.Tip(ctx)
	if err != nil {
		return Committed{}, err
	}
	made.Tip = after
	if out.loose || out.tip != after {
		t.setKnown("")
		return made, nil
	}
	t.setKnown(after)
	t.settle(ctx, after, len(c.paths) == 0)
	return made, nil
}

// mergeTries bounds how often a merge is begun because the branch moved again.
const mergeTries = 5

// merge brings a staged commit into a branch that moved meanwhile. If both changed the same,
// the branch is gone or the merge fails, the commit is kept at a ref of its own.
func (c *gitCommit) merge(ctx context.Context, tip gitd.Hash, stage string) (gitd.Hash, error) {
	staged, err := c.t.Repo.Resolve(ctx, stage)
	if err != nil {
		return "", err
	}
	var after gitd.Hash
	for range mergeTries {
		if after, err = c.mergeStaged(ctx, staged, tip, stage); !errors.Is(err, gitd.ErrConflict) && !errors.Is(err, gitd.ErrNotFound) {
			break
		}
		var terr error
		if tip, terr = c.t.Tip(ctx); terr != nil && !errors.Is(terr, ErrBranchGone) {
			break
		}
	}
	var u *Uncommitted
	if err != nil && !errors.As(err, &u) {
		if err = c.keepAside(ctx, staged, record.ReasonConflict,
			fmt.Sprintf("the command's work could not be merged into %s (%v)", c.t.Caller.Branch(),
				err)); !errors.As(err, &u) {
			return "", err // the staged commit stays for the next try
		}
	}
	c.unstage(ctx)
	return after, err
}

func (c *gitCommit) mergeStaged(ctx context.Context, staged, tip gitd.Hash, stage string) (gitd.Hash, error) {
	t := c.t
	branch := t.Caller.Branch()
	if tip == "" {
		return "", c.keepAside(ctx, staged, record.ReasonBranchGone, branch+" was deleted while the command ran")
	}

	// A step that is taken up again after a crash may have been committed already.
	same, err := c.sameTree(ctx, staged, tip)
	if err != nil || same {
		return tip, err
	}
	if ahead, err := t.Repo.Descends(ctx, staged, tip); err != nil {
		return "", err
	} else if ahead {
		return staged, t.Repo.Update(ctx, gitd.RefUpdate{Name: "refs/heads/" + branch, Old: &tip, New: staged})
	}
	m, err := t.Repo.Merge(ctx,
		gitd.MergeRequest{From: stage, Into: branch, Strategy: gitd.StrategyMerge, Committer: t.store.Identity.Bot,
			Author: t.store.Identity.Author(c.author), When: t.store.Now().UTC(),
			Message: fmt.Sprintf("Merge the work of %s into what was pushed to %s meanwhile", t.Caller, branch)})
	switch {
	case errors.Is(err, gitd.ErrInvalid):
		return "", c.keepAside(ctx, staged, record.ReasonConflict,
			fmt.Sprintf("somebody pushed another history to %s while the command ran (%.12s)", branch, tip))
	case err != nil:
		return "", err
	case m.Merged:
		return m.Commit, nil
	}
	return "", c.keepAside(ctx, staged, record.ReasonConflict,
		fmt.Sprintf("somebody pushed to %s while the command ran, and both changed %s; the branch has what was pushed (%.12s)",
			branch, text.Clip(strings.Join(m.Conflicts, ", "), 2<<10), m.Old))
}

func (c *gitCommit) sameTree(ctx context.Context, a, b gitd.Hash) (bool, error) {
	one, err := c.t.Repo.TreeOf(ctx, a)
	if err != nil {
		return false, err
	}
	other, err := c.t.Repo.TreeOf(ctx, b)
	return err == nil && one == other, err
}

// keepAside keeps a commit that the branch cannot have. It returns the error with the reason and the ref.
func (c *gitCommit) keepAside(ctx context.Context, staged gitd.Hash, reason record.Reason, why string) error {
	t := c.t
	run := c.runID
	if run == "" && t.Hooks.Run != nil {
		run = t.Hooks.Run()
	}
	if run == "" {
		run = record.NewToken()
	}
	ref := fmt.Sprintf("%s/%s/%s-%.8s", record.ConflictPrefix, t.Caller.Slug(), run, staged)
	if err := t.Repo.Update(ctx, gitd.RefUpdate{Name: ref, New: staged}); err != nil {
		return err
	}
	return &Uncommitted{Reason: reason,
		Text: fmt.Sprintf("%s; %s has what the command left, and `--fork %s@%.12s` begins a caller with it", why, ref,
			t.Caller, staged)}
}

// unstage deletes the refs of staged commits, those of an interrupted commit too.
func (c *gitCommit) unstage(ctx context.Context) {
	refs, err := c.t.Repo.Refs(ctx, stagePrefix(c.t.Caller))
	for _, r := range refs {
		err = errors.Join(err, c.t.Repo.Update(ctx, gitd.RefUpdate{Name: r.Name}))
	}
	if err != nil {
		c.t.store.Log.Warn("cannot delete the refs of staged commits; the next commit tries again", "caller",
			c.t.Caller, "err", err)
	}
}

// fresh returns the files that were left out, without those that were reported before and did not change since.
func (c *gitCommit) fresh(ctx context.Context, more []string) (fresh []LeftOut) {
	left := slices.Clone(c.leave)
	for _, p := range more {
		if p = strings.TrimSuffix(p, "/"); filepath.IsLocal(p) && len(left) < leftMax {
			left = append(left, LeftOut{p, "git cannot add it"})
		}
	}
	if len(left) == 0 {
		c.t.left = nil
		return nil
	}
	files, err := c.h.Files(ctx)
	if err != nil {
		return left
	}
	defer files.Close()
	defer context.AfterFunc(ctx, func() { files.Close() })()
	now := make(map[string]string, len(left))
	for _, f := range left {
		state := "gone"
		if info, err := files.Lstat(path.Join(c.t.dir(), f.Path)); err == nil {
			state = fmt.Sprintf("%v %d %d", info.Mode(), info.Size(), info.ModTime().Unix())
		}
		now[f.Path] = state
		if c.t.left[f.Path] != state {
			fresh = append(fresh, f)
		}
	}
	c.t.left = now
	return fresh
}

// refused returns the error of a commit that could not be made, with the files that it would have changed. It returns
// errors of ended contexts and lost containers unchanged.
func (c *gitCommit) refused(ctx context.Context, err error) error {
	var s *ScriptError
	u := &Uncommitted{Reason: record.ReasonNotCommitted,
		Text: "the command ran, but its changes could not be committed: " + err.Error()}
	switch {
	case errors.Is(err, ErrDiskFull):
		u.Reason = record.ReasonDiskFull
		return u
	case !errors.As(err, &s):
		return err
	case s.Code == scriptNoGit:
		u.Reason = record.ReasonBadInput
		return u
	case s.Code == scriptMidst:
		u.Reason, u.Text = record.ReasonConflict, err.Error()
		return u
	}

	listed, err := c.list(ctx, "")
	if err != nil {
		c.t.store.Log.Warn("the files that could not be committed cannot be listed, and are not kept", "caller",
			c.t.Caller, "err", err)
	}
	for _, l := range listed {
		if l.mode != 0 {
			u.Left = append(u.Left, LeftOut{l.path, "the commit with it failed"})
		}
	}
	return u
}

// IsKept reports whether a commit is one that was kept of a caller's work outside of its branch.
func IsKept(ctx context.Context, repo *gitd.Repo, c record.Caller, at gitd.Hash) (bool, error) {
	kept, err := repo.Resolve(ctx, record.WIPRef(c))
	if err != nil && !errors.Is(err, gitd.ErrNotFound) {
		return false, err
	}
	if err == nil && kept == at {
		return true, nil
	}
	refs, err := repo.Refs(ctx, record.ConflictRefs(c))
	return slices.ContainsFunc(refs, func(r gitd.Ref) bool { return r.Hash == at }), err
}
