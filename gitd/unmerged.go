package gitd

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Tip is the newest commit of a branch.
type Tip struct {
	Branch string    `json:"branch"` // without refs/heads/
	Commit Hash      `json:"commit"`
	When   time.Time `json:"when"` // of the commit, by its committer
}

// Unmerged returns the tips of the branches that have commits which the commit base lacks. The newest is first. There
// are at most max.
func (r *Repo) Unmerged(ctx context.Context, base Hash, max int) ([]Tip, error) {
	tips, err := r.unmerged(ctx, base, max)
	if err != nil {
		return nil, fmt.Errorf("cannot list the unmerged branches of %s: %w", r.name, err)
	}
	return tips, nil
}

func (r *Repo) unmerged(ctx context.Context, base Hash, max int) ([]Tip, error) {
	if err := CheckHash(base); err != nil {
		return nil, err
	}
	out, err := r.output(ctx, "for-each-ref", "--no-merged="+string(base), "--sort=refname", "--sort=-committerdate",
		"--count="+strconv.Itoa(max), "--format=%(objectname) %(committerdate:unix) %(refname:lstrip=2)", "refs/heads/")
	if err != nil {
		return nil, err
	}
	tips := []Tip{}
	for line := range strings.Lines(string(out)) {
		words := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 3)
		if len(words) != 3 || CheckHash(Hash(words[0])) != nil {
			continue
		}
		seconds, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			continue // no commit
		}
		tips = append(tips, Tip{Branch: words[2], Commit: Hash(words[0]), When: time.Unix(seconds, 0).UTC()})
	}
	return tips, nil
}
