package search

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/klauspost/compress/s2"
)

// chunkText is the number of bytes of text from which a chunk is full, and the bound of a line. What follows in a longer line is a new
// line of the same number.
const chunkText = 64 << 10

// Kind says which text of a run a passage is.
type Kind string

// The kinds of passages.
const (
	KindPrompt  Kind = "prompt"
	KindAnswer  Kind = "answer"  // the words of an agent
	KindCommand Kind = "command" // also the task of a step, and a call of a tool by an agent
	KindOutput  Kind = "output"
	KindPath    Kind = "path"    // of a changed file
	KindSubject Kind = "subject" // the first line of a commit's message
	KindPerson  Kind = "person"  // the name of the person who asked
)

// Kinds are all kinds.
var Kinds = []Kind{KindPrompt, KindAnswer, KindCommand, KindOutput, KindPath, KindSubject, KindPerson}

// byLine reports whether all words must be in one line of a passage. In others they may be in several lines.
func (k Kind) byLine() bool { return k != KindPrompt && k != KindAnswer }

// Passage is one text of a run.
type Passage struct {
	Kind Kind `json:"kind"`
	// Seq is the number of the event that it belongs to, which is the begin of a step for commands and outputs. It is 0 for the run.
	Seq    int64  `json:"seq,omitempty"`
	Step   string `json:"step,omitempty"`   // at most 200 bytes of its name
	Stream string `json:"stream,omitempty"` // of an output or an answer: "stdout" or "stderr"
}

// part is the part of a passage in a chunk.
type part struct {
	Passage
	At   int   `json:"at"`   // the place of its first byte in the chunk's text
	Line int64 `json:"line"` // the number of its first line in the passage, from 1
}

// chunk is a part of the text of a run. Each part ends with a line end.
type chunk struct {
	parts []part
	text  []byte
}

// encode returns the chunk as the index keeps it: a checksum, and the compressed parts and text.
func (c *chunk) encode() ([]byte, error) {
	parts, err := json.Marshal(c.parts)
	if err != nil {
		return nil, err
	}
	packed := s2.Encode(nil, slices.Concat(parts, []byte{'\n'}, c.text))
	return append(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(packed)), packed...), nil
}

// maxEncoded bounds a chunk that is read, in bytes. Its parts are at most one for each line.
const maxEncoded = 64 << 20

// decodeChunk returns the chunk of an entry. The error is an [ErrDamaged] if it is not one.
func decodeChunk(b []byte) (c chunk, err error) {
	if len(b) < 4 || crc32.ChecksumIEEE(b[4:]) != binary.BigEndian.Uint32(b) {
		return c, fmt.Errorf("%w: a chunk does not have its checksum", ErrDamaged)
	}
	if n, err := s2.DecodedLen(b[4:]); err != nil {
		return c, fmt.Errorf("%w: %w", ErrDamaged, err)
	} else if n > maxEncoded {
		return c, fmt.Errorf("%w: a chunk has %d bytes", ErrDamaged, n)
	}
	plain, err := s2.Decode(nil, b[4:])
	if err != nil {
		return c, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	parts, text, ok := bytes.Cut(plain, []byte{'\n'})
	if !ok || json.Unmarshal(parts, &c.parts) != nil || len(c.parts) == 0 {
		return c, fmt.Errorf("%w: a chunk has no parts", ErrDamaged)
	}
	for i, p := range c.parts {
		if p.At < 0 || p.At > len(text) || i == 0 && p.At != 0 || i > 0 && p.At <= c.parts[i-1].At {
			return c, fmt.Errorf("%w: the parts of a chunk are in disorder", ErrDamaged)
		}
	}
	c.text = text
	return c, nil
}
