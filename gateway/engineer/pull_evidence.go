package engineer

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/github"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gitd"
)

// Evidence is how pictures of pages get to a pull request: GitHub takes no files by
// its API.
type Evidence string

// The ways of evidence.
const (
	// EvidenceLinks: signed links to this server. Nothing leaves it until somebody
	// opens one, and links expire.
	EvidenceLinks Evidence = "links"
	// EvidenceBranch: up to five pictures of each round of work are commits of a branch of
	// the same repository, ramus-evidence/TASK, which has nothing to do with its
	// code, and are shown on the pull request by the commit's hash. Whoever may read the
	// repository sees them, for good.
	EvidenceBranch Evidence = "branch"
	// EvidenceNone: verdicts in words alone.
	EvidenceNone Evidence = "none"
)

// evidenceBranch is the branch with the pictures of a task, here and at GitHub.
func evidenceBranch(t record.Task) string { return "ramus-evidence/" + t.ID }

// evidencePath is where a picture of a piece of work lies in its commit; n is its place
// in the list of those that are shown.
func evidencePath(w work, n int, p render.Picture) string {
	return fmt.Sprintf("%s/%d-%s-%s%s", w.id(), n+1, render.Slug(p.Check), render.Slug(p.Viewport), render.PictureExt(p))
}

// evidenceReadme is for whoever comes upon the branch.
const evidenceReadme = `# Pictures for a pull request

ramus looked at pages in a browser and shows here what it saw. Comments on the pull
request show these files by their commits: delete this branch, and sooner or later the
pictures there are gone. It is no part of the code, and is never merged.
`

// keepEvidence puts the pictures of a piece of work on the task's branch of evidence, here
// and at GitHub, and returns the commit; "" when there is nothing to be shown, or GitHub
// does not want it. It follows from its arguments alone, so that it may be done again.
func (j *job) keepEvidence(ctx context.Context, t record.Task, past history, w work, repo *gitd.Repo, up gitd.Upstream) (gitd.Hash, error) {
	if j.engineer.Evidence != EvidenceBranch {
		return "", nil
	}
	m, err := j.engineer.Executor.Manifest(ctx, w.Run)
	if errors.Is(err, record.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	run, known := j.engineer.Executor.Find(t.Caller(), w.id())
	shown, _ := render.Pictures(&m)
	if len(shown) == 0 || !known {
		return "", nil
	}
	put := []gitd.File{{Path: "README.md", Content: []byte(evidenceReadme)}}
	for n, p := range shown {
		good, contents, _, err := ReadPictures(ctx, j.engineer.Executor, run, []render.Picture{p})
		if err != nil {
			return "", err
		}
		if len(good) > 0 {
			put = append(put, gitd.File{Path: evidencePath(w, n, p), Content: contents[0]})
		}
	}
	if len(put) == 1 {
		return "", nil
	}
	c := gitd.NewCommit{Put: put, Author: j.engineer.Executor.Bot, When: m.EndedAt,
		Message: fmt.Sprintf("Pictures of pages for %s\n\nRamus-Caller: %s\nRamus-Run: %s\n", w.id(), t.Caller(), w.id())}
	if before := past.evidence(); before != "" {
		c.From, c.Parents = before, []gitd.Hash{before}
	}
	commit, err := repo.WriteCommit(ctx, c)
	if err != nil {
		return "", err
	}
	branch := evidenceBranch(t)
	if err := repo.Update(ctx, gitd.RefUpdate{Name: "refs/heads/" + branch, New: commit}); err != nil {
		return "", err
	}
	err = repo.PushUpstream(ctx, gitd.UpstreamPush{Upstream: up, Branch: branch, Commit: commit})
	if errors.Is(err, gitd.ErrConflict) || errors.Is(err, gitd.ErrUpstreamRefused) {
		// Pictures are no reason to keep the work back: there are links.
		j.engineer.Log.Warn("pictures cannot be pushed; they are linked", "task", j.id, "branch", branch, "err", err)
		return "", nil
	}
	return commit, err
}

// pullLinks is where the evidence of a task's work can be seen, for what is said at GitHub.
func (j *job) pullLinks(ctx context.Context, t record.Task, past history, name github.Name) (render.PullLinks, error) {
	links := render.PullLinks{}
	if j.engineer.Links != nil {
		links.Page = j.engineer.Links.Named
		if j.engineer.Evidence != EvidenceNone {
			links.File, links.Trace = j.engineer.Links.View, j.engineer.Links.Trace
		}
	}
	if j.engineer.Evidence != EvidenceBranch {
		return links, nil
	}
	repo, err := j.engineer.Git.Repo(t.Repo)
	if err != nil {
		return links, err
	}
	at := make(map[[2]string]string) // address by run and file
	for _, w := range past.works {
		if w.Evidence == "" {
			continue
		}
		m, err := j.engineer.Executor.Manifest(ctx, w.Run)
		if err != nil {
			return links, err
		}
		shown, _ := render.Pictures(&m)
		for n, p := range shown {
			file := evidencePath(w, n, p)
			in, _, err := repo.OpenFile(ctx, string(w.Evidence), file)
			if errors.Is(err, gitd.ErrNotFound) {
				continue // it was damaged
			}
			if err != nil {
				return links, err
			}
			in.Close()
			at[[2]string{m.Run, p.File.Name}] = blobURL(j.engineer.Web, name, w.Evidence, file)
		}
	}
	links.Picture = func(run, file string) string { return at[[2]string{run, file}] }
	return links, nil
}

// blobURL is the address at GitHub of a file as it is, which who may read the repository can open. It
// names a commit, so what it shows never changes.
func blobURL(web string, name github.Name, commit gitd.Hash, file string) string {
	u := url.URL{Path: "/" + name.Owner + "/" + name.Repo + "/blob/" + string(commit) + "/" + file, RawQuery: "raw=true"}
	return strings.TrimSuffix(web, "/") + u.String()
}
