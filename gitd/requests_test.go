package gitd

import (
	"bytes"
	"strings"
	"testing"
)

func FuzzPktLine(f *testing.F) {
	f.Add([]byte("0009hello0000"))
	f.Add([]byte("00010002FFFF"))
	f.Add([]byte("0003"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := pktReader{r: bytes.NewReader(text)}
		var again []byte
		for {
			raw, kind, err := r.nextRaw()
			if err != nil {
				break
			}
			if kind == pktData && len(raw) < 4 || kind != pktData && len(raw) != 4 {
				t.Fatalf("%q is of kind %d", raw, kind)
			}
			again = append(again, raw...)
		}
		if !bytes.HasPrefix(text, again) {
			t.Errorf("%q became %q", text, again)
		}
	})
}

func FuzzParsePush(f *testing.F) {
	zero, one := strings.Repeat("0", 40), strings.Repeat("1", 40)
	f.Add(append(appendPkt(nil, zero, " ", one, " refs/heads/a\x00report-status side-band-64k"), flushPkt...))
	f.Add(append(appendPkt(appendPkt(nil, "shallow ", one), one, " ", zero, " refs/heads/a\n\x00 push-options"), "0000000aoption0000"...))
	f.Add([]byte("0000"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := parsePush(bytes.NewReader(text))
		if err != nil {
			return
		}
		a := access{grant: Grant{Write: []string{"refs/heads/ok/*"}}}
		for _, c := range p.commands {
			if a.judge(c) == "" && (!strings.HasPrefix(c.ref, "refs/heads/ok/") || c.deletes() || CheckRef(c.ref) != nil) {
				t.Errorf("allowed: %+v", c)
			}
		}
	})
}
