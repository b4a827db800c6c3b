package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/gitd"
)

// Record is an entry with its commit.
type Record struct {
	Entry
	Commit gitd.Hash `json:"commit"`
}

// Read returns the newest entries, the newest first, max at most.
func (l *Log) Read(ctx context.Context, max int) ([]Record, error) {
	list := []Record{}
	repo, err := l.Git.Repo(gitd.PeopleRepo)
	if errors.Is(err, gitd.ErrNotFound) {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	months, err := repo.Refs(ctx, refs)
	if err != nil {
		return nil, fmt.Errorf("cannot read the log of actions: %w", err)
	}
	for _, month := range slices.Backward(months) {
		commits, err := repo.Log(ctx, month.Name, gitd.LogOptions{Max: max - len(list)})
		if err != nil {
			return nil, fmt.Errorf("cannot read the log of actions: %w", err)
		}
		for _, c := range commits {
			entries, err := readEntries(ctx, repo, c.Hash)
			if err != nil {
				return nil, fmt.Errorf("cannot read the log of actions: %w", err)
			}
			for _, e := range slices.Backward(entries) {
				list = append(list, Record{e, c.Hash})
			}
			if len(list) >= max {
				return list[:max], nil
			}
		}
	}
	return list, nil
}

func readEntries(ctx context.Context, repo *gitd.Repo, commit gitd.Hash) (list []Entry, err error) {
	b, err := repo.ReadFile(ctx, string(commit), file, maxFile)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		var e Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return nil, fmt.Errorf("commit %s: %w", commit, err)
		}
		list = append(list, e)
	}
	return list, nil
}
