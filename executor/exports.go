package executor

import (
	"path/filepath"

	"github.com/ramus-dev/ramus/executor/export"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Exporter returns the exporter of a repository.
func (x *Executor) Exporter(repo *gitd.Repo) *export.Exporter {
	return &export.Exporter{Runs: x, Repo: repo, Dir: x.exports(), Bot: x.Bot, Now: x.Now}
}

// Importer returns the importer of the server.
func (x *Executor) Importer() *export.Importer {
	return &export.Importer{Git: x.Git, Store: x.Artifacts, Chain: &x.Chain, Dir: x.exports(), Bot: x.Bot, Now: x.Now,
		Claim: x.Index.Claim, Index: x.Index.Put,
		Taken: func(c record.Caller) bool { return len(x.Index.OfCaller(c)) > 0 }}
}

// exports is the folder of files that are being exported or imported. The executor empties it when it starts.
func (x *Executor) exports() string { return filepath.Join(x.Data, "exports") }
