package library

import (
	"bytes"
	"context"
	"fmt"
	"github.com/ramus-dev/ramus/tasks"
	"strconv"
	"strings"
)

// Committed is the value of lib_git_commit.
type Committed struct {
	// Hash is empty if nothing had changed.
	Hash      string `json:"hash,omitempty"`
	Committed bool   `json:"committed"`
	Branch    string `json:"branch,omitempty"`
}

// Pushed is the value of lib_git_push.
type Pushed struct {
	Remote string `json:"remote,omitempty"`
	Branch string `json:"branch,omitempty"`
}

// Status is the value of lib_git_status.
type Status struct {
	Branch   string `json:"branch,omitempty"` // empty if the head is detached
	Head     string `json:"head,omitempty"`   // empty before the first commit
	Upstream string `json:"upstream,omitempty"`
	Ahead    int    `json:"ahead"`
	Behind   int    `json:"behind"`
	Clean    bool   `json:"clean"`
	// Files are the first 1000 files that differ, and Changed is the number of all.
	Files   []FileStatus `json:"files"`
	Changed int          `json:"changed"`
}

// FileStatus is one file that differs from the last commit.
type FileStatus struct {
	Path string `json:"path"`
	From string `json:"from,omitempty"` // the name before a rename or copy
	// Status is one of modified, added, deleted, renamed, copied, type_changed, untracked, conflict.
	Status string `json:"status"`
}

const (
	maxStatusFiles   = 1000
	maxCommitMessage = 64 << 10
)

func gitCommit() tasks.Task {
	type params struct {
		Message string   `json:"message" jsonschema:"The commit message: a subject line, an empty line and the reason."`
		Files   []string `json:"files,omitempty" jsonschema:"Files or folders to commit, relative to the root of the repository. Without any, everything that changed."`
	}
	return newTask("lib_git_commit",
		`Commits the changes of the work tree, or only those of the named files, on the current branch. Only files that .gitignore excludes are left out. If nothing changed, the task is OK and makes no commit ("committed": false).`,
		func(ctx context.Context, sh tasks.Shell, p params) (tasks.Output, error) {
			switch {
			case strings.TrimSpace(p.Message) == "":
				return tasks.Output{}, refuse("message", p.Message, "is empty")
			case len(p.Message) > maxCommitMessage:
				return tasks.Output{}, refuse("message", p.Message, fmt.Sprintf("is longer than %d bytes", maxCommitMessage))
			case tasks.Quotable(p.Message) != nil:
				return tasks.Output{}, refuse("message", p.Message, tasks.ErrNUL.Error())
			}
			var files []string
			for _, f := range p.Files {
				name, err := tasks.CleanPath(f)
				if err != nil {
					return tasks.Output{}, err
				}
				files = append(files, name)
			}
			hash, err := sh.Commit(ctx, p.Message, files)
			if err != nil {
				return tasks.Output{}, err
			}
			return tasks.Output{OK: true, Value: Committed{hash, hash != "", sh.Branch()}}, nil
		})
}

func gitPush() tasks.Task {
	type params struct {
		Remote string `json:"remote,omitempty" jsonschema:"The name of the remote, origin in a container. Without one, the server that the branch came from."`
		Branch string `json:"branch,omitempty" jsonschema:"The branch to push, the current one in a container. Without one, the current branch."`
	}
	return newTask("lib_git_push",
		`Makes sure that the commits of the current branch are on the server that the branch came from. A container reaches no other remote and may push no other branch, so both are refused. The server has the commits of every command when the command ends, so a push has nothing left to send. The task never uses force.`,
		func(ctx context.Context, sh tasks.Shell, p params) (tasks.Output, error) {
			if p.Remote != "" && !tasks.IsRemoteName(p.Remote) {
				return tasks.Output{}, refuse("remote", p.Remote,
					"is not the name of a remote (letters, digits, . _ -; URLs are not accepted)")
			}
			if p.Branch != "" && !tasks.IsBranchName(p.Branch) {
				return tasks.Output{}, refuse("branch", p.Branch, "is not the name of a branch")
			}
			if err := sh.Push(ctx, p.Remote, p.Branch); err != nil {
				return tasks.Output{}, err
			}
			if p.Branch == "" {
				p.Branch = sh.Branch()
			}
			return tasks.Output{OK: true, Value: Pushed(p)}, nil
		})
}

