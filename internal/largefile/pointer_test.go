package largefile

import (
	"bytes"
	"testing"
)

// FuzzParse reads any text. A pointer in the usual form is written as it was read.
func FuzzParse(f *testing.F) {
	oid := "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
	f.Add(Pointer{OID: oid, Size: 6}.Text())
	f.Add([]byte("version https://hawser.github.com/spec/v1\next-0-x sha256:" + oid + "\noid sha256:" + oid + "\nsize 6\n"))
	f.Add([]byte("version x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, ok := Parse(text)
		if !ok {
			return
		}
		if len(text) > MaxSize || !ValidOID(p.OID) || p.Size < 0 {
			t.Errorf("%q is %+v", text, p)
		}
		if again, ok := Parse(p.Text()); p.Size > 0 && (!ok || again != p) {
			t.Errorf("%+v is read as %+v", p, again)
		}
		if bytes.Count(text, []byte("\n")) == 3 && p.Size == 0 && len(p.Text()) > 0 {
			t.Errorf("%+v has a pointer", p)
		}
	})
}
