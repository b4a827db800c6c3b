package dialogue

import (
	"strings"

	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
)

// overMeanwhile reports whether a turn that began before the server was restarted is over, and the reason. It records everything
// that the agent said and did until it was ended.
func (t *turn) overMeanwhile(w *step.Work) (stop string, over bool, err error) {
	if !w.Again {
		return "", false, nil
	}
	if stop, over = t.stopped(w); !over {
		stop, over = t.hearRest(w)
		interrupted := t.d.interrupted(w.Info.ID)
		if stop == "cancelled" && !interrupted {
			stop, over = "", false // some agents say so when they are ended
		}
		if over {
			if err := t.noteStop(w, stop); err != nil {
				return "", false, err
			}
		} else if interrupted {
			stop, over = "cancelled", true
		}
	}
	if over {
		t.run.Note(w.Info.ID, "the server was restarted; the agent had ended its turn meanwhile")
	} else {
		t.run.Note(w.Info.ID, "the server was restarted; the agent was ended, and another goes on with its session")
	}
	return stop, over, nil
}

// hearRest records the part of the turn that an earlier server did not record, from the output of the agent's last process, which has
// ended. over reports whether the agent ended its turn. An error is noted, and the turn goes on without that part.
func (t *turn) hearRest(w *step.Work) (stop string, over bool) {
	run := t.run
	rest, ok := agent.LastRest(run.Journalled(), w.Info.ID)
	if !ok || !strings.HasPrefix(rest.Process, run.ProcessPrefix()) {
		return "", false
	}
	err := w.Out.Stdout.Again(rest.Words, func() (err error) {
		stop, err = rest.Hear(t.d.all.Context, w.Host, agentTurn{w, t.d}, t.a.Output)
		return err
	})
	switch {
	case err == nil:
		return stop, stop != ""
	case t.d.all.Context.Err() == nil: // otherwise the next server reads them
		run.Note(w.Info.ID, "the words of the agent while the server was away are lost: "+t.d.all.Secrets.String(err.Error()))
	}
	return "", false
}

// noteStop journals the reason for which the agent ended the turn.
func (t *turn) noteStop(w *step.Work, stop string) error {
	return t.run.Emit(record.Event{Type: record.EventAgent, Kind: agent.KindStop, Step: w.Info.ID, Message: stop}, true)
}
