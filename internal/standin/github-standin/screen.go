package main

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/ramus-dev/ramus/internal/standin/githubtest"
)

// say prints a line to the terminal.
func (h *hub) say(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fmt.Fprintf(h.out, format+"\n", args...)
}

// change prints a change, and records those of the App.
func (h *hub) change(c githubtest.Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.Kind == "delivery" {
		missed := c.Ref[0] != '2' && !strings.HasPrefix(c.Text, "ping ") // the verb ping reports it itself
		if h.verbose || missed {
			fmt.Fprintf(h.out, "%s   webhook %s\n", c.At.Local().Format("15:04:05"), clean(c.Text))
		}
		return
	}
	if c.Kind == "open" {
		h.number = c.Number
	}
	what := clean(told(c))
	if c.User == h.bot {
		h.done = append(h.done, what)
	}
	first, rest, _ := strings.Cut(what, "\n")
	fmt.Fprintf(h.out, "%s %s\n", c.At.Local().Format("15:04:05"), first)
	shown := 0
	for line := range strings.Lines(rest) {
		if shown++; shown > mostLines {
			fmt.Fprintln(h.out, "           …")
			break
		}
		fmt.Fprintln(h.out, strings.TrimRight("           "+line, " \n"))
	}
}

// mostLines bounds the lines of a text. The verb show prints all.
const mostLines = 12

// told describes a change in a line, with its text below.
func told(c githubtest.Change) string {
	short := c.SHA[:min(10, len(c.SHA))]
	said := ""
	if c.Text != "" {
		said = "\n" + c.Text
	}
	switch c.Kind {
	case "push":
		return fmt.Sprintf("%s pushed %s, %s is %s", c.User, c.Text, c.Ref, short)
	case "delete":
		return fmt.Sprintf("%s deleted the branch %s", c.User, c.Ref)
	case "open":
		return fmt.Sprintf("%s opened #%d%s", c.User, c.Number, said)
	case "edit":
		return fmt.Sprintf("%s edited #%d: %s", c.User, c.Number, c.Text)
	case "close":
		return fmt.Sprintf("%s closed #%d", c.User, c.Number)
	case "reopen":
		return fmt.Sprintf("%s reopened #%d", c.User, c.Number)
	case "ready":
		return fmt.Sprintf("%s says that #%d is ready for review", c.User, c.Number)
	case "merge":
		return fmt.Sprintf("%s merged #%d at %s", c.User, c.Number, c.Text[:min(10, len(c.Text))])
	case "comment":
		return fmt.Sprintf("%s commented on #%d%s", c.User, c.Number, said)
	case "line":
		return fmt.Sprintf("%s commented on #%d, %s:%d%s", c.User, c.Number, c.Path, c.Line, said)
	case "reply":
		return fmt.Sprintf("%s answered on #%d, %s:%d%s", c.User, c.Number, c.Path, c.Line, said)
	case "review":
		return fmt.Sprintf("%s reviewed #%d: %s%s", c.User, c.Number, strings.ReplaceAll(c.Ref, "_", " "), said)
	case "dismiss":
		return fmt.Sprintf("%s dismissed a review of #%d%s", c.User, c.Number, said)
	case "request":
		return fmt.Sprintf("%s asked %s to review #%d", c.User, c.Text, c.Number)
	case "label":
		return fmt.Sprintf("%s labelled #%d %s", c.User, c.Number, c.Text)
	case "check":
		state := c.Ref
		if state == "" {
			state = "running"
		}
		return fmt.Sprintf("%s, check %s: %s", c.User, strings.TrimSuffix(c.Text, ":"), state)
	case "workflow":
		state := c.Ref
		if state == "" {
			state = "running"
		}
		return fmt.Sprintf("%s, workflow %s: %s", c.User, c.Text, state)
	}
	return fmt.Sprintf("%s: %s%s", c.User, c.Kind, said)
}

// clean removes the characters with which a text could move the cursor, and the comments that no page shows.
func clean(text string) string {
	for {
		from := strings.Index(text, "<!--")
		to := strings.Index(text[max(from, 0):], "-->")
		if from < 0 || to < 0 {
			break
		}
		text = text[:from] + text[from+to+len("-->"):]
	}
	text = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) && c != '\n' && c != '\t' {
			return -1
		}
		return c
	}, text)
	return strings.TrimSpace(empty.ReplaceAllString(text, "\n\n"))
}

var empty = regexp.MustCompile(`\n\s*\n`)
