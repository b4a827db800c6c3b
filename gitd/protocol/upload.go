package protocol

import (
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/ramus-dev/ramus/gitd/object"
)

// CheckUpload returns an [object.Refusal] for a request of protocol v0 or v1 at which git would exit
// without a message to the client (gitprotocol-pack). The reader of the request must bound its size.
func CheckUpload(in io.Reader) error {
	lines := NewReader(in)
	wants, after := 0, false // after reports whether a flush has ended the wants
	for n := 0; ; n++ {
		line, kind, err := lines.Next()
		switch {
		case err == io.EOF && (n == 0 || after):
			return nil
		case err != nil:
			return requestError(err)
		case kind == Flush:
			after = true
			continue
		case kind != Data:
			return object.Refuse(object.ErrInvalid, "malformed packet in the request")
		}
		text := Chomp(line)
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
				return object.Refuse(object.ErrInvalid, "protocol error, expected to get oid, not %.100q", text)
			}
			wants++
			continue
		}
		if err := checkUploadOption(key, value, text); err != nil {
			return err
		}
	}
}

// checkUploadOption checks one line among the wants.
func checkUploadOption(key, value, line string) error {
	switch key {
	case "shallow":
		if !isObjectName(value) {
			return unexpected(line)
		}
	case "deepen":
		if n, err := strconv.ParseInt(value, 10, 32); err != nil || n <= 0 {
			return object.Refuse(object.ErrInvalid, "invalid deepen: %.100q", line)
		}
	case "deepen-since":
		if n, err := strconv.ParseInt(value, 10, 64); err != nil || n <= 0 {
			return object.Refuse(object.ErrInvalid, "invalid deepen-since: %.100q", line)
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

// checkFilter returns an [object.Refusal] for a filter that git does not know (git rev-list --filter).
func checkFilter(spec string) error {
	bad := object.Refuse(object.ErrInvalid, "invalid filter: %.100q", spec)
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
