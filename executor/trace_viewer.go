package executor

import (
	"context"
	"io/fs"
)

// TraceViewer is Playwright's trace viewer, static files that come with the driver,
// taken from the browser's sidecar once and kept in Data. Without a browser it is ErrUnavailable.
func (x *Executor) TraceViewer(ctx context.Context) (fs.FS, error) { panic("not built") }
