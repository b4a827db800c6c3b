package executor

import (
	"context"
	"encoding/json"

	"github.com/ramus-dev/ramus/tasks"
)

// Task runs a library task in the visitor's container, beside the step that runs
// now: an agent's tool. It is journalled as an EventTool; what it changes is
// committed with the step. Between steps it is ErrConflict.
func (v Visitor) Task(ctx context.Context, name string, params json.RawMessage) (tasks.Output, error) {
	panic("not built")
}
