package gitd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/ramus-dev/ramus/gitd/object"
)

// Protocol v2 (gitprotocol-v2) is a series of requests that know nothing of each
// other: a command, capabilities, arguments. They are read here, whole and bounded,
// before anything is done; git never sees what a client wrote, only what was
// understood of it.

const (
	// argumentsMax bounds the wants, haves, prefixes and the like of one request.
	argumentsMax = 1_000_000
	// capabilitiesMax bounds what stands in front of them.
	capabilitiesMax = 100
	// prefixesMax is where git itself gives up filtering a list of refs.
	prefixesMax = 65536
)

// The commands of protocol v2 that are served.
const (
	commandRefs  = "ls-refs"
	commandFetch = "fetch"
	commandInfo  = "object-info" // by git itself, and only to those who may read all
)

// request is one request of protocol v2.
type request struct {
	command string // empty: the client says goodbye
	refs    refsRequest
	fetch   fetchRequest
	info    []string // the arguments of object-info
}

// refsRequest is the arguments of ls-refs.
type refsRequest struct {
	peel, symrefs, unborn bool
	prefixes              []string
}

// parseRequest reads one request. The end of the source in front of it is a goodbye.
func parseRequest(in io.Reader) (*request, error) {
	lines := &pktReader{r: in}
	q := &request{}
	for n := 0; ; n++ {
		line, kind, err := lines.next()
		switch {
		case err == io.EOF && n == 0:
			return q, nil
		case err != nil:
			return nil, requestError(err)
		case kind == pktFlush:
			return q, q.finish()
		case kind == pktDelim:
			if err := q.arguments(lines); err != nil {
				return nil, err
			}
			return q, q.finish()
		case kind != pktData || n == capabilitiesMax:
			return nil, object.Refuse(ErrInvalid, "malformed packet in the request")
		}
		if err := q.capability(chomp(line)); err != nil {
			return nil, err
		}
	}
}

func requestError(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return object.Refuse(ErrInvalid, "the request ends early")
	case errors.Is(err, errPktLine):
		return object.Refuse(ErrInvalid, "malformed packet in the request")
	}
	return err
}

func chomp(line []byte) string { return string(bytes.TrimSuffix(line, []byte("\n"))) }

func (q *request) capability(line string) error {
	key, value, _ := strings.Cut(line, "=")
	switch key {
	case "command":
		if q.command != "" {
			return object.Refuse(ErrInvalid, "more than one command in a request")
		}
		switch value {
		case commandRefs, commandFetch, commandInfo:
			q.command = value
			return nil
		}
		return object.Refuse(ErrInvalid, "the command %.40q is not known here", value)
	case "object-format":
		if value != "sha1" {
			return object.Refuse(ErrInvalid, "the repository's object format is sha1, the client's %.40q", value)
		}
	case "agent", "session-id", "server-option":
	default:
		return object.Refuse(ErrInvalid, "the capability %.40q is not known here", key)
	}
	return nil
}

// arguments reads what follows the delimiter, up to the flush.
func (q *request) arguments(lines *pktReader) error {
	for n := 0; ; n++ {
		line, kind, err := lines.next()
		switch {
		case err != nil:
			return requestError(err)
		case kind == pktFlush:
			return nil
		case kind != pktData:
			return object.Refuse(ErrInvalid, "malformed packet in the request")
		case n == argumentsMax:
			return object.Refuse(ErrTooLarge, "more than %d arguments in a request", argumentsMax)
		}
		text := chomp(line)
		switch q.command {
		case commandRefs:
			q.refs.argument(text)
		case commandFetch:
			if err := q.fetch.argument(text); err != nil {
				return err
			}
		case commandInfo:
			if strings.ContainsFunc(text, unicode.IsControl) {
				return unexpected(text)
			}
			q.info = append(q.info, text)
		default:
			return object.Refuse(ErrInvalid, "a request without a command")
		}
	}
}

// finish checks what only the whole request can tell.
func (q *request) finish() error {
	if len(q.refs.prefixes) >= prefixesMax {
		q.refs.prefixes = nil
	}
	f := &q.fetch
	if f.Depth > 0 && (f.DeepenSince != 0 || len(f.DeepenNot) > 0) {
		return object.Refuse(ErrInvalid, "deepen and deepen-since (or deepen-not) cannot be used together")
	}
	for _, list := range []*[]Hash{&f.Wants, &f.Haves, &f.Shallow} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return nil
}

// argument reads one line; git, too, passes over what it does not know.
func (q *refsRequest) argument(line string) {
	switch line {
	case "peel":
		q.peel = true
	case "symrefs":
		q.symrefs = true
	case "unborn":
		q.unborn = true
	default:
		if prefix, ok := strings.CutPrefix(line, "ref-prefix "); ok && len(q.prefixes) < prefixesMax {
			q.prefixes = append(q.prefixes, prefix)
		}
	}
}

func unexpected(line string) error {
	return object.Refuse(ErrInvalid, "unexpected line: %.100q", line)
}

