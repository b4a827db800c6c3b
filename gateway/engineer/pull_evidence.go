package engineer

import (
	"context"
	"errors"
	"fmt"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gitd"
)

// Evidence selects how pictures of pages get to a pull request. Forges have no upload of files for a program.
type Evidence string

// The values of Evidence.
const (
	// EvidenceLinks posts signed links to this server. No picture leaves the server until somebody opens a link. The
	// links expire.
	EvidenceLinks Evidence = "links"
	// EvidenceBranch pushes up to five pictures of each round of work to the branch ramus-evidence/TASK of the same
	// repository. The branch shares no history with the code. The pull request shows the pictures by the hash of their
	// commit. Everybody who may read the repository can see them permanently.
	EvidenceBranch Evidence = "branch"
	// EvidenceNone shows only the verdicts, as text.
	EvidenceNone Evidence = "none"
)

// evidenceBranch returns the name of the branch with the pictures of a task, here and at the forge.
func evidenceBranch(t record.Task) string { return "ramus-evidence/" + t.ID }

// evidencePath returns the path of a picture in the commit of its work. n is the index of the picture in the list of
// shown pictures.
func evidencePath(w work, n int, p render.Picture) string {
	return fmt.Sprintf("%s/%d-%s-%s%s", w.id(), n+1, render.Slug(p.Check), render.Slug(p.Viewport), render.PictureExt(p))
}

// evidenceReadme explains the branch to people who find it.
const evidenceReadme = `# Pictures for a pull request

ramus looked at pages in a browser and shows here what it saw. Comments on the pull
request show these files by their commits: delete this branch, and sooner or later the
pictures there are gone. It is no part of the code, and is never merged.
`

// keepEvidence commits the pictures of a piece of work to the evidence branch of the task, pushes it and returns the
// commit. Returns "" if there is nothing to show or the forge refuses the push. The commit follows from the arguments
// alone, so keepEvidence can be repeated.
func (j *job) keepEvidence(ctx context.Context, t record.Task, past history, w work, repo *gitd.Repo, up gitd.Upstream) (gitd.Hash, error) {
	if j.engineer.settings().Evidence != EvidenceBranch {
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
		// Pictures must not delay the work. They are linked instead.
		j.engineer.Log.Warn("pictures cannot be pushed; they are linked", "task", j.id, "branch", branch, "err", err)
		return "", nil
	}
	return commit, err
}

// pullLinks returns the links to the evidence of a task, for the texts at the forge.
func (j *job) pullLinks(ctx context.Context, t record.Task, past history, at forge.Repo) (render.PullLinks, error) {
	links := render.PullLinks{}
	if j.engineer.Links != nil {
		links.Page = j.engineer.Links.Named
		if j.engineer.settings().Evidence != EvidenceNone {
			links.File, links.Trace = j.engineer.Links.View, j.engineer.Links.Trace
		}
	}
	if j.engineer.settings().Evidence != EvidenceBranch {
		return links, nil
	}
	repo, err := j.engineer.Git.Repo(t.Repo)
	if err != nil {
		return links, err
	}
	urls := make(map[[2]string]string) // by run and file
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
				continue // the picture was damaged
			}
			if err != nil {
				return links, err
			}
			in.Close()
			urls[[2]string{m.Run, p.File.Name}] = at.Forge.FileURL(at.Name, string(w.Evidence), file)
		}
	}
	links.Picture = func(run, file string) string { return urls[[2]string{run, file}] }
	return links, nil
}
