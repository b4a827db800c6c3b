package forge

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// Mark returns the name of a post by its mark. It says nothing about the mark.
func Mark(mark string) string {
	sum := sha256.Sum256([]byte("ramus post\x00" + mark))
	return "ramus:" + hex.EncodeToString(sum[:16])
}

// Trailer returns the last line of a post with a mark, a comment of HTML that is invisible to people. It is the last
// line, so that no text within a post can imitate it.
func Trailer(mark string) string { return "<!-- " + Mark(mark) + " -->" }

// EndsWith reports whether a post ends with a trailer. A quote of a post may contain its trailer elsewhere.
func EndsWith(body, trailer string) bool { return strings.HasSuffix(strings.TrimSpace(body), trailer) }

// Body returns a text for a post with a trailer, which may be empty. It has at most most characters. site is the title
// of the forge that has this limit. The caller has removed secrets.
func Body(text, trailer string, most int, site string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if trailer != "" {
		trailer = "\n\n" + trailer
	}
	if room := most - utf8.RuneCountInString(trailer); utf8.RuneCountInString(text) > room {
		text = cut(text, room, "\n\n*The rest of the text exceeds "+site+"'s limit.*")
	}
	return text + trailer
}

// Line returns a text as one line of at most most characters, such as a title.
func Line(text string, most int) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " ")
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most-1]) + "…"
	}
	return text
}

// Limits of texts that a forge returns, in bytes.
const (
	// MaxText is GitHub's limit for a body, 65536 characters.
	MaxText = 65536 * utf8.UTFMax
	// MaxHunk bounds a diff hunk. Forges have no bound.
	MaxHunk = 32 << 10
)

// Bounded clips a body to [MaxText].
func Bounded(text string) string {
	if len(text) > MaxText {
		text = strings.Clone(strings.ToValidUTF8(text[:MaxText], "")) // without the memory of the rest
	}
	return text
}

// LastLines clips a diff hunk to its end, because a comment is on its last line.
func LastLines(hunk string) string {
	if len(hunk) <= MaxHunk {
		return hunk
	}
	hunk = hunk[len(hunk)-MaxHunk:]
	if _, rest, _ := strings.Cut(hunk, "\n"); rest != "" {
		hunk = rest
	}
	return strings.Clone(strings.ToValidUTF8(hunk, ""))
}

// cut clips Markdown to a number of characters, at the end of a line if there is one, and closes open parts. note is
// its end.
func cut(body string, room int, note string) string {
	const spare = 256 // for closing open parts
	runes := []rune(body)
	kept := string(runes[:room-spare-utf8.RuneCountInString(note)])
	if i := strings.LastIndexByte(kept, '\n'); i > len(kept)/2 {
		kept = kept[:i]
	}
	return kept + closing(kept) + note
}

// longestFence is the length of the longest fence that is closed.
const longestFence = 100

// closing returns the text that closes the code block, or the folded parts, in which a text ends.
func closing(text string) string {
	fence, folded := "", 0
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		mark := line[:len(line)-len(strings.TrimLeft(line, "`"))]
		if mark == "" {
			mark = line[:len(line)-len(strings.TrimLeft(line, "~"))]
		}
		switch {
		case fence == "" && len(mark) >= 3 && len(mark) <= longestFence:
			fence = mark
		case fence != "" && strings.HasPrefix(mark, fence) && mark == line:
			fence = ""
		case fence == "":
			folded = max(0, folded+strings.Count(line, "<details")-strings.Count(line, "</details>"))
		}
	}
	out := ""
	if fence != "" {
		out = "\n" + fence
	}
	return out + strings.Repeat("\n\n</details>", min(folded, 8))
}
