package browse

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// The exit codes of ramus-browser.
const (
	browserPassed = 0
	browserFailed = 1
)

var errOverdue = errors.New("the browser took too long")

// inspect has the browser look at the page and takes the evidence.
func (k *look) inspect(ctx context.Context, p page, state json.RawMessage) error {
	in := k.in
	deadline := min(time.Duration(k.spec.Timeout), in.Browser.timeout())
	grace := cmp.Or(in.Browser.Grace, browserGrace)
	spec := k.spec
	spec.Timeout = browser.Duration(deadline)
	spec.URL, spec.Install, spec.Start, spec.Auth, spec.Compare = p.url, "", startNone, "", nil
	job := record.Marshal(browser.Job{Spec: spec, State: state, Proxy: "http://" + containers.DoorAddr,
		Deadline: browser.Duration(deadline + grace)})

	bctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Its time begins when its turn has come.
	stdin := &startingReader{r: bytes.NewReader(job), within: deadline + 2*grace, late: func() { cancel(errOverdue) }}
	defer stdin.stop()
	raw := filepath.Join(k.part, rawFolder)
	pr, pw := io.Pipe()
	unpacked := make(chan error, 1)
	go func() {
		err := unpack(pr, raw, k.spec.Viewports)
		_ = pr.CloseWithError(errors.Join(errors.New("no more is taken"), err)) // never fails
		unpacked <- err
	}()
	said := &text.Tail{Limit: maxSaid}
	s := in.sidecar("browser:"+k.step.Claim.Caller.String(), pw, said, "check")
	s.Stdin = stdin
	exit, err := in.Fleet.RunSidecar(bctx, k.step.Host.Container().ID, s)
	pw.Close()
	bad := <-unpacked
	k.check.MemoryPeak = exit.Memory
	if exit.Image != "" {
		k.check.Images = append(k.check.Images, browser.Image{Role: "browser", Name: exit.Image})
	}
	switch cause := context.Cause(ctx); {
	case cause != nil:
		return cause
	case errors.Is(context.Cause(bctx), errOverdue):
		return unverified("the browser did not end within %v and was ended", deadline)
	case bad != nil:
		return unverified("the result of the browser cannot be kept: %v", bad)
	case err != nil && lost(k.step.Host):
		return err
	case err != nil:
		return unverified("the page could not be looked at: %v", err)
	case exit.OOM:
		return unverified("the browser used more than %d MiB of memory and was ended", s.Bounds().Memory>>20)
	}
	return k.readOutput(raw, exit.Code, said.String())
}

// lost reports whether a container has ended.
func lost(h *containers.Host) bool {
	select {
	case <-h.Done():
		return true
	default:
		return false
	}
}

// startingReader calls late when so much time has passed since its first read.
type startingReader struct {
	r      io.Reader
	within time.Duration
	late   func()

	mu    sync.Mutex
	timer *time.Timer // guarded by mu; nil if not read yet
	over  bool        // guarded by mu
}

func (s *startingReader) Read(p []byte) (int, error) {
	s.mu.Lock()
	if s.timer == nil && !s.over {
		s.timer = time.AfterFunc(s.within, s.late)
	}
	s.mu.Unlock()
	return s.r.Read(p)
}

func (s *startingReader) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.timer != nil {
		s.timer.Stop()
	}
}
