package pattern

import "testing"

func TestNew(t *testing.T) {
	r := New(`^a(b*)c$`)
	for range 2 {
		if m := r.FindStringSubmatch("abbc"); len(m) != 2 || m[1] != "bb" || r.MatchString("x") {
			t.Errorf("%q", m)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a pattern that is none is taken")
		}
	}()
	New(`(`).MatchString("")
}
