package main

import (
	"context"
	"time"

	"github.com/ramus-dev/ramus/executor/tournament"
)

// resumeTournaments begins the entries of tournaments that a killed server left.
func (i *installation) resumeTournaments(ctx context.Context) {
	repos, err := i.git.Repos(ctx)
	if err != nil {
		if ctx.Err() == nil {
			i.log.Error("tournaments do not go on", "err", err)
		}
		return
	}
	book := &tournament.Book{Bot: i.executor.Bot, Now: time.Now}
	for _, repo := range repos {
		if err := book.Resume(ctx, repo, i.executor); err != nil && ctx.Err() == nil {
			i.log.Error("a tournament does not go on", "repo", repo.Name(), "err", err)
		}
	}
}
