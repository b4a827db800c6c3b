package executor

import (
	"context"
	"io/fs"
	"path/filepath"

	"github.com/ramus-dev/ramus/executor/browse"
)

// newInspector returns the inspector that does the checks of runs by a browser.
func (x *Executor) newInspector() *browse.Inspector {
	return &browse.Inspector{
		Browser: x.Browser,
		Fleet:   x.Fleet,
		Bot:     x.Bot,
		Secrets: x.Secrets,
		Log:     x.Log,
		Now:     x.Now,
	}
}

// TraceViewer returns Playwright's trace viewer, static files that come with the browser's driver. The error is ErrUnavailable if there is no
// browser.
func (x *Executor) TraceViewer(context.Context) (fs.FS, error) {
	return x.viewer.Files(x.life.ctx) // the next request needs them too, if this one is gone
}

// newViewer returns the trace viewer of the browser.
func (x *Executor) newViewer() *browse.Viewer {
	return &browse.Viewer{Inspector: x.newInspector(), Dir: filepath.Join(x.Data, "trace-viewer")}
}
