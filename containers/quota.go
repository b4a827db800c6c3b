package containers

import (
	"fmt"
	"time"

	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/internal/bytesize"
)

const (
	// A name is taken for so many bytes where names are bounded: mkfs makes as many inodes.
	bytesPerName = 16 << 10
	leastNames   = 100_000
	// Parts of the bound: what is left to a container that went over it, to clean up, and
	// what the disks must have given away before it is looked at again.
	slackPart, stepPart = 16, 64
)

// quota is what one container may take, and what is known of it. Its fields are guarded by
// the fleet's mutex.
type quota struct {
	most   layer.Usage // no bytes: there is no bound
	output int64       // bytes kept of each stream of a command
	// ceiling is what its commands are killed over: most, or a little more than what the
	// last killing left, so that the next command may clean up.
	ceiling layer.Usage
	used    layer.Usage
	known   bool        // used is right as of spent
	spent   layer.Usage // what the disks had given away by then
	looked  time.Time
	strikes int
	ending  bool // its commands are being killed
	killed  bool // they were; what is left is not known yet
}

// newQuota is the bound of a container that has nothing on disk. spent is what the disks
// have given away by now.
func newQuota(l Limits, spent layer.Usage) *quota {
	l = l.WithDefaults()
	q := &quota{output: l.Output, spent: spent, known: true}
	if l.Disk > 0 {
		q.most = layer.Usage{Bytes: l.Disk, Files: max(l.Disk/bytesPerName, leastNames)}
	}
	q.ceiling = q.most
	return q
}

// disk is what newQuota was given.
func (q *quota) disk() int64 {
	if q.most.Bytes == 0 {
		return -1
	}
	return q.most.Bytes
}

// part is a part of a bound.
func part(u layer.Usage, n int64) layer.Usage {
	return layer.Usage{Bytes: u.Bytes / n, Files: u.Files / n}
}

func plus(a, b layer.Usage) layer.Usage {
	return layer.Usage{Bytes: a.Bytes + b.Bytes, Files: a.Files + b.Files}
}

func over(u, bound layer.Usage) bool { return u.Bytes > bound.Bytes || u.Files > bound.Files }

// due tells whether the container may have gone over its ceiling by now.
func (q *quota) due(spent layer.Usage) bool {
	switch {
	case q.most.Bytes == 0 || q.ending:
		return false
	case q.killed || !q.known:
		return true
	}
	step := part(q.most, stepPart)
	return spent.Bytes-q.spent.Bytes > max(q.ceiling.Bytes-q.used.Bytes, step.Bytes) ||
		spent.Files-q.spent.Files > max(q.ceiling.Files-q.used.Files, step.Files)
}

// found takes what a look has found, and tells whether commands are to be killed for it.
func (q *quota) found(used, spent layer.Usage, tooDeep bool) bool {
	q.used, q.spent, q.known = used, spent, true
	if !tooDeep && !over(used, q.most) {
		q.ceiling, q.strikes, q.killed = q.most, 0, false
		return false
	}
	if q.killed {
		q.killed = false
		q.raise()
		return false
	}
	return tooDeep || over(used, q.ceiling)
}

// raise lets the container have what it has, and a little more: less each time until it was
// under its bound again, and never twice the bound.
func (q *quota) raise() {
	up := plus(q.used, part(q.most, slackPart<<min(q.strikes, 30)))
	twice := plus(q.most, q.most)
	q.ceiling = layer.Usage{
		Bytes: max(min(up.Bytes, twice.Bytes), q.most.Bytes),
		Files: max(min(up.Files, twice.Files), q.most.Files),
	}
	q.strikes++
}

// says is why commands are killed, and what to do.
func (q *quota) says(tooDeep bool) string {
	const todo = "; delete what is not needed and go on, or remove the container (`ramus stop`), which loses what was not committed"
	switch {
	case q.used.Bytes > q.most.Bytes:
		return fmt.Sprintf("the container's files take %s of disk, and limits.disk lets a caller have %s", bytesize.Text(q.used.Bytes), bytesize.Text(q.most.Bytes)) + todo
	case q.used.Files > q.most.Files:
		return fmt.Sprintf("the container has more than %d files, and with limits.disk at %s a caller may have %d", q.used.Files-1, bytesize.Text(q.most.Bytes), q.most.Files) + todo
	case tooDeep:
		return "the container's folders lie too deep to tell what they take, and limits.disk bounds that" + todo
	}
	return ""
}
