package executor

import (
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
)

func TestGateNames(t *testing.T) {
	for _, x := range []struct {
		allowed, by string
		want        bool
	}{
		{"U012", "slack:U012", true}, {"slack:U012", "slack:U012", true}, {"alice", "alice", true}, {"U012", "U012", true},
		{"slack:U012", "U012", false}, // a token may have any subject
		{"U013", "slack:U012", false}, {"slack:slack:U012", "slack:U012", false}, {"", "slack:", false},
	} {
		if got := (record.Gate{Allowed: []string{x.allowed}}).Names(x.by); got != x.want {
			t.Errorf("%q for %q: %t", x.allowed, x.by, got)
		}
	}
}
