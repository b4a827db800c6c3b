package gitd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/history"
)

// logMax is the default of [LogOptions.Max].
const logMax = 1000

// Trailer is one "Key: value" line at the end of a commit message.
type Trailer struct{ Key, Value string }

// Commit is a commit as people read it. [object.RawCommit] is a commit as it is stored.
type Commit struct {
	Hash      Hash      `json:"hash"`
	Tree      Hash      `json:"tree"`
	Parents   []Hash    `json:"parents"`
	Author    Person    `json:"author"`
	Committer Person    `json:"committer"`
	When      time.Time `json:"when"` // committer date
	Subject   string    `json:"subject"`
	Body      string    `json:"body"` // with the trailers
	Trailers  []Trailer `json:"trailers"`
}

// Trailer returns the last value of a trailer, or "".
func (c Commit) Trailer(key string) string {
	for i := len(c.Trailers) - 1; i >= 0; i-- {
		if c.Trailers[i].Key == key {
			return c.Trailers[i].Value
		}
	}
	return ""
}

// LogOptions are the options of [Repo.Log].
type LogOptions struct {
	Not   string // leaves out commits that this rev reaches
	Max   int    // bounds the number of commits, zero means 1000
	First bool   // follows first parents only
	Topo  bool   // lists all commits before their parents, in spite of their dates
	// Paths leaves out commits that change none of these files and folders, which are taken literally.
	Paths []string
}

// commitFormat separates fields by NUL, which no commit can contain. Git finds the trailers and prints one a line.
const commitFormat = "%H%x00%T%x00%P%x00%an%x00%ae%x00%cn%x00%ce%x00%cI%x00%s%x00%b%x00%(trailers:only,unfold)%x00"

const commitFields = 11

// Log lists the commits that rev reaches, newest first.
func (r *Repo) Log(ctx context.Context, rev string, o LogOptions) ([]Commit, error) {
	list, err := r.log(ctx, rev, o)
	if err != nil {
		return nil, fmt.Errorf("cannot list the commits of %.200q in %s: %w", rev, r.name, err)
	}
	return list, nil
}

func (r *Repo) log(ctx context.Context, rev string, o LogOptions) ([]Commit, error) {
	tip, err := r.resolve(ctx, rev)
	if err != nil {
		return nil, err
	}
	if o.Max <= 0 {
		o.Max = logMax
	}
	// rev-list is used instead of log, because it obeys no log.* configuration.
	args := []string{"rev-list", "--no-commit-header", "--format=" + commitFormat, "--max-count=" + strconv.Itoa(o.Max)}
	if o.First {
		args = append(args, "--first-parent")
	}
	if o.Topo {
		args = append(args, "--topo-order")
	}
	args = append(args, string(tip))
	if o.Not != "" {
		not, err := r.resolve(ctx, o.Not)
		if err != nil {
			return nil, fmt.Errorf("%.200q: %w", o.Not, err)
		}
		args = append(args, "^"+string(not))
	}
	out, err := r.server.git.Output(ctx, gitcmd.Command{Repo: r.dir, Args: append(append(args, "--"), o.Paths...),
		Env: []string{"GIT_LITERAL_PATHSPECS=1"}})
	if err != nil {
		return nil, err
	}
	return parseCommits(string(out))
}

func parseCommits(out string) ([]Commit, error) {
	fields := strings.Split(out, "\x00")
	if (len(fields)-1)%commitFields != 0 {
		return nil, errors.New("git listed commits in an unknown form")
	}
	list := make([]Commit, 0, len(fields)/commitFields)
	for ; len(fields) > commitFields; fields = fields[commitFields:] {
		c := Commit{
			Hash:      Hash(strings.TrimPrefix(fields[0], "\n")),
			Tree:      Hash(fields[1]),
			Parents:   []Hash{},
			Author:    Person{Name: fields[3], Email: fields[4]},
			Committer: Person{Name: fields[5], Email: fields[6]},
			Subject:   fields[8],
			Body:      strings.TrimRight(fields[9], "\n"),
			Trailers:  []Trailer{},
		}
		for p := range strings.FieldsSeq(fields[2]) {
			c.Parents = append(c.Parents, Hash(p))
		}
		// A date that git itself cannot read is no reason to hide the commit.
		if when, err := time.Parse(time.RFC3339, fields[7]); err == nil {
			c.When = when
		}
		for line := range strings.SplitSeq(fields[10], "\n") {
			if key, value, ok := strings.Cut(line, ":"); ok {
				c.Trailers = append(c.Trailers, Trailer{key, strings.TrimSpace(value)})
			}
		}
		list = append(list, c)
	}
	return list, nil
}

// Commit returns one commit.
func (r *Repo) Commit(ctx context.Context, rev string) (Commit, error) {
	list, err := r.log(ctx, rev, LogOptions{Max: 1})
	if err == nil && len(list) != 1 {
		err = ErrNotFound
	}
	if err != nil {
		return Commit{}, fmt.Errorf("cannot read the commit %.200q in %s: %w", rev, r.name, err)
	}
	return list[0], nil
}

// CommitTime returns the time of a commit as its committer gives it, to the second, or the zero value if there is
// none. It starts no process.
func (r *Repo) CommitTime(ctx context.Context, commit Hash) (time.Time, error) {
	c, err := r.objects.ReadCommit(ctx, commit)
	if err != nil {
		return time.Time{}, fmt.Errorf("cannot read the commit %.80s in %s: %w", commit, r.name, err)
	}
	if t := c.CommitterTime(); t != 0 {
		return time.Unix(t, 0).UTC(), nil
	}
	return time.Time{}, nil
}

// MergeBase returns the best common ancestor. Returns [ErrNotFound] if there is none.
func (r *Repo) MergeBase(ctx context.Context, a, b string) (Hash, error) {
	h, err := r.mergeBase(ctx, a, b)
	if err != nil {
		return "", fmt.Errorf("cannot find the merge base of %.200q and %.200q in %s: %w", a, b, r.name, err)
	}
	return h, nil
}

func (r *Repo) mergeBase(ctx context.Context, a, b string) (Hash, error) {
	x, err := r.resolve(ctx, a)
	if err != nil {
		return "", fmt.Errorf("%.200q: %w", a, err)
	}
	y, err := r.resolve(ctx, b)
	if err != nil {
		return "", fmt.Errorf("%.200q: %w", b, err)
	}
	out, err := r.output(ctx, "merge-base", string(x), string(y))
	if gitcmd.ExitCode(err) == 1 {
		return "", fmt.Errorf("they have no commit in common: %w", ErrNotFound)
	} else if err != nil {
		return "", err
	}
	return Hash(strings.TrimSpace(string(out))), nil
}

// isAncestor reports whether commit is new or an ancestor of new.
func (r *Repo) isAncestor(ctx context.Context, commit, new Hash) (bool, error) {
	if commit == new {
		return true, nil
	}
	if history.IsComplete(r.dir, new) {
		// Most calls are for commits that are few steps apart.
		line, err := history.Between(ctx, &r.objects, []Hash{new}, []Hash{commit}, history.MaxCommits)
		if err == nil {
			return line.Reached[commit], nil
		}
		if !errors.Is(err, ErrTooLarge) {
			return false, err
		}
	}
	_, err := r.output(ctx, "merge-base", "--is-ancestor", string(commit), string(new))
	if gitcmd.ExitCode(err) == 1 {
		return false, nil
	}
	return err == nil, err
}
