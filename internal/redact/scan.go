package redact

import (
	"bytes"
	"encoding/binary"
)

// The search needs one look-up for five positions. A pattern that begins at one of them has, within its first eight
// bytes, all of the four bytes after the fourth. If a filter has those four, the first eight bytes of each position
// select the few patterns to compare. An automaton would read every byte, with tables too large for the cache once a
// private key is among the values.

// filterBits gives a filter 8 KiB, which stay in the first cache.
const filterBits = 16

const (
	head  = MinLength // number of first bytes that select a pattern; no pattern is shorter
	block = 4         // number of bytes that a filter tests
	step  = head - block + 1
	// stretch is the distance in which line breaks are searched at once.
	stretch = 512
)

// filter is a set of blocks. It may report blocks that it does not have.
type filter [1 << (filterBits - 6)]uint64

func (f *filter) add(b []byte) {
	h := hash(binary.LittleEndian.Uint32(b))
	f[h>>6] |= 1 << (h & 63)
}

func (f *filter) has(block uint32) bool {
	h := hash(block)
	return f[h>>6&(1<<(filterBits-6)-1)]>>(h&63)&1 != 0
}

// pattern is one form of one value.
type pattern struct {
	text  []byte
	wraps bool // line breaks may split it, because base64 and hexadecimal are printed in lines
	name  string
	label []byte
}

func hash(block uint32) uint32 { return block * 0x9E3779B1 >> (32 - filterBits) }

// headKey returns the key of up to seven first bytes. Their number is in the bits above them.
func headKey(b []byte) uint64 {
	var k [8]byte
	copy(k[:7], b)
	k[7] = byte(len(b))
	return binary.LittleEndian.Uint64(k[:])
}

func (v *table) add(p *pattern) {
	v.first.add(p.text)
	for i := range step {
		v.blocks.add(p.text[i:])
	}
	key := binary.LittleEndian.Uint64(p.text)
	v.patterns[key] = append(v.patterns[key], p)
	for n := 1; n < head; n++ {
		key := headKey(p.text[:n])
		v.heads[key] = v.heads[key] || p.wraps
	}
}

// breaks are the first bytes of line breaks.
var breaks = [256]bool{'\n': true, '\r': true, '\\': true}

// lineBreak returns the length of the line break at the beginning of b, as it is or in the notation of JSON. Returns 0
// if there is none, and -1 if more of b is needed to decide.
func lineBreak(b []byte) int {
	if b[0] == '\n' {
		return 1
	}
	for _, text := range []string{"\r\n", `\n`, `\r\n`} {
		switch {
		case len(b) >= len(text) && string(b[:len(text)]) == text:
			return len(text)
		case len(b) < len(text) && string(b) == text[:len(b)]:
			return -1
		}
	}
	return 0
}

