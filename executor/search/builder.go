package search

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/ramus-dev/ramus/internal/text"
)

// MaxRun bounds the text of one run that is indexed, in bytes.
const MaxRun = 256 << 20

// Builder gets the passages of one run and makes chunks of them. It is used by one goroutine.
type Builder struct {
	emit  func(signature, encoded []byte) error
	now   chunk
	seen  []uint64
	bytes int64
	cut   bool
}

func newBuilder(emit func(signature, encoded []byte) error) *Builder {
	return &Builder{emit: emit, seen: make([]uint64, 1<<24/64)}
}

// Add adds a passage with a short text. An empty text adds nothing.
func (b *Builder) Add(p Passage, text string) error {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	return b.Copy(p, strings.NewReader(text))
}

// maxStep bounds the name of a step in the index, in bytes. Each part of a chunk has one.
const maxStep = 200

// Copy adds a passage that it reads to its end. Text above [MaxRun] is left out.
func (b *Builder) Copy(p Passage, from io.Reader) error {
	p.Step = strings.Clone(text.Head(p.Step, maxStep))
	lines := bufio.NewReaderSize(from, chunkText)
	number, begun, inLine := int64(1), false, false
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			if b.bytes+int64(len(line)) > MaxRun {
				b.cut = true
				return nil
			}
			if len(b.now.text) > 0 && len(b.now.text)+len(line) > chunkText {
				if err := b.flush(); err != nil {
					return err
				}
				begun = false
			}
			if !begun || inLine { // the rest of a long line has the line's own number
				b.now.parts = append(b.now.parts, part{p, len(b.now.text), number})
				begun = true
			}
			b.now.text = append(b.now.text, bytes.TrimRight(line, "\r\n")...)
			b.now.text = append(b.now.text, '\n')
			b.bytes += int64(len(line))
			if inLine = line[len(line)-1] != '\n'; !inLine {
				number++
			}
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

func (b *Builder) flush() error {
	if len(b.now.text) == 0 {
		return nil
	}
	encoded, err := b.now.encode()
	if err != nil {
		return err
	}
	s := sign(fold(b.now.text), b.seen)
	b.now = chunk{text: b.now.text[:0]}
	return b.emit(s, encoded)
}
