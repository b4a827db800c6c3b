package gitindex

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

	"github.com/ramus-dev/ramus/gitd/object"
)

// MaxSize bounds an index in bytes, to about 700,000 files.
const MaxSize = 64 << 20

// Entry is one path of an index that differs.
type Entry struct {
	Path string
	Mode uint32 // 0 means that the path is not in the index
	Hash object.Hash
	Stat Stat
}

// Stat is the part of a file's metadata that git compares to see whether the file changed. With the
// zero value git reads the file.
type Stat struct {
	CTime, MTime int64 // nanoseconds
	Inode        uint64
	Size         int64
}

// The lengths in bytes of the parts of an index, and the flags of an entry.
const (
	headerLength  = 12
	fixedLength   = 62 // of an entry, before its name
	trailerLength = sha1.Size

	flagAssumeValid = 0x8000
	flagExtended    = 0x4000
	flagStage       = 0x3000
	flagName        = 0x0fff
)

// errIndex means that only git itself can change an index.
var errIndex = errors.New("an index that only git can read")

// indexParts holds the entries of an index in one piece, and its extensions.
type indexParts struct {
	count   int
	entries []byte
	more    []extension
}

// extension is one extension of an index.
type extension struct {
	name string
	data []byte
}

// Check returns an error if only git can change an index. This is so if it is damaged, larger than
// [MaxSize], of another version or in parts, and if it has entries for conflicts or for files
// that git was told to ignore.
func Check(index []byte) error {
	_, err := parse(index)
	return err
}

// parse splits an index into its parts. Returns errIndex in the cases of [Check].
func parse(b []byte) (indexParts, error) {
	var p indexParts
	fail := func(what string) (indexParts, error) { return indexParts{}, fmt.Errorf("%w: %s", errIndex, what) }
	if len(b) < headerLength+trailerLength || len(b) > MaxSize || string(b[:4]) != "DIRC" {
		return fail("no index")
	}
	if v := binary.BigEndian.Uint32(b[4:]); v != 2 {
		return fail("version " + strconv.FormatUint(uint64(v), 10))
	}
	count := binary.BigEndian.Uint32(b[8:])
	body := b[headerLength : len(b)-trailerLength]
	if uint64(count)*(fixedLength+2) > uint64(len(body)) {
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
		e := extension{string(rest[:4]), rest[8 : 8+size]}
		if c := e.name[0]; c < 'A' || c > 'Z' {
			return fail("it needs " + strconv.Quote(e.name)) // split and sparse ones
		}
		p.more = append(p.more, e)
		rest = rest[8+size:]
	}
	return p, nil
}

// entryAt returns the name and the flags of the entry at an offset, and the offset of the next one.
func entryAt(b []byte, at int) (name []byte, next int, flags uint16, ok bool) {
	if len(b)-at < fixedLength+2 {
		return nil, 0, 0, false
	}
	flags = binary.BigEndian.Uint16(b[at+60:])
	from := at + fixedLength
	n := int(flags & flagName)
	if n == flagName { // the name may be too long for the field
		n = bytes.IndexByte(b[from:], 0)
	}
	if n <= 0 || n >= len(b)-from || b[from+n] != 0 || bytes.IndexByte(b[from:from+n], 0) >= 0 {
		return nil, 0, 0, false
	}
	next = at + (fixedLength+n+8)&^7 // at least one NUL
	return b[from : from+n], next, flags, next <= len(b)
}

// Rewrite returns an index that differs from old in some entries. uid becomes the owner and group of
// the entries. If token is not empty, the index also says that no other file changed since the
// file system monitor gave that token, and it keeps the cache of untracked files. Returns an
// error in the cases of [Check].
func Rewrite(old []byte, differ []Entry, uid uint32, token string) ([]byte, error) {
	p, err := parse(old)
	if err != nil {
		return nil, err
	}
	stale := make(map[string]bool)
	for _, d := range differ {
		for dir := range folders(d.Path) {
			stale[dir] = true
		}
	}
	differ = slices.Clone(differ)
	slices.SortFunc(differ, func(a, b Entry) int { return cmp.Compare(a.Path, b.Path) })
	out := make([]byte, headerLength, len(old)+256*len(differ)+1024)
	count, at, from := p.count, 0, 0
	for len(differ) > 0 {
		d := differ[0]
		next, order := at, -1 // order is that of d.Path relative to the entry's name
		if at < len(p.entries) {
			var name []byte
			name, next, _, _ = entryAt(p.entries, at) // valid, since parse has read it
			order = cmp.Compare(d.Path, string(name))
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
		if d.Mode != 0 {
			if out, err = appendEntry(out, d, uid); err != nil {
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

// appendExtensions appends the extensions that are still valid, the token, and the checksum.
func appendExtensions(out []byte, old []extension, stale map[string]bool, token string) []byte {
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
		// An empty compressed bitmap of the entries that may have changed. It has no bits and
		// one empty word, which is the last.
		data = binary.BigEndian.AppendUint32(data, 20)
		data = append(data, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
		add("FSMN", data)
	}
	sum := sha1.Sum(out)
	return append(out, sum[:]...)
}

// folders yields all folders above a path, the nearest first and the top, "", last.
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

// staleTrees returns the cache of tree objects in data without the trees of stale folders. ok is
// false if data is damaged.
func staleTrees(data []byte, stale map[string]bool) (_ []byte, ok bool) {
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
	ok = walk("", true, 0)
	return out, ok && len(data) == 0
}

// appendEntry appends one entry.
func appendEntry(out []byte, d Entry, uid uint32) ([]byte, error) {
	raw, err := hex.DecodeString(string(d.Hash))
	if err != nil || len(raw) != sha1.Size || d.Path == "" {
		return nil, fmt.Errorf("%w: no entry %.80q", errIndex, d.Path)
	}
	u32 := func(v uint32) { out = binary.BigEndian.AppendUint32(out, v) }
	start := len(out)
	for _, t := range []int64{d.Stat.CTime, d.Stat.MTime} {
		u32(uint32(t / 1e9))
		u32(uint32(t % 1e9))
	}
	u32(0) // the device, which git does not compare
	u32(uint32(d.Stat.Inode))
	u32(d.Mode)
	u32(uid)
	u32(uid)
	u32(uint32(d.Stat.Size))
	out = append(out, raw...)
	out = binary.BigEndian.AppendUint16(out, uint16(min(len(d.Path), flagName)))
	out = append(out, d.Path...)
	for pad := (fixedLength+len(d.Path)+8)&^7 - (len(out) - start); pad > 0; pad-- {
		out = append(out, 0)
	}
	return out, nil
}
