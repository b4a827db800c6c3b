package gitd

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Branch is a branch with its newest commit.
type Branch struct {
	Tip
	Author  string `json:"author"`
	Subject string `json:"subject"`
}

// Branches returns the branches of a repository, the one with the newest commit first. There are at most max.
func (r *Repo) Branches(ctx context.Context, max int) ([]Branch, error) {
	out, err := r.output(ctx, "for-each-ref", "--sort=refname", "--sort=-committerdate", "--count="+strconv.Itoa(max),
		"--format=%(objectname)%00%(committerdate:unix)%00%(refname:lstrip=2)%00%(authorname)%00%(subject)", "refs/heads/")
	if err != nil {
		return nil, fmt.Errorf("cannot list the branches of %s: %w", r.name, err)
	}
	list := []Branch{}
	for line := range strings.Lines(string(out)) {
		words := strings.SplitN(strings.TrimSuffix(line, "\n"), "\x00", 5)
		if len(words) != 5 || CheckHash(Hash(words[0])) != nil {
			continue
		}
		seconds, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			continue // no commit
		}
		list = append(list, Branch{Tip: Tip{Branch: words[2], Commit: Hash(words[0]), When: time.Unix(seconds, 0).UTC()},
			Author: words[3], Subject: words[4]})
	}
	return list, nil
}

// Divergence returns how many commits a has that b lacks, and b has that a lacks.
func (r *Repo) Divergence(ctx context.Context, a, b Hash) (ahead, behind int, err error) {
	for _, h := range []Hash{a, b} {
		if err := CheckHash(h); err != nil {
			return 0, 0, err
		}
	}
	out, err := r.output(ctx, "rev-list", "--left-right", "--count", string(a)+"..."+string(b), "--")
	if err == nil {
		_, err = fmt.Sscan(string(out), &ahead, &behind)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("cannot count the commits between %s and %s in %s: %w", a, b, r.name, err)
	}
	return ahead, behind, nil
}
