package githubtest

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

func (s *Server) mergeBase(r *repository, a, b string) (string, error) {
	return s.fact(r, "merge-base", a, b)
}

// from returns the commit at which a pull request's diff begins. s.mu is held.
func (s *Server) from(p *pullRequest) string {
	base := p.r.heads[p.base]
	if p.merged {
		if parent, err := s.fact(p.r, "rev-parse", "--verify", "--quiet", p.merge+"^1"); err == nil {
			base = parent
		}
	}
	from, err := s.mergeBase(p.r, base, p.headSHA)
	if err != nil {
		return base
	}
	return from
}

// diff returns git's diff of two commits, for one path, or for all if path is empty.
func (s *Server) diff(r *repository, from, to, path string, args ...string) string {
	args = append(append([]string{"diff", "--no-color", "--no-ext-diff", "--no-renames"}, args...), from, to, "--")
	if path != "" {
		args = append(args, ":(literal)"+path)
	}
	out, err := s.fact(r, args...)
	if err != nil {
		return ""
	}
	return out
}

func (s *Server) wholeDiff(p *pullRequest) string {
	return s.diff(p.r, s.from(p), p.headSHA, "") + "\n"
}

// diffSize returns the numbers of lines added and removed, and of files.
func (s *Server) diffSize(p *pullRequest) (added, removed, files int) {
	for line := range strings.Lines(s.diff(p.r, s.from(p), p.headSHA, "", "--numstat")) {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		files++
		a, _ := strconv.Atoi(f[0]) // "-" for a binary counts as 0
		d, _ := strconv.Atoi(f[1])
		added, removed = added+a, removed+d
	}
	return added, removed, files
}

// commitsOf returns the commits of a pull request, the oldest first.
func (s *Server) commitsOf(p *pullRequest) []string {
	out, err := s.fact(p.r, "rev-list", "--reverse", s.from(p)+".."+p.headSHA)
	if err != nil {
		return nil
	}
	return strings.Fields(out)
}

func (c *call) pullFiles() answer {
	p, a := c.thePull()
	if a != nil {
		return *a
	}
	s, from := c.s, c.s.from(p)
	var list []any
	words := map[byte]string{'A': "added", 'D': "removed", 'M': "modified"}
	for line := range strings.Lines(s.diff(p.r, from, p.headSHA, "", "--name-status")) {
		status, path, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if !ok {
			continue
		}
		counts := strings.Fields(s.diff(p.r, from, p.headSHA, path, "--numstat"))
		number := func(i int) int {
			if i >= len(counts) {
				return 0
			}
			n, _ := strconv.Atoi(counts[i])
			return n
		}
		patch := s.diff(p.r, from, p.headSHA, path)
		if at := strings.Index(patch, "\n@@"); at >= 0 {
			patch = patch[at+1:]
		}
		blob, _ := s.fact(p.r, "rev-parse", "--verify", "--quiet", p.headSHA+":"+path)
		list = append(list, object{"sha": blob, "filename": path, "status": words[status[0]], "additions": number(0),
			"deletions": number(1),
			"changes":   number(0) + number(1), "patch": patch,
			"blob_url":     s.URL() + "/" + s.Account + "/" + p.r.name + "/blob/" + p.headSHA + "/" + path,
			"raw_url":      s.URL() + "/" + s.Account + "/" + p.r.name + "/raw/" + p.headSHA + "/" + path,
			"contents_url": s.repoURL(p.r) + "/contents/" + path + "?ref=" + p.headSHA})
	}
	return c.page(list)
}

var hunkHead = regexp.MustCompile(`^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@`)

// hunkNumbers parses a hunk's header. It returns the positions and the lengths before and after.
func hunkNumbers(line string) (oldAt, oldLen, newAt, newLen int, ok bool) {
	m := hunkHead.FindStringSubmatch(line)
	if m == nil {
		return 0, 0, 0, 0, false
	}
	number := func(text string) int {
		if text == "" {
			return 1
		}
		n, _ := strconv.Atoi(text) // digits
		return n
	}
	return number(m[1]), number(m[2]), number(m[3]), number(m[4]), true
}

// place locates a line in a pull request's diff. It returns the hunk down to the line, and the position in GitHub's
// count. Lines on the RIGHT belong to the head, lines on the LEFT to the base.
func (s *Server) place(p *pullRequest, path string, line int, side string) (hunk string, position int, found bool) {
	var lines []string
	at, oldAt, newAt := -1, 0, 0
	for text := range strings.SplitSeq(s.diff(p.r, s.from(p), p.headSHA, path), "\n") {
		if o, _, n, _, ok := hunkNumbers(text); ok {
			oldAt, newAt, lines, at = o, n, []string{text}, at+1
			continue
		}
		if at < 0 || text == "" || text[0] == '\\' {
			continue
		}
		at++
		lines = append(lines, text)
		right, left := text[0] != '-', text[0] != '+'
		if right && side == "RIGHT" && newAt == line || left && side == "LEFT" && oldAt == line {
			return strings.Join(lines, "\n"), at, true
		}
		if right {
			newAt++
		}
		if left {
			oldAt++
		}
	}
	return "", 0, false
}

// carried returns the number of a commit's line in another commit, or 0 if the line was changed.
func (s *Server) carried(r *repository, from, to, path string, line int) int {
	if from == to {
		return line
	}
	shift := 0
	for text := range strings.SplitSeq(s.diff(r, from, to, path, "--unified=0"), "\n") {
		oldAt, oldLen, _, newLen, ok := hunkNumbers(text)
		switch {
		case !ok:
		case oldLen > 0 && line >= oldAt && line < oldAt+oldLen:
			return 0
		case oldLen == 0 && line > oldAt, oldLen > 0 && line >= oldAt+oldLen:
			shift += newLen - oldLen
		}
	}
	return line + shift
}

// inDiff reports whether a pull request changes a file.
func (s *Server) inDiff(p *pullRequest, path string) bool {
	return s.diff(p.r, s.from(p), p.headSHA, path, "--name-only") != ""
}

// notInDiff refuses a comment outside of the diff.
func notInDiff(field string) error {
	return invalid(object{"resource": "PullRequestReviewComment", "code": "custom",
		"field":   "pull_request_review_thread." + field,
		"message": fmt.Sprintf("pull_request_review_thread.%s must be part of the diff", field)},
		object{"resource": "PullRequestReviewComment", "code": "missing_field",
			"field": "pull_request_review_thread.diff_hunk"})
}

// unprocessable is a refusal with one sentence.
func unprocessable(text string) error {
	return &refusal{status: http.StatusUnprocessableEntity, message: "Unprocessable Entity", errors: []any{text}}
}
