package githubread

import (
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/gateway/forge"
)

// readable lists the paths below a repository that may be read by GET. The entry "" is the repository itself. An entry that ends in a
// slash allows every path below it.
//
// Files, branches and commits are missing on purpose: a caller reads those that its grant shows with git. So are hooks,
// keys, collaborators, secrets, variables, environments, traffic and alerts.
var readable = []string{
	"", "actions/jobs/", "actions/runs", "actions/runs/", "actions/workflows", "actions/workflows/", "assignees",
	"check-runs/", "check-suites/",
	"issues", "issues/", "labels", "labels/", "languages", "milestones", "milestones/", "pulls", "pulls/", "releases",
	"releases/", "statuses/", "topics",
}

// readableOfCommit lists the paths below a commit that may be read.
var readableOfCommit = []string{"check-runs", "check-suites", "pulls", "status", "statuses"}

// allowedPath reports whether a path of the API, such as "/repos/acme/app/pulls/7", may be read for a repository.
func allowedPath(path string, repo forge.Name) bool {
	parts := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 4)
	if len(parts) < 3 || parts[0] != "repos" || !repo.Is(forge.Name{Owner: parts[1], Repo: parts[2]}) {
		return false
	}
	rest := ""
	if len(parts) == 4 {
		rest = parts[3]
	}
	if hasStep(rest) {
		return false
	}
	if commit, ok := strings.CutPrefix(rest, "commits/"); ok {
		i := strings.LastIndexByte(commit, '/')
		return i > 0 && slices.Contains(readableOfCommit, commit[i+1:])
	}
	for _, r := range readable {
		if rest == r || strings.HasSuffix(r, "/") && strings.HasPrefix(rest, r) {
			return true
		}
	}
	return false
}

// hasStep reports whether a path has an element that a server may resolve to another path.
func hasStep(path string) bool {
	for element := range strings.SplitSeq(path, "/") {
		if element == "." || element == ".." || strings.ContainsAny(element, "\\%\x00") {
			return true
		}
	}
	return strings.Contains(path, "//")
}
