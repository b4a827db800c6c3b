package containers

import (
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/containers/layer"
)

const mib = 1 << 20

func bytesUsed(n int64) layer.Usage { return layer.Usage{Bytes: n, Files: 10} }

// A container is looked at when the disks have given away what it may still take, and not before.
func TestQuotaDue(t *testing.T) {
	q := newQuota(Limits{Disk: 64 * mib}, bytesUsed(1000*mib))
	for _, step := range []struct {
		spent int64
		due   bool
	}{{1000 * mib, false}, {1064 * mib, false}, {1064*mib + 1, true}} {
		if got := q.due(bytesUsed(step.spent)); got != step.due {
			t.Errorf("when %d were given away it is due: %v", step.spent, got)
		}
	}
	if q.found(bytesUsed(40*mib), bytesUsed(1070*mib), false) {
		t.Error("it is under its bound, and its commands are killed")
	}
	if q.due(bytesUsed(1094*mib)) || !q.due(bytesUsed(1095*mib)) {
		t.Error("of 64 MiB 24 are left")
	}
	// However little is left, the disks must have given away a part of the bound.
	q.found(bytesUsed(64*mib), bytesUsed(1100*mib), false)
	if q.due(bytesUsed(1101*mib)) || !q.due(bytesUsed(1101*mib+1)) {
		t.Error("a 64th of the bound is to be given away between two looks")
	}
	if q.due(layer.Usage{Bytes: 1100 * mib, Files: 90_000}) || !q.due(layer.Usage{Bytes: 1100 * mib, Files: 110_000}) {
		t.Error("names are bounded as well")
	}
	if (newQuota(Limits{Disk: -1}, layer.Usage{})).due(bytesUsed(1 << 50)) {
		t.Error("there is no bound")
	}
	q.known = false // of an earlier process
	if !q.due(bytesUsed(1100 * mib)) {
		t.Error("what is not known is not looked at")
	}
}

// Who went over the bound is killed once for it, may clean up, and is killed again for taking
// more: each time for less, so that the sum of it is bounded.
func TestQuotaFound(t *testing.T) {
	q := newQuota(Limits{Disk: 64 * mib}, layer.Usage{})
	look := func(n int64) bool { return q.found(bytesUsed(n), layer.Usage{}, false) }
	if !look(65 * mib) {
		t.Error("it is over the bound")
	}
	if message := q.message(false); !strings.Contains(message, "take 65 MiB") || !strings.Contains(message, "have 64 MiB") {
		t.Errorf("it says %q", message)
	}
	q.killed = true
	if look(66 * mib) {
		t.Error("what the killed left is held against the next one")
	}
	if look(69*mib) || look(60*mib+6*mib) {
		t.Error("4 MiB more are let to who cleans up")
	}
	if !look(71 * mib) {
		t.Error("it takes more and more")
	}
	// Always over its bound, it gets no room above twice the bound.
	for range 100 {
		q.killed = true
		look(q.ceiling.Bytes + mib)
		if q.ceiling.Bytes > max(128*mib, q.used.Bytes) {
			t.Fatalf("with %d bytes it may have %d", q.used.Bytes, q.ceiling.Bytes)
		}
	}
	// A command may clean up over twice the bound too, and may not take more.
	q.killed = true
	for _, n := range []int64{300 * mib, 300 * mib, 299 * mib} {
		if look(n) {
			t.Errorf("a command that cleans up 300 MiB is killed at %d bytes", n)
		}
	}
	if !look(300*mib + 1) {
		t.Error("a container over twice its bound may take more")
	}
	// A measurement ends at twice the bound of names. The bytes of further files are not known.
	q.killed = true
	for i, want := range []bool{false, true, true} {
		if q.found(layer.Usage{Bytes: mib, Files: 200_001}, layer.Usage{}, false) != want {
			t.Errorf("measurement %d of more names than are counted: killed is not %v", i, want)
		}
	}
	if look(64 * mib); q.ceiling != q.most {
		t.Errorf("it has cleaned up, and may have %+v", q.ceiling)
	}
	if !look(65 * mib) {
		t.Error("the bound holds again")
	}
	if many := (layer.Usage{Files: 100_001}); !q.found(many, layer.Usage{}, false) ||
		!strings.Contains(q.message(false), "more than 100000 files") {
		t.Errorf("names: %q", q.message(false))
	}
	if !q.found(bytesUsed(1), layer.Usage{}, true) || !strings.Contains(q.message(true), "too deeply") {
		t.Errorf("too deep: %q", q.message(true))
	}
}

// What comes back to a disk does not make up for what it gave away.
func TestDisksSpent(t *testing.T) {
	d := disks{paths: []string{t.TempDir(), "/", "/proc", "no such folder"}}
	d.ask()
	if !d.blind || d.spent != (layer.Usage{}) {
		t.Errorf("at first: %+v", d)
	}
	had := []layer.Usage{{Bytes: 1 << 60, Files: 1 << 60}, {}, {}, {}}
	d.free = had
	d.ask()
	if d.spent.Bytes <= 1<<59 || d.spent.Files <= 1<<59 {
		t.Errorf("much was given away: %+v", d.spent)
	}
	before := d.spent
	clear(d.free) // of all: what others write to a disk meanwhile is none of it
	d.ask()
	if d.spent != before {
		t.Errorf("much came back: %+v", d.spent)
	}
}
