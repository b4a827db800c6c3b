package main

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"unicode"

	"github.com/ramus-dev/ramus/internal/standin/slacktest"
)

// screen prints the events of the workspace to a terminal.
type screen struct {
	mu       sync.Mutex // guards the fields below
	out      io.Writer
	users    map[string]string // names by id
	channels map[string]string
	last     map[string]string // the latest text of a message, by its ts
}

func (s *screen) name(id, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users[id] = name
}

func (s *screen) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, format+"\n", args...)
}

// change prints a change. It omits an edit that changes nothing visible.
func (s *screen) change(c slacktest.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := c.Message
	clock := c.At.Local().Format("15:04:05")
	text := shown(m.Blocks)
	if text == "" {
		text = m.Text
	}
	text = s.people(text)
	if s.last == nil {
		s.last = map[string]string{}
	}
	who := s.users[m.User]
	switch c.Kind {
	case "post":
	case "edit":
		if s.last[m.TS] == text {
			return
		}
		who += " (edited)"
	case "reaction", "unreaction":
		sign := "+"
		if c.Kind == "unreaction" {
			sign = "-"
		}
		fmt.Fprintf(s.out, "%s   %s:%s: by %s, on what %s said\n", clock, sign, c.Name, s.users[c.User], who)
		return
	case "ephemeral", "response":
		who += " to " + s.users[c.User] + " alone"
	}
	s.last[m.TS] = text
	indent := ""
	if m.ThreadTS != "" {
		indent = "  "
	}
	fmt.Fprintf(s.out, "%s %s%s, #%s\n", clock, indent, who, s.channels[m.Channel])
	for _, f := range m.Files {
		text += fmt.Sprintf("\n(%s, %d bytes)", f.Name, len(f.Data))
	}
	for line := range strings.Lines(text) {
		fmt.Fprintf(s.out, "           %s%s\n", indent, strings.TrimRight(line, "\n"))
	}
}

var userMention = regexp.MustCompile(`<@([A-Za-z0-9]+)>`)

// people replaces ids by names and decodes entities. It removes the characters with which a text from a container could
// move the cursor.
func (s *screen) people(text string) string {
	text = userMention.ReplaceAllStringFunc(text, func(m string) string {
		if name := s.users[m[2:len(m)-1]]; name != "" {
			return "@" + name
		}
		return m
	})
	text = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(text)
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) && c != '\n' && c != '\t' {
			return -1
		}
		return c
	}, text)
}

// shown returns the text of blocks, at least one line for each.
func shown(raw json.RawMessage) string {
	type object struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	type element struct {
		Type        string          `json:"type"`
		Text        json.RawMessage `json:"text"`
		AltText     string          `json:"alt_text"`
		URL         string          `json:"url"`
		Placeholder object          `json:"placeholder"`
		Options     []struct {
			Text object `json:"text"`
		} `json:"options"`
	}
	var blocks []struct {
		Type      string          `json:"type"`
		Text      json.RawMessage `json:"text"` // an object, in a markdown block a string
		Fields    []object        `json:"fields"`
		AltText   string          `json:"alt_text"`
		Elements  []element       `json:"elements"`
		Accessory *element        `json:"accessory"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &blocks) != nil {
		return ""
	}
	plain := func(raw json.RawMessage) string {
		var o object
		var text string
		if json.Unmarshal(raw, &text) == nil {
			return text
		}
		_ = json.Unmarshal(raw, &o)
		return o.Text
	}
	var lines []string
	for _, b := range blocks {
		switch b.Type {
		case "divider":
			lines = append(lines, "────")
			continue
		case "image":
			lines = append(lines, "("+b.AltText+")")
			continue
		}
		if text := plain(b.Text); text != "" {
			lines = append(lines, text)
		}
		for _, f := range b.Fields {
			lines = append(lines, f.Text)
		}
		if b.Accessory != nil {
			b.Elements = append(b.Elements, *b.Accessory)
		}
		var row []string
		for _, e := range b.Elements {
			text := plain(e.Text)
			switch {
			case e.Type == "button" && e.URL != "":
				text = "[" + text + " → " + e.URL + "]"
			case e.Type == "button":
				text = "[" + text + "]"
			case e.Type == "image":
				text = "(" + e.AltText + ")"
			case len(e.Options) > 0:
				text = "[" + e.Placeholder.Text + ":"
				for _, o := range e.Options {
					text += " " + o.Text.Text
				}
				text += "]"
			}
			row = append(row, text)
		}
		if len(row) > 0 {
			lines = append(lines, strings.Join(row, "  "))
		}
	}
	return strings.Join(lines, "\n")
}
