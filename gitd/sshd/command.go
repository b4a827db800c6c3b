package sshd

import "strings"

// ParseCommand parses the command of an exec request, which is a verb and one path in git's quoting. No shell
// expands anything else.
func ParseCommand(line string) (verb, path string, ok bool) {
	if line == "whoami" {
		return line, "", true
	}
	if rest, found := strings.CutPrefix(line, "git-lfs-authenticate "); found {
		return "git-lfs-authenticate", rest, len(rest) <= 4096
	}
	rest := ""
	for _, v := range []string{"upload-pack", "receive-pack"} {
		for _, form := range []string{"git-" + v + " ", "git " + v + " "} {
			if r, found := strings.CutPrefix(line, form); found {
				verb, rest = v, r
			}
		}
	}
	if verb == "" || len(rest) > 4096 {
		return "", "", false
	}
	path, ok = UnquoteWord(rest)
	path = strings.TrimPrefix(path, "/")
	return verb, path, ok && path != ""
}

// UnquoteWord unquotes one word. The word is bare, or as sq_quote of git writes it, with ' and ! outside of the
// quotes and after a backslash.
func UnquoteWord(s string) (string, bool) {
	if !strings.HasPrefix(s, "'") {
		return s, !strings.ContainsAny(s, " '\"\\$`;&|<>*?()\n\t")
	}
	var b strings.Builder
	for {
		inside, rest, ok := strings.Cut(s[1:], "'")
		if !ok {
			return "", false
		}
		b.WriteString(inside)
		switch {
		case rest == "":
			return b.String(), true
		case strings.HasPrefix(rest, `\''`), strings.HasPrefix(rest, `\!'`):
			b.WriteByte(rest[1])
			s = rest[2:]
		default:
			return "", false
		}
	}
}
