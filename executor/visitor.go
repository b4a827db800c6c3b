package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/ramus-dev/ramus/executor/browse"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks"
	"github.com/ramus-dev/ramus/tasks/browser"
	"github.com/ramus-dev/ramus/tasks/library"
)

// Bounds of a tool's result in the journal, in bytes.
const (
	maxToolData  = 8 << 10
	maxToolWords = 300 // of an error
)

// Task runs a library task in the visitor's container during the step that runs now, as an agent's tool. It is journalled as an
// EventTool of kind "task". Its changes are committed with the step, and the step does not end before it. Its output is in the
// result, without secrets, and not in the step's output. The error is ErrConflict between steps, and ErrInvalid if there is no
// such task or it does not take the parameters.
func (v Visitor) Task(ctx context.Context, name string, params json.RawMessage) (tasks.Output, error) {
	g, ok := v.Enter(ctx)
	if !ok {
		return tasks.Output{}, fmt.Errorf("cannot run %s: %w: nothing is at work in %s", name, record.ErrConflict, v.Caller)
	}
	defer g.Leave()
	task, ok := library.Lookup(name)
	if !ok {
		return tasks.Output{}, fmt.Errorf("%w task %q: there is none of that name", record.ErrInvalid, name)
	}
	if len(params) > 0 && !json.Valid(params) {
		return tasks.Output{}, fmt.Errorf("%w parameters of %s: they are no JSON", record.ErrInvalid, name)
	}
	x := v.x
	begun := x.Now()
	out, err := task.Run(g.Context(), g.Shell(x.options().Timeout), params)
	secrets := x.Secrets.With(typedInline(params))
	out = redact.Clean(secrets, out)
	done := out.OK && err == nil
	e := record.Event{Type: record.EventTool, Kind: string(record.KindTask), Task: name, Message: name, OK: &done,
		DurationMS: x.Now().Sub(begun).Milliseconds()}
	if err != nil {
		e.Reason = text.Clip(x.Secrets.String(err.Error()), maxToolWords)
	}
	if data := record.Marshal(toolRun{params, out}); len(data) <= maxToolData {
		e.Data = data
	}
	e = redact.Clean(secrets, e)
	e.Type = record.EventTool
	g.Tell(e)
	switch {
	case errors.Is(err, tasks.ErrParams):
		return out, fmt.Errorf("%w: %w", record.ErrInvalid, err)
	case err != nil:
		return out, fmt.Errorf("cannot run %s: %w", name, err)
	}
	return out, nil
}

// typedInline returns the values of secret steps of a browser's check that is in the parameters of a task.
func typedInline(params json.RawMessage) map[string]string {
	var p struct {
		Check browser.Spec `json:"check"`
	}
	_ = json.Unmarshal(params, &p) // a value that is not a whole spec may have them, too
	return browse.Typed(p.Check)
}

// MaxPicture bounds the pictures that [Visitor.Picture] returns, in bytes.
const MaxPicture = 1 << 20

// Picture returns a picture of a browser check of the run that works now, by the name that the check gives it
// ("001-todo/desktop/screenshot.png"). It is a PNG as the browser made it. The error is ErrInvalid if it is larger
// than MaxPicture. The run's evidence has it even then.
func (v Visitor) Picture(name string) ([]byte, error) {
	wrap := func(err error) error { return fmt.Errorf("cannot show %.200q: %w", name, err) }
	w := v.t.AtWork()
	if w == nil {
		return nil, wrap(fmt.Errorf("%w: nothing is at work in %s", record.ErrConflict, v.Caller))
	}
	if path.Ext(name) != ".png" {
		return nil, wrap(fmt.Errorf("%w: it is no picture", record.ErrInvalid))
	}
	folder, err := os.OpenRoot(filepath.Join(v.x.Folder.Output(w.Run.Initial), "artifacts", record.BrowserFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, wrap(record.ErrNotFound)
	}
	if err != nil {
		return nil, wrap(err)
	}
	defer folder.Close()
	f, err := folder.Open(filepath.FromSlash(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, wrap(record.ErrNotFound)
	}
	if err != nil {
		return nil, wrap(err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, MaxPicture+1))
	if err != nil {
		return nil, wrap(err)
	}
	if len(b) > MaxPicture {
		return nil, wrap(fmt.Errorf("%w: it is larger than %d MiB", record.ErrInvalid, MaxPicture>>20))
	}
	return b, nil
}

// toolRun is the data of a task's EventTool, unless it is too long.
type toolRun struct {
	Params json.RawMessage `json:"params,omitempty"`
	Output tasks.Output    `json:"output"`
}

// Guest is a request at a container's door for which a run answers, see [step.Guest].
type Guest = step.Guest

// Enter makes a request a guest of the step that runs now, see [step.Target.Enter]. It returns false between steps.
func (v Visitor) Enter(ctx context.Context) (*Guest, bool) { return v.t.Enter(ctx) }
