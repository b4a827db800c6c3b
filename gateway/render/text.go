package render

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/pattern"
	"github.com/ramus-dev/ramus/internal/text"
)

// The ids of buttons in messages. The value of a button is the run's name. For an answer to a gate, a space and the asking step follow,
// and for a choice, a space and the repository.
const (
	ActionStop    = "stop"
	ActionRetry   = "retry"
	ActionDiff    = "diff"
	ActionApprove = "approve"
	ActionReject  = "reject"
	ActionRepo    = "repo"
	ActionPull    = "pull"
)

// ansi matches the escape sequences of terminals.
var ansi = pattern.New("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?|[@-_])")

// Clean returns an untrusted text without a terminal's colours. Characters that are invisible or change the order of others become
// U+FFFD.
func Clean(s string) string {
	s = strings.ToValidUTF8(ansi.ReplaceAllString(s, ""), "\uFFFD")
	s = strings.ReplaceAll(s, "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\r':
			return '\n' // a line that was drawn over
		case r == '\n' || r == '\t' || r == '\u200d': // the last joins emoji
			return r
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r):
			return '\uFFFD'
		}
		return r
	}, s)
}

// ClipClean returns clean text of at most n bytes, and … if it cut.
func ClipClean(s string, n int) string {
	if len(s) <= n {
		return Clean(s)
	}
	return Clean(text.Head(s, n)) + "…"
}

// Duration returns a duration for people.
func Duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

func Time(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// Showable returns the media type of pictures and films that a browser shows without running their content, and "" for all others,
// such as SVG.
func Showable(media string) string {
	switch media {
	case "image/png", "image/jpeg", "image/gif", "image/webp", "video/webm", "video/mp4":
		return media
	}
	return ""
}

func ShortHash(h gitd.Hash) string { return string(h)[:min(10, len(h))] }

// Earlier marks a check of an earlier tree.
const Earlier = "before the last change"

func Plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + one + "s"
}
