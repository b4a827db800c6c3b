package executor

import (
	"bytes"
	"cmp"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/gitd"
)

// The index of a bound work tree is written from outside: the base layer's, with the
// entries that differ. So it costs no process in the container, is right before the
// next command begins, and is there in images without git. The format is that of
// git's Documentation/gitformat-index.txt, version 2.

// indexMax bounds an index, in bytes: about 700,000 files.
const indexMax = 64 << 20

// indexEntry is how one path of an index differs.
type indexEntry struct {
	path string
	mode uint32 // zero: the path is not in the index
	hash gitd.Hash
	stat indexStat
}

// indexStat is what git compares of a file to see that it did not change. With
// the zero value git reads the file.
type indexStat struct {
	ctime, mtime int64 // nanoseconds
	inode        uint64
	size         int64
}

// insideUID is who commands are, as they see it themselves, on every engine.
const insideUID = 1000

// What an index is made of.
const (
	indexHeader  = 12
	indexFixed   = 62 // of an entry, before its name
	indexTrailer = sha1.Size

	flagAssumeValid = 0x8000
	flagExtended    = 0x4000
	flagStage       = 0x3000
	flagName        = 0x0fff
)

// errIndex is an index that only git itself can change.
var errIndex = errors.New("an index that only git can read")

// indexParts are the entries of an index, as one piece, and its extensions.
type indexParts struct {
	count   int
	entries []byte
	more    []indexExtension
}

type indexExtension struct {
	name string
	data []byte
}

// parseIndex takes an index apart. Entries that are more than a path with its content
// (conflicts, and files that git was told not to look at) make it errIndex.
func parseIndex(b []byte) (indexParts, error) {
	var p indexParts
	fail := func(what string) (indexParts, error) { return indexParts{}, fmt.Errorf("%w: %s", errIndex, what) }
	if len(b) < indexHeader+indexTrailer || len(b) > indexMax || string(b[:4]) != "DIRC" {
		return fail("no index")
	}
	if v := binary.BigEndian.Uint32(b[4:]); v != 2 {
		return fail("version " + strconv.FormatUint(uint64(v), 10))
	}
	count := binary.BigEndian.Uint32(b[8:])
	body := b[indexHeader : len(b)-indexTrailer]
	if uint64(count)*(indexFixed+2) > uint64(len(body)) {
		return fail("it is cut")
	}
	p.count = int(count)
	at := 0
	var last []byte
	for range p.count {
		name, next, flags, ok := entryAt(body, at)
		switch {
		case !ok:
			return fail("it is cut")
		case flags&(flagAssumeValid|flagExtended|flagStage) != 0:
			return fail("it has entries of a special kind")
		case last != nil && bytes.Compare(last, name) >= 0:
			return fail("its entries are out of order")
		}
		last, at = name, next
	}
	p.entries = body[:at]
	for rest := body[at:]; len(rest) > 0; {
		if len(rest) < 8 {
			return fail("it is cut")
		}
		size := binary.BigEndian.Uint32(rest[4:])
		if uint64(size) > uint64(len(rest)-8) {
			return fail("it is cut")
		}
		e := indexExtension{string(rest[:4]), rest[8 : 8+size]}
		if c := e.name[0]; c < 'A' || c > 'Z' {
			return fail("it needs " + strconv.Quote(e.name)) // split and sparse ones
		}
		p.more = append(p.more, e)
		rest = rest[8+size:]
	}
	return p, nil
}

// entryAt reads the name and flags of the entry at an offset, and where the next one begins.
func entryAt(b []byte, at int) (name []byte, next int, flags uint16, ok bool) {
	if len(b)-at < indexFixed+2 {
		return nil, 0, 0, false
	}
	flags = binary.BigEndian.Uint16(b[at+60:])
	from := at + indexFixed
	n := int(flags & flagName)
	if n == flagName || flags&flagExtended != 0 { // longer than can be said there
		n = bytes.IndexByte(b[from:], 0)
	}
	if n <= 0 || n >= len(b)-from || b[from+n] != 0 || bytes.IndexByte(b[from:from+n], 0) >= 0 {
		return nil, 0, 0, false
	}
	next = at + (indexFixed+n+8)&^7 // at least one NUL
	return b[from : from+n], next, flags, next <= len(b)
}

