package record

import (
	"strings"
	"testing"
)

// A command that is run by itself is lost once: its hint says no more.
func TestHintOfALostContainer(t *testing.T) {
	if hint := ReasonContainerLost.Hint(); strings.Contains(hint, "again and again") || !strings.Contains(hint, "ramus retry") {
		t.Errorf("the hint is %q", hint)
	}
}
