package executor

import (
	"path/filepath"

	"github.com/ramus-dev/ramus/executor/export"
	"github.com/ramus-dev/ramus/gitd"
)

// Exporter returns the exporter of a repository.
func (x *Executor) Exporter(repo *gitd.Repo) *export.Exporter {
	return &export.Exporter{Runs: x, Repo: repo, Dir: x.exports(), Bot: x.Bot, Now: x.Now}
}

// exports is the folder of files that are being exported. The executor empties it when it starts.
func (x *Executor) exports() string { return filepath.Join(x.Data, "exports") }
