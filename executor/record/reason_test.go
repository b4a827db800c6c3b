package record

import (
	"strings"
	"testing"
)

// TestHintOfALostContainer checks the hint of a single command, which is lost
// only once.
func TestHintOfALostContainer(t *testing.T) {
	if hint := ReasonContainerLost.Hint(); strings.Contains(hint, "again and again") || !strings.Contains(hint, "ramus retry") {
		t.Errorf("the hint is %q", hint)
	}
}