// rewriteIndex makes an index that differs in some entries from one that has none of a
// special kind. With a token it also says that nothing else changed since the host gave that
// (see fsmonitor.go), and keeps what it knows of files that are not tracked.
func rewriteIndex(old []byte, differ []indexEntry, token string) ([]byte, error) {
	p, err := parseIndex(old)
	if err != nil {
		return nil, err
	}
	stale := make(map[string]bool)
	for _, d := range differ {
		for dir := range folders(d.path) {
			stale[dir] = true
		}
	}
	differ = slices.Clone(differ)
	slices.SortFunc(differ, func(a, b indexEntry) int { return cmp.Compare(a.path, b.path) })
	out := make([]byte, indexHeader, len(old)+256*len(differ)+1024)
	count, at, from := p.count, 0, 0
	for at < len(p.entries) || len(differ) > 0 {
		var name []byte
		next := at
		if at < len(p.entries) {
			name, next, _, _ = entryAt(p.entries, at) // as parseIndex has seen it
		}
		if len(differ) == 0 {
			break
		}
		d := differ[0]
		order := -1 // of the difference to the entry
		if at < len(p.entries) {
			order = cmp.Compare(d.path, string(name))
		}
		if order > 0 {
			at = next
			continue
		}
		out = append(out, p.entries[from:at]...)
		from = at
		if order == 0 {
			from, at = next, next
			count--
		}
		if d.mode != 0 {
			if out, err = appendEntry(out, d); err != nil {
				return nil, err
			}
			count++
		}
		differ = differ[1:]
	}
	out = append(out, p.entries[from:]...)
	copy(out, "DIRC")
	binary.BigEndian.PutUint32(out[4:], 2)
	binary.BigEndian.PutUint32(out[8:], uint32(count))
	return appendExtensions(out, p.more, stale, token), nil
}

// appendExtensions ends an index: of the old one's extensions what still holds, the
// token, and the sum of it all.
func appendExtensions(out []byte, old []indexExtension, stale map[string]bool, token string) []byte {
	add := func(name string, data []byte) {
		out = append(out, name...)
		out = binary.BigEndian.AppendUint32(out, uint32(len(data)))
		out = append(out, data...)
	}
	for _, e := range old {
		switch e.name {
		case "TREE":
			if tree, ok := staleTrees(e.data, stale); ok {
				add(e.name, tree)
			}
		case "UNTR":
			if token != "" {
				add(e.name, e.data)
			}
		}
	}
	if token != "" {
		data := binary.BigEndian.AppendUint32(nil, 2)
		data = append(append(data, token...), 0)
		// A compressed bitmap of the entries that may have changed, with none in it:
		// no bits, one empty word, which is the last.
		data = binary.BigEndian.AppendUint32(data, 20)
		data = append(data, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
		add("FSMN", data)
	}
	sum := sha1.Sum(out)
	return append(out, sum[:]...)
}

// folders are all folders that a path lies in, "" being the top.
func folders(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for path != "" {
			path = path[:max(strings.LastIndexByte(path, '/'), 0)]
			if !yield(path) {
				return
			}
		}
	}
}

// staleTrees takes from git's cache of tree objects those of some folders.
func staleTrees(data []byte, stale map[string]bool) ([]byte, bool) {
	out := make([]byte, 0, len(data))
	var walk func(dir string, top bool, depth int) bool
	walk = func(dir string, top bool, depth int) bool {
		name, rest, ok := bytes.Cut(data, []byte{0})
		count, rest, ok2 := bytes.Cut(rest, []byte{' '})
		children, rest, ok3 := bytes.Cut(rest, []byte{'\n'})
		n, err := strconv.Atoi(string(count))
		subs, err2 := strconv.Atoi(string(children))
		if !ok || !ok2 || !ok3 || err != nil || err2 != nil || subs < 0 || subs > len(rest) || depth > 1000 || top != (len(name) == 0) {
			return false
		}
		if dir != "" {
			dir += "/"
		}
		dir += string(name)
		var hash []byte
		if n >= 0 {
			if len(rest) < sha1.Size {
				return false
			}
			hash, rest = rest[:sha1.Size], rest[sha1.Size:]
		}
		data = rest
		if stale[dir] {
			n, hash = -1, nil
		}
		out = append(append(out, name...), 0)
		out = append(strconv.AppendInt(out, int64(n), 10), ' ')
		out = append(strconv.AppendInt(out, int64(subs), 10), '\n')
		out = append(out, hash...)
		for range subs {
			if !walk(dir, false, depth+1) {
				return false
			}
		}
		return true
	}
	ok := walk("", true, 0)
	return out, ok && len(data) == 0
}

func appendEntry(out []byte, d indexEntry) ([]byte, error) {
	raw, err := hex.DecodeString(string(d.hash))
	if err != nil || len(raw) != sha1.Size || d.path == "" {
		return nil, fmt.Errorf("%w: no entry %.80q", errIndex, d.path)
	}
	u32 := func(v uint32) { out = binary.BigEndian.AppendUint32(out, v) }
	start := len(out)
	for _, t := range []int64{d.stat.ctime, d.stat.mtime} {
		u32(uint32(t / 1e9))
		u32(uint32(t % 1e9))
	}
	u32(0) // the device: git does not compare it
	u32(uint32(d.stat.inode))
	u32(d.mode)
	u32(insideUID)
	u32(insideUID)
	u32(uint32(d.stat.size))
	out = append(out, raw...)
	out = binary.BigEndian.AppendUint16(out, uint16(min(len(d.path), flagName)))
	out = append(out, d.path...)
	for pad := (indexFixed+len(d.path)+8)&^7 - (len(out) - start); pad > 0; pad-- {
		out = append(out, 0)
	}
	return out, nil
}