// argument reads one line of a fetch.
func (f *fetchRequest) argument(line string) error {
	key, value, valued := strings.Cut(line, " ")
	if !valued {
		flag := map[string]*bool{
			"thin-pack": &f.ThinPack, "no-progress": &f.NoProgress, "include-tag": &f.IncludeTag, "ofs-delta": &f.OFSDelta,
			"done": &f.Done, "wait-for-done": &f.WaitForDone, "deepen-relative": &f.DepthRelative,
		}[key]
		if flag == nil {
			return unexpected(line)
		}
		*flag = true
		return nil
	}
	list := map[string]*[]Hash{"want": &f.Wants, "have": &f.Haves, "shallow": &f.Shallow}[key]
	if list != nil {
		if len(value) != 40 || !object.IsHex(value) {
			return object.Refuse(ErrInvalid, "protocol error, expected to get oid, not %.100q", line)
		}
		*list = append(*list, Hash(value))
		return nil
	}
	switch key {
	case "deepen":
		n, err := strconv.ParseInt(value, 10, 32)
		if err != nil || n <= 0 {
			return object.Refuse(ErrInvalid, "invalid deepen: %.100q", line)
		}
		f.Depth = int(n)
	case "deepen-since":
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n <= 0 {
			return object.Refuse(ErrInvalid, "invalid deepen-since: %.100q", line)
		}
		f.DeepenSince = n
	case "deepen-not":
		if strings.ContainsFunc(value, unicode.IsControl) {
			return unexpected(line)
		}
		f.DeepenNot = append(f.DeepenNot, value)
	case "filter":
		if f.Filter != "" || value == "" || strings.ContainsFunc(value, unicode.IsControl) {
			return unexpected(line)
		}
		if err := checkFilter(value); err != nil {
			return err
		}
		f.Filter = value
	default:
		return unexpected(line)
	}
	return nil
}

// plain says whether the answer is a function of the request and of what it
// names alone: no time, no names of refs, no files that describe a filter.
func (f *fetchRequest) plain() bool {
	return len(f.Wants) > 0 && f.DeepenSince == 0 && len(f.DeepenNot) == 0 && !f.sparse()
}

// sparse says whether the filter is described by a file in the repository.
func (f *fetchRequest) sparse() bool { return strings.Contains(f.Filter, "sparse") }

// render writes the request as git is to get it. Two that ask for the same are the
// same bytes, whoever wrote them: agents and session ids are left out. quiet says that git is
// not to tell its progress.
func (f *fetchRequest) render(quiet bool) []byte {
	b := appendPkt(nil, "command=fetch\n")
	b = appendPkt(b, "object-format=sha1\n")
	b = append(b, "0001"...)
	for _, flag := range []struct {
		on   bool
		name string
	}{
		{quiet, "no-progress"}, {f.ThinPack, "thin-pack"}, {f.IncludeTag, "include-tag"}, {f.OFSDelta, "ofs-delta"},
		{f.WaitForDone, "wait-for-done"}, {f.DepthRelative, "deepen-relative"},
	} {
		if flag.on {
			b = appendPkt(b, flag.name, "\n")
		}
	}
	if f.Depth > 0 {
		b = appendPkt(b, "deepen ", strconv.Itoa(f.Depth), "\n")
	}
	if f.DeepenSince > 0 {
		b = appendPkt(b, "deepen-since ", strconv.FormatInt(f.DeepenSince, 10), "\n")
	}
	for _, not := range f.DeepenNot {
		b = appendPkt(b, "deepen-not ", not, "\n")
	}
	if f.Filter != "" {
		b = appendPkt(b, "filter ", f.Filter, "\n")
	}
	for _, list := range []struct {
		key    string
		hashes []Hash
	}{{"shallow ", f.Shallow}, {"want ", f.Wants}, {"have ", f.Haves}} {
		for _, h := range list.hashes {
			b = appendPkt(b, list.key, string(h), "\n")
		}
	}
	if f.Done {
		b = appendPkt(b, "done\n")
	}
	return append(b, flushPkt...)
}

// renderInfo writes a request for object-info as git is to get it.
func renderInfo(arguments []string) []byte {
	b := append(appendPkt(appendPkt(nil, "command=object-info\n"), "object-format=sha1\n"), "0001"...)
	for _, line := range arguments {
		b = appendPkt(b, line, "\n")
	}
	return append(b, flushPkt...)
}

// capabilities narrows the capabilities that git advertises for protocol v2 to those
// that are served: a newer git knows more. all says that the client may read all.
func capabilities(advert []byte, all bool) ([]byte, error) {
	lines := pktReader{r: bytes.NewReader(advert)}
	var b []byte
	for {
		line, kind, err := lines.next()
		switch {
		case err != nil:
			return nil, fmt.Errorf("cannot read the capabilities of git: %w", err)
		case kind == pktFlush:
			if b == nil {
				return nil, errors.New("cannot read the capabilities of git: there are none")
			}
			return append(b, flushPkt...), nil
		}
		text := chomp(line)
		key, value, _ := strings.Cut(text, "=")
		switch {
		case b == nil && text != "version 2":
			return nil, fmt.Errorf("cannot read the capabilities of git: it does not speak protocol v2 but %.100q", text)
		case key == "version 2", key == "agent", key == "server-option", key == "object-format":
		case key == commandRefs:
			text = commandRefs
			if slices.Contains(strings.Fields(value), "unborn") {
				text += "=unborn"
			}
		case key == commandFetch:
			features := slices.DeleteFunc(strings.Fields(value), func(f string) bool {
				return f != "shallow" && f != "wait-for-done" && f != "filter"
			})
			text = commandFetch
			if len(features) > 0 {
				text += "=" + strings.Join(features, " ")
			}
		case key == commandInfo && all:
		default:
			continue
		}
		b = appendPkt(b, text, "\n")
	}
}
