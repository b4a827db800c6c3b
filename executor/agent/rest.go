package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/record"
)

// restWait is how long the output of a process that has ended may take to be read.
const restWait = time.Minute

// Mark is the beginning of a turn in the output of an agent's process. It is the data of an event of [KindPrompt].
type Mark struct {
	Process string `json:"process"` // id of the command
	From    int64  `json:"from"`    // bytes of its standard output before the turn
}

// Rest is the output of an agent's process in a turn that the end of the server interrupted. The runner has all of it. The same
// output gives the same words and events in the same order, so the number of those that are recorded is the place from which the
// others follow.
type Rest struct {
	Mark
	// Words is how many bytes the step had printed to its standard output before the turn.
	Words int64
	// Told is the number of the turn's events that are journalled.
	Told int
}

// LastRest returns the rest of the last prompt of a step from the journal of its run. ok is false if no prompt was sent since the step
// began.
func LastRest(events []record.Event, step string) (r Rest, ok bool) {
	for _, e := range slices.Backward(events) {
		switch {
		case e.Step != step:
		case e.Type == record.EventStepStarted:
			return Rest{}, false
		case e.Type != record.EventAgent:
		case e.Kind == KindPrompt:
			r.Words = e.Words
			err := json.Unmarshal(e.Data, &r.Mark)
			return r, err == nil
		case e.Kind == KindThought, e.Kind == KindLimit, !reserved(e.Kind):
			r.Told++
		}
	}
	return Rest{}, false
}

// Hear reads the output of the process, which must have ended, and records in t everything that is not recorded yet. It writes the
// words of the turn to the standard output of t from the first one on, and t must not keep the known ones twice. Requests of the
// agent are not answered any more. stop is the reason for which the agent ended the turn, or "" if it did not end it. Hear reads most
// bytes at most.
func (r Rest) Hear(ctx context.Context, h *containers.Host, t Turn, most int64) (stop string, err error) {
	ctx, cancel := context.WithTimeout(ctx, restWait)
	var copying sync.WaitGroup
	defer copying.Wait()
	defer cancel() // ends the copying
	p, err := h.Attach(ctx, r.Process, r.From, 0)
	if err != nil {
		return "", fmt.Errorf("cannot read the agent's output: %w", err)
	}
	output, to := io.Pipe()
	defer output.Close()
	copying.Go(func() {
		_, err := p.Output(to, nil)
		to.CloseWithError(err) // nil means the end
	})
	if stop, err = r.record(io.LimitReader(output, most), t); err != nil {
		return "", fmt.Errorf("cannot read the agent's output: %w", err)
	}
	return stop, nil
}

// record records the rest of the output in t.
func (r Rest) record(output io.Reader, t Turn) (stop string, err error) {
	heard := newTranscript(&laterTurn{Turn: t, known: r.Told})
	stop, err = acp.Replay(output, heard.update, heard.settle)
	if err != nil {
		heard.cut() // the words may go on
		return "", err
	}
	heard.end()
	return stop, nil
}

// laterTurn is a Turn whose first events are known.
type laterTurn struct {
	Turn
	known int
}

func (t *laterTurn) Emit(e record.Event) error {
	if t.known > 0 {
		t.known--
		return nil
	}
	return t.Turn.Emit(e)
}
