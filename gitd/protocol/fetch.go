package protocol

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/ramus-dev/ramus/gitd/object"
)

// FetchRequest is one "fetch" of protocol v2 (gitprotocol-v2), parsed and bounded. Wants, Haves and
// Shallow are sorted and without duplicates.
type FetchRequest struct {
	Wants, Haves, Shallow []object.Hash
	Depth                 int // 0 means the whole history
	DepthRelative         bool
	DeepenSince           int64
	DeepenNot             []string
	Filter                string // as the client wrote it
	ThinPack, NoProgress  bool
	IncludeTag, OFSDelta  bool
	Done, WaitForDone     bool
}

// argument parses one line of a fetch.
func (f *FetchRequest) argument(line string) error {
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
	list := map[string]*[]object.Hash{"want": &f.Wants, "have": &f.Haves, "shallow": &f.Shallow}[key]
	if list != nil {
		if len(value) != 40 || !object.IsHex(value) {
			return object.Refuse(object.ErrInvalid, "protocol error, expected to get oid, not %.100q", line)
		}
		*list = append(*list, object.Hash(value))
		return nil
	}
	switch key {
	case "deepen":
		n, err := strconv.ParseInt(value, 10, 32)
		if err != nil || n <= 0 {
			return object.Refuse(object.ErrInvalid, "invalid deepen: %.100q", line)
		}
		f.Depth = int(n)
	case "deepen-since":
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n <= 0 {
			return object.Refuse(object.ErrInvalid, "invalid deepen-since: %.100q", line)
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

// Plain reports whether the answer depends on nothing but the request and the objects that it names. It
// does not if the request has a time, names of refs, or a filter that a file describes.
func (f *FetchRequest) Plain() bool {
	return len(f.Wants) > 0 && f.DeepenSince == 0 && len(f.DeepenNot) == 0 && !f.Sparse()
}

// Sparse reports whether a file in the repository describes the filter.
func (f *FetchRequest) Sparse() bool { return strings.Contains(f.Filter, "sparse") }

// Render returns the request to git. Requests for the same result have the same bytes for
// every client, because agents and session ids are omitted. quiet asks git not to report progress.
func (f *FetchRequest) Render(quiet bool) []byte {
	b := AppendLine(nil, "command=fetch\n")
	b = AppendLine(b, "object-format=sha1\n")
	b = append(b, "0001"...)
	for _, flag := range []struct {
		on   bool
		name string
	}{
		{quiet, "no-progress"}, {f.ThinPack, "thin-pack"}, {f.IncludeTag, "include-tag"}, {f.OFSDelta, "ofs-delta"},
		{f.WaitForDone, "wait-for-done"}, {f.DepthRelative, "deepen-relative"},
	} {
		if flag.on {
			b = AppendLine(b, flag.name, "\n")
		}
	}
	if f.Depth > 0 {
		b = AppendLine(b, "deepen ", strconv.Itoa(f.Depth), "\n")
	}
	if f.DeepenSince > 0 {
		b = AppendLine(b, "deepen-since ", strconv.FormatInt(f.DeepenSince, 10), "\n")
	}
	for _, not := range f.DeepenNot {
		b = AppendLine(b, "deepen-not ", not, "\n")
	}
	if f.Filter != "" {
		b = AppendLine(b, "filter ", f.Filter, "\n")
	}
	for _, list := range []struct {
		key    string
		hashes []object.Hash
	}{{"shallow ", f.Shallow}, {"want ", f.Wants}, {"have ", f.Haves}} {
		for _, h := range list.hashes {
			b = AppendLine(b, list.key, string(h), "\n")
		}
	}
	if f.Done {
		b = AppendLine(b, "done\n")
	}
	return append(b, FlushLine...)
}