const statusCommand = "git --no-optional-locks -c core.quotePath=false status --porcelain=v2 --branch --untracked-files=all --ignore-submodules=none"

func gitStatus() tasks.Task {
	t := newTask("lib_git_status",
		`Tells the branch, its last commit, how far it is ahead of and behind its upstream, and which files differ from the last commit, untracked ones included. OK means that git answered; "clean" tells whether nothing differs.`,
		func(ctx context.Context, sh tasks.Shell, _ struct{}) (tasks.Output, error) {
			r, err := sh.Exec(ctx, statusCommand, 0)
			if err != nil {
				return tasks.Output{}, err
			}
			out := tasks.Output{OK: r.ExitCode == 0 && !r.TimedOut, Result: &r, Command: statusCommand}
			if !out.OK {
				return out, nil
			}
			if out.Value, err = parseStatus([]byte(r.Stdout)); err != nil && !r.Truncated {
				return tasks.Output{}, err
			}
			return out, nil
		})
	t.ReadOnly = true
	return t
}

// parseStatus reads `git status --porcelain=v2 --branch`. It skips lines of unknown kinds, as git's documentation
// demands. A malformed line of a known kind is an error, returned with all that could be read.
func parseStatus(text []byte) (Status, error) {
	s := Status{Files: []FileStatus{}}
	var broken error
	add := func(f FileStatus) {
		s.Changed++
		if len(s.Files) < maxStatusFiles {
			s.Files = append(s.Files, f)
		}
	}
	for line := range bytes.Lines(text) {
		kind, rest, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
		bad := false
		switch kind {
		case "#":
			key, value, _ := strings.Cut(rest, " ")
			switch key {
			case "branch.oid":
				if value != "(initial)" {
					s.Head = value
				}
			case "branch.head":
				if value != "(detached)" {
					s.Branch = value
				}
			case "branch.upstream":
				s.Upstream = value
			case "branch.ab":
				if _, err := fmt.Sscanf(value, "+%d -%d", &s.Ahead, &s.Behind); err != nil {
					bad = true
				}
			}
		case "1", "u", "2":
			// 1 XY sub mH mI mW hH hI path; u has two more fields, 2 one more and "path<TAB>from".
			n := map[string]int{"1": 8, "2": 9, "u": 10}[kind]
			f := strings.SplitN(rest, " ", n)
			if len(f) != n || len(f[0]) != 2 {
				bad = true
				break
			}
			name, from, _ := cutNames(f[n-1])
			file := FileStatus{Path: name, From: from, Status: "conflict"}
			if kind != "u" {
				file.Status = statusWord(f[0])
			}
			add(file)
		case "?":
			name, _, _ := cutNames(rest)
			add(FileStatus{Path: name, Status: "untracked"})
		}
		if bad && broken == nil {
			broken = fmt.Errorf("cannot read git's status: broken line %.100q", line)
		}
	}
	s.Clean = s.Changed == 0
	return s, broken
}

// cutNames splits "path<TAB>from". git may have quoted either name like a C string.
func cutNames(s string) (name, from string, both bool) {
	name, from, both = strings.Cut(s, "\t")
	return unquoteC(name), unquoteC(from), both
}

// unquoteC undoes git's quoting. Invalid UTF-8 becomes U+FFFD, because the result is part of JSON.
func unquoteC(s string) string {
	if strings.HasPrefix(s, `"`) {
		if u, err := strconv.Unquote(s); err == nil { // git's escapes (\t, \", \\, \ooo) are also Go's
			s = u
		}
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// statusWord combines the two letters of index and work tree to the status against the last commit, which is the one of
// interest on a branch.
func statusWord(xy string) string {
	for _, c := range xy {
		switch c {
		case 'R':
			return "renamed"
		case 'C':
			return "copied"
		}
	}
	if xy[1] == 'D' {
		return "deleted"
	}
	switch xy[0] {
	case 'A':
		return "added"
	case 'D':
		return "deleted"
	case 'T':
		return "type_changed"
	}
	switch xy[1] {
	case 'A':
		return "added"
	case 'T':
		return "type_changed"
	}
	return "modified"
}
