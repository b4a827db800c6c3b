package gitd

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd/protocol"
)

func FuzzParsePush(f *testing.F) {
	zero, one := strings.Repeat("0", 40), strings.Repeat("1", 40)
	f.Add(append(protocol.AppendLine(nil, zero, " ", one, " refs/heads/a\x00report-status side-band-64k"),
		protocol.FlushLine...))
	f.Add(append(protocol.AppendLine(protocol.AppendLine(nil, "shallow ", one), one, " ", zero,
		" refs/heads/a\n\x00 push-options"), "0000000aoption0000"...))
	f.Add([]byte("0000"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := protocol.ParsePush(bytes.NewReader(text))
		if err != nil {
			return
		}
		a := access{grant: Grant{Write: []string{"refs/heads/ok/*"}}}
		for _, c := range p.Commands {
			if a.refusalOf(c) == "" && (!strings.HasPrefix(c.Ref, "refs/heads/ok/") || c.Deletes() || CheckRef(c.Ref) != nil) {
				t.Errorf("allowed: %+v", c)
			}
		}
	})
}
