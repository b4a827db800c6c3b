package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/ramus-dev/ramus/gitd/object"
)

const (
	// argumentsMax bounds the arguments of one request, such as wants, haves and prefixes.
	argumentsMax = 1_000_000
	// capabilitiesMax bounds the lines before the arguments.
	capabilitiesMax = 100
	// prefixesMax is the number of prefixes from which on git does not filter a list of refs.
	prefixesMax = 65536
)

// The commands of protocol v2 that are served.
const (
	CommandRefs  = "ls-refs"
	CommandFetch = "fetch"
	CommandInfo  = "object-info" // answered by git, and only for clients that may read everything
)

// Request is one request of protocol v2 (gitprotocol-v2). The field of its command is set.
type Request struct {
	Command string // empty if the client ends the conversation
	Refs    RefsRequest
	Fetch   FetchRequest
	Info    []string // the arguments of object-info
}

// RefsRequest holds the arguments of ls-refs.
type RefsRequest struct {
	Peel, Symrefs, Unborn bool
	Prefixes              []string
}

// ParseRequest reads one request. Returns a Request without a command if in ends before it. Returns an
// [object.Refusal] if the request is not well-formed or too long.
func ParseRequest(in io.Reader) (*Request, error) {
	lines := NewReader(in)
	q := &Request{}
	for n := 0; ; n++ {
		line, kind, err := lines.Next()
		switch {
		case err == io.EOF && n == 0:
			return q, nil
		case err != nil:
			return nil, requestError(err)
		case kind == Flush:
			return q, q.finish()
		case kind == Delim:
			if err := q.arguments(lines); err != nil {
				return nil, err
			}
			return q, q.finish()
		case kind != Data || n == capabilitiesMax:
			return nil, object.Refuse(object.ErrInvalid, "malformed packet in the request")
		}
		if err := q.capability(Chomp(line)); err != nil {
			return nil, err
		}
	}
}

// requestError turns an error of a [Reader] into the refusal of a request.
func requestError(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return object.Refuse(object.ErrInvalid, "the request ends early")
	case errors.Is(err, errLine):
		return object.Refuse(object.ErrInvalid, "malformed packet in the request")
	}
	return err
}

// Chomp returns line without the line end that it may have.
func Chomp(line []byte) string { return string(bytes.TrimSuffix(line, []byte("\n"))) }

// capability parses a line before the arguments.
func (q *Request) capability(line string) error {
	key, value, _ := strings.Cut(line, "=")
	switch key {
	case "command":
		if q.Command != "" {
			return object.Refuse(object.ErrInvalid, "more than one command in a request")
		}
		switch value {
		case CommandRefs, CommandFetch, CommandInfo:
			q.Command = value
			return nil
		}
		return object.Refuse(object.ErrInvalid, "the command %.40q is not known here", value)
	case "object-format":
		if value != "sha1" {
			return object.Refuse(object.ErrInvalid, "the repository's object format is sha1, the client's %.40q", value)
		}
	case "agent", "session-id", "server-option":
	default:
		return object.Refuse(object.ErrInvalid, "the capability %.40q is not known here", key)
	}
	return nil
}

// arguments parses the lines from the delimiter to the flush.
func (q *Request) arguments(lines *Reader) error {
	for n := 0; ; n++ {
		line, kind, err := lines.Next()
		switch {
		case err != nil:
			return requestError(err)
		case kind == Flush:
			return nil
		case kind != Data:
			return object.Refuse(object.ErrInvalid, "malformed packet in the request")
		case n == argumentsMax:
			return object.Refuse(object.ErrTooLarge, "more than %d arguments in a request", argumentsMax)
		}
		text := Chomp(line)
		switch q.Command {
		case CommandRefs:
			q.Refs.argument(text)
		case CommandFetch:
			if err := q.Fetch.argument(text); err != nil {
				return err
			}
		case CommandInfo:
			if strings.ContainsFunc(text, unicode.IsControl) {
				return unexpected(text)
			}
			q.Info = append(q.Info, text)
		default:
			return object.Refuse(object.ErrInvalid, "a request without a command")
		}
	}
}

// finish checks the parts of a request against each other.
func (q *Request) finish() error {
	if len(q.Refs.Prefixes) >= prefixesMax {
		q.Refs.Prefixes = nil
	}
	f := &q.Fetch
	if f.Depth > 0 && (f.DeepenSince != 0 || len(f.DeepenNot) > 0) {
		return object.Refuse(object.ErrInvalid, "deepen and deepen-since (or deepen-not) cannot be used together")
	}
	for _, list := range []*[]object.Hash{&f.Wants, &f.Haves, &f.Shallow} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return nil
}

// argument parses one line. Like git, it ignores unknown lines.
func (q *RefsRequest) argument(line string) {
	switch line {
	case "peel":
		q.Peel = true
	case "symrefs":
		q.Symrefs = true
	case "unborn":
		q.Unborn = true
	default:
		if prefix, ok := strings.CutPrefix(line, "ref-prefix "); ok && len(q.Prefixes) < prefixesMax {
			q.Prefixes = append(q.Prefixes, prefix)
		}
	}
}

// unexpected returns the refusal of a line.
func unexpected(line string) error {
	return object.Refuse(object.ErrInvalid, "unexpected line: %.100q", line)
}

// RenderInfo returns a request for object-info to git.
func RenderInfo(arguments []string) []byte {
	b := append(AppendLine(AppendLine(nil, "command=object-info\n"), "object-format=sha1\n"), "0001"...)
	for _, line := range arguments {
		b = AppendLine(b, line, "\n")
	}
	return append(b, FlushLine...)
}

// Capabilities returns the part of the capabilities of git in protocol v2 that is served. A newer git
// has more. all reports whether the client may read everything.
func Capabilities(advert []byte, all bool) ([]byte, error) {
	lines := NewReader(bytes.NewReader(advert))
	var b []byte
	for {
		line, kind, err := lines.Next()
		switch {
		case err != nil:
			return nil, fmt.Errorf("cannot read the capabilities of git: %w", err)
		case kind == Flush:
			if b == nil {
				return nil, errors.New("cannot read the capabilities of git: there are none")
			}
			return append(b, FlushLine...), nil
		}
		text := Chomp(line)
		key, value, _ := strings.Cut(text, "=")
		switch {
		case b == nil && text != "version 2":
			return nil, fmt.Errorf("cannot read the capabilities of git: it does not speak protocol v2 but %.100q", text)
		case key == "version 2", key == "agent", key == "server-option", key == "object-format":
		case key == CommandRefs:
			text = CommandRefs
			if slices.Contains(strings.Fields(value), "unborn") {
				text += "=unborn"
			}
		case key == CommandFetch:
			features := slices.DeleteFunc(strings.Fields(value), func(f string) bool {
				return f != "shallow" && f != "wait-for-done" && f != "filter"
			})
			text = CommandFetch
			if len(features) > 0 {
				text += "=" + strings.Join(features, " ")
			}
		case key == CommandInfo && all:
		default:
			continue
		}
		b = AppendLine(b, text, "\n")
	}
}

// ValidVersion returns the value of GIT_PROTOCOL for the one that a client sent. Returns "" for an unknown one.
func ValidVersion(sent string) string {
	switch sent {
	case "version=0", "version=1", "version=2":
		return sent
	}
	return ""
}
