package agent

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/record"
)

// askedTurn is a Turn in which a person approves when answer is closed.
type askedTurn struct{ answer chan struct{} }

func (askedTurn) Step() string                    { return "turn-1" }
func (askedTurn) Emit(record.Event) error         { return nil }
func (askedTurn) Output() (stdout, err io.Writer) { return io.Discard, io.Discard }

func (askedTurn) Judge(record.Command) bool { return false }

func (askedTurn) Permit(context.Context, record.Command) error { return nil }

func (t askedTurn) AskPermission(ctx context.Context, _ acp.Question) (string, error) {
	select {
	case <-t.answer:
		return "yes", nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// TestClockStopsWhileAsked checks that the time of a turn does not pass while a question to a
// person is open.
func TestClockStopsWhileAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		turn := askedTurn{answer: make(chan struct{})}
		k := &Process{o: Options{Agent: Agent{Permission: PermissionAsk}}, heard: newTranscript(turn), said: t.Context(),
			clock: NewClock(3*time.Second, func() { close(over) })}
		ended := func() bool {
			synctest.Wait()
			select {
			case <-over:
				return true
			default:
				return false
			}
		}
		time.Sleep(2 * time.Second)
		answered := make(chan string, 1)
		go func() {
			option, err := k.Permit(t.Context(), acp.Question{Options: []acp.Option{{ID: "yes", Kind: "allow_once"}}})
			if err != nil {
				t.Error(err)
			}
			answered <- option
		}()
		synctest.Wait()
		time.Sleep(30 * time.Minute)
		close(turn.answer)
		if got := <-answered; got != "yes" || ended() {
			t.Errorf("answered %q, the turn's time is up: %v", got, ended())
		}
		if time.Sleep(time.Second - 1); ended() {
			t.Error("less than its time is over")
		}
		if time.Sleep(time.Nanosecond); !ended() {
			t.Error("its time never ends")
		}
	})
}
