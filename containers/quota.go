package containers

import (
	"fmt"
	"time"

	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/internal/bytesize"
)

const (
	// A bound of n bytes implies one of n/bytesPerName names, but at least leastNames. mkfs makes as many inodes.
	bytesPerName = 16 << 10
	leastNames   = 100_000
	// slackPart is the part of the bound that a container over its bound gets for cleaning up. stepPart is the part of
	// it that the disks must have given away before the container is measured again.
	slackPart, stepPart = 16, 64
)

// quota is the disk space that one container may take, and its measured use. The fleet's mutex guards its fields.
type quota struct {
	most   layer.Usage // zero bytes mean no bound
	output int64       // bytes kept of each stream of a command
	// ceiling is the use over which the commands are killed. It is most, or a little more than the use at the last call
	// of raise, so that the next command may clean up.
	ceiling layer.Usage
	used    layer.Usage
	known   bool        // used was right when the disks had given away spent
	spent   layer.Usage // see known
	looked  time.Time
	strikes int
	ending  bool // its commands are being killed
	killed  bool // its commands were killed, and its use was not measured since
}

// newQuota returns the quota of a container that has nothing on disk. spent is the usage that the disks have given away so far.
func newQuota(l Limits, spent layer.Usage) *quota {
	l = l.WithDefaults()
	q := &quota{output: l.Output, spent: spent, known: true}
	if l.Disk > 0 {
		q.most = layer.Usage{Bytes: l.Disk, Files: max(l.Disk/bytesPerName, leastNames)}
	}
	q.ceiling = q.most
	return q
}

// disk returns the Limits.Disk of newQuota.
func (q *quota) disk() int64 {
	if q.most.Bytes == 0 {
		return -1
	}
	return q.most.Bytes
}

// part returns 1/n of a bound.
func part(u layer.Usage, n int64) layer.Usage {
	return layer.Usage{Bytes: u.Bytes / n, Files: u.Files / n}
}

func plus(a, b layer.Usage) layer.Usage {
	return layer.Usage{Bytes: a.Bytes + b.Bytes, Files: a.Files + b.Files}
}

func over(u, bound layer.Usage) bool { return u.Bytes > bound.Bytes || u.Files > bound.Files }

// due reports whether the container may have gone over its ceiling by now.
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

// found records a measurement, and reports whether the commands are to be killed for it.
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

// raise sets the ceiling a little above the current use. The margin shrinks with each call until the container was
// under its bound again, and there is none above twice the bound. A ceiling below the bytes in use would have a command
// killed while it deletes files. Names are at most twice their bound, because a measurement counts no further, and no
// bytes after that.
func (q *quota) raise() {
	up := plus(q.used, part(q.most, slackPart<<min(q.strikes, 30)))
	twice := plus(q.most, q.most)
	q.ceiling = layer.Usage{
		Bytes: max(min(up.Bytes, twice.Bytes), q.used.Bytes, q.most.Bytes),
		Files: max(min(up.Files, twice.Files), q.most.Files),
	}
	q.strikes++
}

// message says why commands are killed, and what to do.
func (q *quota) message(tooDeep bool) string {
	const todo = "; delete what is not needed and continue, or remove the container (`ramus stop`), which loses uncommitted changes"
	switch {
	case q.used.Bytes > q.most.Bytes:
		return fmt.Sprintf("the container's files take %s of disk, and limits.disk lets a caller have %s",
			bytesize.Text(q.used.Bytes), bytesize.Text(q.most.Bytes)) + todo
	case q.used.Files > q.most.Files:
		return fmt.Sprintf("the container has more than %d files, and with limits.disk at %s a caller may have %d",
			q.used.Files-1, bytesize.Text(q.most.Bytes), q.most.Files) + todo
	case tooDeep:
		return "the container's folders are nested too deeply to measure their size, which limits.disk bounds" + todo
	}
	return ""
}
