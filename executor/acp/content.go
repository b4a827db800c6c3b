package acp

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/internal/text"
)

// The types of a Content.
const (
	ContentBlock    = "content"
	ContentDiff     = "diff"
	ContentTerminal = "terminal"
)

// Content is one part of a tool call's result, in the protocol's own form.
type Content struct {
	Type string `json:"type"`
	// Block is of ContentBlock.
	Block *Block `json:"content,omitempty"`
	// Path, Old and New are of ContentDiff. Old is nil for a new file.
	Path string  `json:"path,omitempty"`
	Old  *string `json:"oldText,omitempty"`
	New  string  `json:"newText,omitempty"`
	// Terminal is of ContentTerminal.
	Terminal string `json:"terminalId,omitempty"`
}

// Block is a text, or another block, of which only the type is kept.
type Block struct {
	Type string `json:"type"`
	Text string `json:"text,omitempty"`
}

// Contents are the parts of a result. An agent may send parts that this package does not know. They are left out.
type Contents []Content

// UnmarshalJSON implements json.Unmarshaler. It never fails.
func (c *Contents) UnmarshalJSON(data []byte) error {
	*c = nil
	var parts []json.RawMessage
	if json.Unmarshal(data, &parts) != nil {
		return nil
	}
	for _, raw := range parts {
		if len(*c) > maxParts {
			break // Shorten reports that there are more
		}
		var one Content
		if json.Unmarshal(raw, &one) != nil {
			continue
		}
		switch {
		case one.Type == ContentBlock && one.Block != nil && one.Block.Type == "text" && one.Block.Text != "":
			*c = append(*c, Content{Type: one.Type, Block: one.Block})
		case one.Type == ContentDiff && one.Path != "":
			*c = append(*c, Content{Type: one.Type, Path: one.Path, Old: one.Old, New: one.New})
		case one.Type == ContentTerminal && one.Terminal != "":
			*c = append(*c, Content{Type: one.Type, Terminal: one.Terminal})
		}
	}
	return nil
}

// Size returns the bytes of all texts.
func (c Contents) Size() (n int) {
	for _, one := range c {
		n += len(one.Path) + len(one.New) + len(one.Terminal)
		if one.Old != nil {
			n += len(*one.Old)
		}
		if one.Block != nil {
			n += len(one.Block.Text)
		}
	}
	return n
}

// maxParts bounds the parts of one result.
const maxParts = 20

// Shorten returns the parts with at most about most bytes of text in all, without change of c. Of a text that is printed, the end is
// kept, and of all others the beginning. Both sides of a diff lose the lines that they begin and end with alike, as far as more than
// a few surround the change. cut reports whether anything was left out.
func (c Contents) Shorten(most int, end bool) (short Contents, cut bool) {
	if len(c) > maxParts {
		c, cut = c[:maxParts], true
	}
	for _, one := range slices.Clone(c) {
		switch {
		case one.Block != nil:
			b := *one.Block
			if len(b.Text) > most {
				cut = true
				if end {
					b.Text = text.ClipEnd(b.Text, most)
				} else {
					b.Text = text.Clip(b.Text, most)
				}
			}
			most -= len(b.Text)
			one.Block = &b
		case one.Type == ContentDiff:
			one.Path = text.Clip(one.Path, 300)
			size := len(one.New)
			if one.Old != nil {
				size += len(*one.Old)
			}
			if size > most {
				cut = true
				one.shortenDiff(most)
			}
			most -= len(one.New)
			if one.Old != nil {
				most -= len(*one.Old)
			}
		default:
			one.Terminal = text.Clip(one.Terminal, 200)
		}
		short = append(short, one)
		most = max(most, 0)
	}
	return short, cut
}

// around is the number of lines around a change that shortenDiff leaves.
const around = 3

// shortenDiff leaves out the lines that both sides begin and end with, and clips the rest.
func (c *Content) shortenDiff(most int) {
	if c.Old == nil {
		c.New = text.Clip(c.New, most)
		return
	}
	before, after := strings.SplitAfter(*c.Old, "\n"), strings.SplitAfter(c.New, "\n")
	head, least := 0, min(len(before), len(after))
	for head < least && before[head] == after[head] {
		head++
	}
	tail := 0
	for tail < least-head && before[len(before)-1-tail] == after[len(after)-1-tail] {
		tail++
	}
	head, tail = max(head-around, 0), max(tail-around, 0)
	old := text.Clip(strings.Join(before[head:len(before)-tail], ""), most/2)
	c.Old, c.New = &old, text.Clip(strings.Join(after[head:len(after)-tail], ""), most-most/2)
}
