package gitd

import (
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/ramus-dev/ramus/gitd/object"
)

// checkUpload refuses a request of protocol v0 or v1 that git would end on without a word for the client
// (gitprotocol-pack). The limits on its size are its reader's.
func checkUpload(in io.Reader) error {
	lines := &pktReader{r: in}
	wants, after := 0, false // after: the wants were ended by a flush
	for n := 0; ; n++ {
		line, kind, err := lines.next()
		switch {
		case err == io.EOF && (n == 0 || after):
			return nil
		case err != nil:
			return requestError(err)
		case kind == pktFlush:
			after = true
			continue
		case kind != pktData:
			return object.Refuse(ErrInvalid, "malformed packet in the request")
		}
		text := chomp(line)
		if after {
			if id, ok := strings.CutPrefix(text, "have "); ok && !isObjectName(id) || !ok && text != "done" {
				return unexpected(text)
			}
			continue
		}
		key, value, _ := strings.Cut(text, " ")
		if key == "want" {
			id, _, more := strings.Cut(value, " ")
			if !isObjectName(id) || more && wants > 0 {
				return object.Refuse(ErrInvalid, "protocol error, expected to get oid, not %.100q", text)
			}
			wants++
			continue
		}
		if err := checkUploadOption(key, value, text); err != nil {
			return err
		}
	}
}

// checkUploadOption checks one line that stands among the wants.
func checkUploadOption(key, value, line string) error {
	switch key {
	case "shallow":
		if !isObjectName(value) {
			return unexpected(line)
		}
	case "deepen":
		if n, err := strconv.ParseInt(value, 10, 32); err != nil || n <= 0 {
			return object.Refuse(ErrInvalid, "invalid deepen: %.100q", line)
		}
	case "deepen-since":
		if n, err := strconv.ParseInt(value, 10, 64); err != nil || n <= 0 {
			return object.Refuse(ErrInvalid, "invalid deepen-since: %.100q", line)
		}
	case "deepen-not":
		if value == "" || strings.ContainsFunc(value, unicode.IsControl) {
			return unexpected(line)
		}
	case "filter":
		return checkFilter(value)
	default:
		return unexpected(line)
	}
	return nil
}

// checkFilter refuses a filter that git does not know (git rev-list --filter).
func checkFilter(spec string) error {
	bad := object.Refuse(ErrInvalid, "invalid filter: %.100q", spec)
	kind, value, _ := strings.Cut(spec, ":")
	switch kind {
	case "blob":
		size, limited := strings.CutPrefix(value, "limit=")
		unit := strings.TrimLeft(size, "0123456789")
		if value != "none" && (!limited || len(unit) == len(size) || len(unit) > 1 || strings.Trim(unit, "kKmMgG") != "") {
			return bad
		}
	case "tree":
		if _, err := strconv.ParseUint(value, 10, 32); err != nil {
			return bad
		}
	case "object":
		switch value {
		case "type=blob", "type=tree", "type=commit", "type=tag":
		default:
			return bad
		}
	case "sparse":
		if name, ok := strings.CutPrefix(value, "oid="); !ok || name == "" || strings.ContainsFunc(name, unicode.IsControl) {
			return bad
		}
	case "combine":
		if value == "" || strings.ContainsFunc(value, unicode.IsControl) {
			return bad
		}
	default:
		return bad
	}
	return nil
}
