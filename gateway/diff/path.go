package diff

import "strings"

// headPaths returns the paths in the first line of a file's difference, without "diff --git ". Two paths that are not quoted are told apart
// if they are the same. Other paths follow in later lines.
func headPaths(s string) (old, fresh string) {
	if strings.HasPrefix(s, `"`) {
		end := quoteEnd(s)
		if end < 0 || !strings.HasPrefix(s[end:], " ") {
			return "", ""
		}
		return withoutSide(unquote(s[:end])), withoutSide(unquote(s[end+1:]))
	}
	if at := strings.Index(s, ` "`); at > 0 && strings.HasSuffix(s, `"`) {
		return withoutSide(s[:at]), withoutSide(unquote(s[at+1:]))
	}
	if half := len(s) / 2; len(s)%2 == 1 && s[half] == ' ' {
		old, fresh = withoutSide(s[:half]), withoutSide(s[half+1:])
		if old == fresh {
			return old, fresh
		}
	}
	return "", ""
}

// sidePath returns the path of a line that begins with --- or +++. Returns false for a side without a file.
func sidePath(s string) (string, bool) {
	if s == "/dev/null" {
		return "", false
	}
	return withoutSide(unquote(strings.TrimSuffix(s, "\t"))), true
}

// withoutSide returns a path without the a/ or b/ that git puts before it.
func withoutSide(path string) string {
	if len(path) > 2 && path[1] == '/' {
		return path[2:]
	}
	return path
}

// quoteEnd returns the offset after the quote that begins a text, and -1 if it does not end.
func quoteEnd(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

// unquote returns a path without the quotes and escapes that git gives unusual ones.
func unquote(s string) string {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return s
	}
	s = s[1 : len(s)-1]
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		if at := strings.IndexByte("abtnvfr", s[i]); at >= 0 {
			b.WriteByte("\a\b\t\n\v\f\r"[at])
			continue
		}
		if i+2 < len(s) && octal(s[i]) && octal(s[i+1]) && octal(s[i+2]) {
			b.WriteByte((s[i]-'0')<<6 | (s[i+1]-'0')<<3 | (s[i+2] - '0'))
			i += 2
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func octal(ch byte) bool { return ch >= '0' && ch <= '7' }
