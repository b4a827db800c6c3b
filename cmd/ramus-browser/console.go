package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// Bounds on console.jsonl.
const (
	maxConsoleLines = 2000
	maxConsoleText  = 8 << 10
	maxKinds        = 20
)

// consoleLog writes console.jsonl. It is not safe for concurrent use.
type consoleLog struct {
	begun   time.Time
	file    *os.File
	w       *bufio.Writer
	lines   int
	dropped int
	counts  map[string]int
	err     error // the first error of writing
}

func newConsoleLog(name string, begun time.Time) (*consoleLog, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("cannot write the console down: %w", err)
	}
	return &consoleLog{begun: begun, file: f, w: bufio.NewWriter(f), counts: make(map[string]int)}, nil
}

// add counts a line, and keeps it if there is room.
func (l *consoleLog) add(kind, message, url string, line int) {
	kind = text.Clip(kind, 40)
	if _, known := l.counts[kind]; known || len(l.counts) < maxKinds {
		l.counts[kind]++
	}
	if l.lines >= maxConsoleLines || l.err != nil {
		l.dropped++
		return
	}
	l.lines++
	encoded, err := encodeLine(browser.ConsoleLine{
		TimeMS: time.Since(l.begun).Milliseconds(),
		Kind:   kind, Text: text.Clip(message, maxConsoleText), URL: text.Clip(url, maxURL), Line: line,
	})
	if err == nil {
		_, err = l.w.WriteString(encoded)
	}
	l.err = err
}

func encodeLine(c browser.ConsoleLine) (string, error) {
	text, err := json.Marshal(c)
	return string(text) + "\n", err
}

// close finishes the file.
func (l *consoleLog) close() error {
	err := l.err
	if ferr := l.w.Flush(); err == nil {
		err = ferr
	}
	if cerr := l.file.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("cannot write the console down: %w", err)
	}
	return nil
}
