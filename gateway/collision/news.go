package collision

import (
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gitd"
)

// News is a message about a collision.
type News struct {
	// Key is the same each time that the message is sent.
	Key string
	// Slack and Markdown are the text.
	Slack, Markdown string

	gone bool
}

const (
	namedFiles = 5 // files that a message names
	nameBytes  = 200
)

// newNews returns the messages to the people of one of two branches, first that the conflict is there, and if it has
// gone that too. other is the other branch. own reports whether the lines of the branch are the first ones of each file.
func newNews(c collision, other string, own bool) []News {
	text := func(name func(s string, most int) string) string {
		var files []string
		for _, f := range c.Files[:min(len(c.Files), namedFiles)] {
			files = append(files, name(f.Path, nameBytes)+lines(f, own))
		}
		if more := len(c.Files) - len(files) + c.More; more > 0 {
			files = append(files, fmt.Sprintf("and %d more", more))
		}
		return "This branch does not merge with " + name(other, nameBytes) + ": " + strings.Join(files, ", ") + "."
	}
	list := []News{{Key: "collides:" + c.ID, Slack: "⚠️ " + text(render.InlineText), Markdown: text(render.MarkdownText)}}
	if c.Gone {
		list = append(list, News{Key: "merges:" + c.ID, gone: true,
			Slack:    "✅ The conflict with " + render.InlineText(other, nameBytes) + " is gone.",
			Markdown: "The conflict with " + render.MarkdownText(other, nameBytes) + " is gone."})
	}
	return list
}

// lines returns the first lines of a file that collide, those of the branch first, or the kind of the conflict.
func lines(f gitd.CollidingFile, own bool) string {
	if len(f.Regions) == 0 {
		if f.Kind == "" {
			return ""
		}
		return " (" + f.Kind + ")"
	}
	ours, theirs := f.Regions[0].Ours, f.Regions[0].Theirs
	if !own {
		ours, theirs = theirs, ours
	}
	return fmt.Sprintf(" (line %d, there %d)", max(ours.From, 1), max(theirs.From, 1))
}