// encoded has the characters of patterns that line breaks may split: base64, also within URLs and JSON, and
// hexadecimal.
var encoded = func() (set [256]bool) {
	for _, c := range `ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=%\` {
		set[c] = true
	}
	return set
}()

// next is [table.next] of the values that the set has now.
func (s *Secrets) next(b []byte, i int, final bool) (at int, p *pattern, n int, pending bool) {
	v := s.now.Load()
	if v == nil {
		return len(b), nil, 0, false
	}
	return v.next(b, i, final)
}

// next returns the first position from i on at which a pattern begins, with the pattern and its length there. If there
// is none, p is nil, and at is the length of b. If b is not final, at may be the first position at which a pattern may
// begin with more text, and pending is true.
func (v *table) next(b []byte, i int, final bool) (at int, p *pattern, n int, pending bool) {
	for i < len(b) {
		// Up to whole the first bytes of a position have no line break. From there to broken they may have one.
		whole := max(i, min(i+stretch, len(b)-head+1))
		broken := whole
		if whole == len(b)-head+1 || whole == i {
			broken = len(b)
		}
		if q := nextBreak(b, i+1, min(whole+head, len(b))); q >= 0 {
			whole, broken = max(i, q-head+1), q
		}
		for i = v.skip(b, i, whole); i < whole; i = v.skip(b, i+1, whole) {
			if p, n, pending = v.at(b[i:], final); p != nil || pending {
				return i, p, n, pending
			}
		}
		for ; i < broken; i++ {
			if p, n, pending = v.at(b[i:], final); p != nil || pending {
				return i, p, n, pending
			}
		}
	}
	return len(b), nil, 0, false
}

// skip returns the first position in b[i:end] at which a pattern may begin, or end. Eight bytes can be read at each of
// them.
func (v *table) skip(b []byte, i, end int) int {
	for i < end {
		word := binary.LittleEndian.Uint64(b[i:])
		if !v.blocks.has(uint32(word >> (8 * (head - block)))) {
			i += step
			continue
		}
		for last := min(i+step, end); i < last; i++ {
			if v.first.has(binary.LittleEndian.Uint32(b[i:])) {
				return i
			}
		}
	}
	return end
}

// nextBreak returns the first line break in b[i:end] after which an encoding may continue. Returns -1 if there is none.
func nextBreak(b []byte, i, end int) int {
	for i < end {
		n := bytes.IndexByte(b[i:end], '\n')
		if n < 0 {
			n = end - i
		}
		if m := bytes.IndexByte(b[i:i+n], '\\'); m >= 0 {
			n = m
		} else if n == end-i {
			// The last byte may be the first of two.
			if b[end-1] != '\r' {
				return -1
			}
			n--
		} else if n > 0 && b[i+n-1] == '\r' {
			n--
		}
		if i += n; joins(b, i) {
			return i
		}
		i++
	}
	return -1
}

// joins reports whether an encoding may continue after a line break at b[i].
func joins(b []byte, i int) bool {
	if !encoded[b[i-1]] {
		return false
	}
	n := lineBreak(b[i:])
	return n < 0 || n > 0 && (i+n == len(b) || encoded[b[i+n]])
}

// beginning returns the patterns that begin with the first bytes of b.
func (v *table) beginning(b []byte) []*pattern {
	if !v.first.has(binary.LittleEndian.Uint32(b)) {
		return nil
	}
	return v.patterns[binary.LittleEndian.Uint64(b)]
}

// at returns the longest pattern at the beginning of b, and its length there. pending means that there might be one, or
// a longer one, with more text.
func (v *table) at(b []byte, final bool) (p *pattern, n int, pending bool) {
	consider := func(c *pattern, wrapped bool) {
		if !wrapped {
			switch {
			case len(b) >= len(c.text):
				if len(c.text) > n && string(b[:len(c.text)]) == string(c.text) {
					p, n = c, len(c.text)
				}
			case !final && bytes.HasPrefix(c.text, b):
				pending = true
			}
		}
		if !c.wraps {
			return
		}
		m, more := c.wrapped(b)
		if m > n {
			p, n = c, m
		}
		pending = pending || more && !final
	}
	if len(b) >= head {
		for _, c := range v.beginning(b) {
			consider(c, false)
		}
	} else if _, ok := v.heads[headKey(b)]; ok && !final {
		pending = true
	}
	// The same without line breaks.
	var first [head]byte
	k, i := 0, 0
	for k < head && i < len(b) {
		if breaks[b[i]] && k > 0 {
			m := lineBreak(b[i:])
			if m < 0 {
				i = len(b)
				break
			}
			if m > 0 {
				i += m
				// A single line break, after which the encoding continues.
				if i < len(b) && (!encoded[b[i]] || breaks[b[i]] && lineBreak(b[i:]) > 0) {
					return choose(p, n, pending)
				}
				continue
			}
		}
		first[k] = b[i]
		k++
		i++
	}
	switch {
	case i == k: // no line break among them
	case k == head:
		for _, c := range v.beginning(first[:]) {
			if c.wraps {
				consider(c, true)
			}
		}
	case v.heads[headKey(first[:k])] && !final:
		pending = true
	}
	return choose(p, n, pending)
}

// choose prefers a pending pattern, because it may be longer.
func choose(p *pattern, n int, pending bool) (*pattern, int, bool) {
	if pending {
		return nil, 0, true
	}
	return p, n, false
}

// wrapped returns the length of the pattern at the beginning of b with line breaks inside. Returns 0 if it is not
// there. more means that b ends before that is decided.
func (p *pattern) wrapped(b []byte) (n int, more bool) {
	for k := 0; k < len(p.text); {
		switch {
		case n == len(b):
			return 0, true
		case b[n] == p.text[k]:
			k++
			n++
			continue
		case k == 0 || !breaks[b[n]]:
			return 0, false
		}
		m := lineBreak(b[n:])
		if m < 0 {
			return 0, true
		}
		if m == 0 || n+m < len(b) && b[n+m] != p.text[k] {
			return 0, false
		}
		n += m
	}
	return n, false
}

// cut removes values from a text that arrives in parts.
type cut struct {
	covered int             // number of bytes at the beginning of the next part that belong to a value
	found   map[string]bool // names
}

// takeText appends b without its values to out. Overlapping values are one, and nothing of either is kept. rest is the end
// of b that has to be read again together with the next part. It is empty if b is final.
func (c *cut) takeText(s *Secrets, out, b []byte, final bool) (_, rest []byte) {
	start := c.covered
	for i := 0; ; {
		at, p, n, _ := s.next(b, i, final)
		if p == nil {
			if start < at {
				out = append(out, b[start:at]...)
			}
			c.covered = max(0, start-at)
			return out, b[at:]
		}
		if at >= c.covered {
			out = append(append(out, b[start:at]...), p.label...)
		}
		if c.found == nil {
			c.found = make(map[string]bool)
		}
		c.found[p.name] = true
		c.covered = max(c.covered, at+n)
		start, i = c.covered, at+1
	}
}
