package transfer

import (
	"context"
	"fmt"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Look has f read the work tree in a caller's container as it is now. A container is made if there is none. The tree
// ends with f and with ctx.
func (m *Mover) Look(ctx context.Context, c record.Caller, by gitd.Person, f func(*Live) error) error {
	_, lease, err := m.Awake(ctx, c, by)
	if err != nil {
		return fmt.Errorf("cannot read the files of %s: %w", c, err)
	}
	defer lease.Release()
	conn, err := lease.Host.FilesConn(ctx)
	if err != nil {
		return fmt.Errorf("cannot read the files of %s: %w", c, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	live, err := OpenLive(conn, containers.WorkDir)
	if err != nil {
		return fmt.Errorf("cannot read the files of %s: %w", c, err)
	}
	defer live.Close() // it was only read
	return f(live)
}
