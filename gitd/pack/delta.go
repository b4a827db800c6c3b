package pack

import (
	"bytes"
	"errors"
)

// deltaHead returns the sizes of the base and of the result of a delta, and the instructions
// that follow them.
func deltaHead(delta []byte) (from, to int64, rest []byte, err error) {
	in := bytes.NewReader(delta)
	if from, err = deltaSize(in); err == nil {
		to, err = deltaSize(in)
	}
	return from, to, delta[len(delta)-in.Len():], err
}

// errDelta means that a delta is not well-formed or does not fit its base.
var errDelta = errors.New("a damaged delta")

// applyDelta applies a delta to its base. Returns an error if the result would be larger than
// MaxInMemory.
func applyDelta(base, delta []byte) ([]byte, error) {
	from, to, ops, err := deltaHead(delta)
	if err != nil || from != int64(len(base)) || to > MaxInMemory {
		return nil, errDelta
	}
	out := make([]byte, 0, to)
	for len(ops) > 0 {
		op := ops[0]
		ops = ops[1:]
		if op&0x80 == 0 { // the next op bytes are new
			if op == 0 || int(op) > len(ops) || int64(len(out))+int64(op) > to {
				return nil, errDelta
			}
			out, ops = append(out, ops[:op]...), ops[op:]
			continue
		}
		var at, n uint32
		for bit := range 7 {
			if op>>bit&1 == 0 {
				continue
			}
			if len(ops) == 0 {
				return nil, errDelta
			}
			if bit < 4 {
				at |= uint32(ops[0]) << (8 * bit)
			} else {
				n |= uint32(ops[0]) << (8 * (bit - 4))
			}
			ops = ops[1:]
		}
		if n == 0 {
			n = 0x10000
		}
		if int64(at)+int64(n) > from || int64(len(out))+int64(n) > to {
			return nil, errDelta
		}
		out = append(out, base[at:at+n]...)
	}
	if int64(len(out)) != to {
		return nil, errDelta
	}
	return out, nil
}
