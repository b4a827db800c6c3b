package protocol

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/ramus-dev/ramus/gitd/object"
)

// commandsMax bounds the commands of one push, which are held in memory. A mirror of 50,000 branches
// fits.
const commandsMax = 50_000

// Command is one change of a ref that a push asks for (gitprotocol-pack).
type Command struct {
	Old, New string // hexadecimal, all zeros means that the ref does not exist
	Ref      string
}

// Creates reports whether the ref must not exist before.
func (c Command) Creates() bool { return isZero(c.Old) }

// Deletes reports whether the ref is deleted.
func (c Command) Deletes() bool { return isZero(c.New) }

// isZero reports whether hex is the name of no object.
func isZero(hex string) bool { return strings.Trim(hex, "0") == "" }

// PushRequest is the part of a push before its pack.
type PushRequest struct {
	Commands []Command
	Report   bool // the client wants a report
	Band     int  // the length of the longest side-band packet, 0 means no side bands
	HashLen  int  // of object names in bytes
	Unusual  bool // the push has more than commands, which only git understands
	// Options are those of git push -o, without line ends.
	Options []string
}

// Packed reports whether a pack follows.
func (p PushRequest) Packed() bool {
	for _, c := range p.Commands {
		if !c.Deletes() {
			return true
		}
	}
	return false
}

// ParsePush reads commands and push options up to the start of the pack. A request without commands, by
// which clients test their credentials, is not an error. Returns an [object.Refusal] if the request
// is not well-formed or too long.
func ParsePush(r io.Reader) (PushRequest, error) {
	var p PushRequest
	lines := NewReader(r)
	options := false
	for {
		line, kind, err := lines.Next()
		if err == io.EOF && len(p.Commands) == 0 {
			return p, nil
		}
		if err != nil {
			return p, pushError(err)
		}
		if kind == Flush {
			break
		}
		if kind != Data {
			return p, object.Refuse(object.ErrInvalid, "unexpected packet among the commands")
		}
		if rest, ok := bytes.CutPrefix(line, []byte("shallow ")); ok {
			if !isObjectName(strings.TrimSuffix(string(rest), "\n")) {
				return p, object.Refuse(object.ErrInvalid, "malformed shallow line")
			}
			p.Unusual = true
			continue
		}
		text, caps, _ := strings.Cut(string(line), "\x00")
		if len(p.Commands) == 0 {
			for c := range strings.FieldsSeq(caps) {
				switch c {
				case "report-status", "report-status-v2":
					p.Report = true
				case "side-band-64k":
					p.Band = MaxLine
				case "side-band":
					p.Band = max(p.Band, 1000)
				case "push-options":
					options, p.Unusual = true, true
				}
			}
		}
		c, err := parseCommand(strings.TrimSuffix(text, "\n"))
		if err != nil {
			return p, err
		}
		p.HashLen = len(c.Old) / 2
		if p.Commands = append(p.Commands, c); len(p.Commands) > commandsMax {
			return p, object.Refuse(object.ErrTooLarge, "more than %d refs in one push", commandsMax)
		}
	}
	for n := 0; options && len(p.Commands) > 0; n++ {
		line, kind, err := lines.Next()
		if err != nil {
			return p, pushError(err)
		}
		if kind == Flush {
			break
		}
		p.Options = append(p.Options, strings.TrimSuffix(string(line), "\n"))
		if n > 1000 {
			return p, object.Refuse(object.ErrTooLarge, "too many push options")
		}
	}
	return p, nil
}

// pushError turns an error of a [Reader] into the refusal of a push.
func pushError(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return object.Refuse(object.ErrInvalid, "the push ends within its commands")
	case errors.Is(err, errLine):
		return object.Refuse(object.ErrInvalid, "malformed packet among the commands")
	}
	return err
}

// parseCommand parses one command.
func parseCommand(line string) (Command, error) {
	old, rest, _ := strings.Cut(line, " ")
	new, ref, ok := strings.Cut(rest, " ")
	if !ok || !isObjectName(old) || !isObjectName(new) || len(old) != len(new) {
		if strings.HasPrefix(line, "push-cert") {
			return Command{}, object.Refuse(object.ErrInvalid, "signed pushes are not accepted")
		}
		return Command{}, object.Refuse(object.ErrInvalid, "malformed command")
	}
	return Command{old, new, ref}, nil
}

// isObjectName reports whether s looks like an object name.
func isObjectName(s string) bool { return object.CheckHash(object.Hash(s)) == nil }
