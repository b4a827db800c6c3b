package gitd

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// progressLines passes the progress of git on, line by line. Git overwrites a line with '\r'. Text of a remote
// server in it loses its control characters.
type progressLines struct {
	mu   sync.Mutex // guards line, because two goroutines write
	to   io.Writer
	line []byte
}

func newProgress(to io.Writer) *progressLines {
	if to == nil {
		to = io.Discard
	}
	return &progressLines{to: to}
}

func (p *progressLines) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range b {
		switch {
		case c == '\n' || c == '\r':
			p.emitLine()
		case c >= ' ' && c != 0x7f && len(p.line) < 400:
			p.line = append(p.line, c)
		}
	}
	return len(b), nil
}

// emitLine writes the line. The caller holds the lock. A reader that is gone does not end an import.
func (p *progressLines) emitLine() {
	if line := bytes.TrimSpace(p.line); len(line) > 0 {
		fmt.Fprintf(p.to, "%s\n", bytes.ToValidUTF8(line, []byte("?")))
	}
	p.line = p.line[:0]
}

func (p *progressLines) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.emitLine()
}
