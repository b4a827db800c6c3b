package trial

import (
	"encoding/json"
	"fmt"

	"github.com/ramus-dev/ramus/executor/bisect"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks/browser"
	"github.com/ramus-dev/ramus/tasks/library"
)

// Picture is a page whose pictures are compared with those of the good commit.
type Picture struct {
	// Spec is the check, as YAML. A commit is bad above its compare.max_changed, whose default is 0 here.
	Spec string `json:"spec"`
	// Region is the part of the pictures that counts: left, top, width and height in CSS pixels. If it is empty, it is that
	// of the spec.
	Region []int `json:"region,omitempty"`
}

// Task returns the task of a try. The error wraps [gitd.ErrInvalid].
func (p Picture) Task(good gitd.Hash) (record.TaskCall, error) {
	s, err := browser.Parse("spec", []byte(p.Spec))
	if err != nil {
		return record.TaskCall{}, fmt.Errorf("%w spec: %w", gitd.ErrInvalid, err)
	}
	var against browser.Against
	if s.Compare != nil {
		against = *s.Compare
	}
	against.Base = string(good)
	if against.MaxChanged == nil {
		against.MaxChanged = new(float64)
	}
	if len(p.Region) > 0 {
		against.Region = p.Region
	}
	s.Compare = &against
	if s, err = s.Complete(); err != nil {
		return record.TaskCall{}, fmt.Errorf("%w spec: %w", gitd.ErrInvalid, err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return record.TaskCall{}, err
	}
	var check map[string]any
	if err := json.Unmarshal(text, &check); err != nil {
		return record.TaskCall{}, err
	}
	return record.TaskCall{Name: "browser_test", Params: map[string]any{"check": check}}, nil
}

// Judge returns the meaning of a run of [Picture.Task]. Only the pictures count, and not the faults that the browser saw.
// A commit whose pictures could not be compared says nothing.
func (p Picture) Judge(r record.Run, ended record.Event) (bisect.Result, string) {
	var data struct {
		Result struct {
			Output struct {
				Value library.Browsed `json:"value"`
			} `json:"output"`
		} `json:"result"`
	}
	if err := json.Unmarshal(ended.Data, &data); err != nil || len(data.Result.Output.Value.Checks) != 1 {
		return bisect.Skip, "no picture was taken: " + r.Error + ended.Message
	}
	check := data.Result.Output.Value.Checks[0]
	switch {
	case check.Compare == nil || len(check.Compare.Views) == 0:
		if check.Compare != nil && check.Compare.Reason != "" {
			return bisect.Skip, check.Compare.Reason
		}
		return bisect.Skip, check.Reason
	}
	s, err := browser.Parse("spec", []byte(p.Spec))
	if err != nil {
		return bisect.Skip, err.Error()
	}
	var most float64
	if s.Compare != nil && s.Compare.MaxChanged != nil {
		most = *s.Compare.MaxChanged
	}
	result, why := bisect.Good, ""
	for _, v := range check.Compare.Views {
		switch {
		case v.Uncompared && result == bisect.Good:
			result, why = bisect.Skip, v.Viewport+": "+v.Note
		case !v.Uncompared && v.Changed > most:
			return bisect.Bad, fmt.Sprintf("%s differs by %.2f %% of its pixels, see %s", v.Viewport, 100*v.Changed, v.Triptych)
		}
	}
	return result, why
}
