package terminal

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/terminal"
	"github.com/ramus-dev/ramus/gateway/route"
)

// frames are one of each type.
var frames = []Frame{
	{Type: FrameHello, Hello: Hello{Ticket: "t", Terminal: "new", Have: -1, Cols: 80, Rows: 24}},
	{Type: FrameInput, Data: []byte("ls\r\x00\xff")},
	{Type: FrameSize, Size: terminal.Size{Cols: 120, Rows: 40}},
	{Type: FrameAck, Offset: 1 << 40},
	{Type: FrameTake},
	{Type: FramePing, Data: []byte("now")},
	{Type: FramePong, Data: []byte("now")},
	{Type: FrameState, State: State{Name: "1", Running: true, Size: terminal.Size{Rows: 1, Cols: 2}}},
	{Type: FrameOutput, Offset: 7, Data: []byte("\x1b[1m字")},
	{Type: FrameReset, Offset: 9, Reason: "skipped", Data: []byte("\x1b[?25l\x00")},
	{Type: FrameMark, Done: Done{Command: "ls", Exit: -1, Commit: "abc", Offset: 5}},
	{Type: FrameProblem, Fault: Problem{Kind: "denied", Detail: "no", Final: true}},
}

// FuzzDecode decodes any message. A message that can be decoded is encoded to the same frame.
func FuzzDecode(f *testing.F) {
	for _, frame := range frames {
		message, err := frame.Encode()
		if err != nil {
			f.Fatal(err)
		}
		again, err := Decode(message)
		if err != nil || !reflect.DeepEqual(again, frame) && !(len(frame.Data) == 0 && len(again.Data) == 0) {
			f.Fatalf("%+v became %+v, %v", frame, again, err)
		}
		f.Add(message)
	}
	f.Add([]byte{})
	f.Add([]byte{FrameAck, 0xff, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, message []byte) {
		frame, err := Decode(message)
		if err != nil {
			return
		}
		if frame.Offset < 0 || frame.Type == FramePing && len(frame.Data) > maxPing {
			t.Fatalf("%+v", frame)
		}
		encoded, err := frame.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(encoded)
		if err != nil || again.Type != frame.Type || again.Offset != frame.Offset || !bytes.Equal(again.Data, frame.Data) {
			t.Fatalf("%+v became %+v, %v", frame, again, err)
		}
	})
}

// TestTickets checks that a ticket opens once, in time, and for whom it was issued.
func TestTickets(t *testing.T) {
	var list tickets
	now := time.Unix(1000, 0)
	secret, err := list.issue(ticket{who: route.Who{Subject: "ada"}, terminal: "2"}, now)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := list.redeem(secret+"x", now); ok {
		t.Error("another secret opens")
	}
	if k, ok := list.redeem(secret, now.Add(ticketTime)); !ok || k.who.Subject != "ada" || k.terminal != "2" {
		t.Errorf("ticket %+v, %t", k, ok)
	}
	if _, ok := list.redeem(secret, now); ok {
		t.Error("it opens twice")
	}
	late, err := list.issue(ticket{}, now)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := list.redeem(late, now.Add(ticketTime+1)); ok {
		t.Error("it opens too late")
	}
	for range ticketsMax {
		if _, err = list.issue(ticket{}, now); err != nil {
			break
		}
	}
	if err != nil {
		t.Fatalf("a used ticket takes a place: %v", err)
	}
	if _, err := list.issue(ticket{}, now); err == nil {
		t.Error("tickets without bound")
	}
	if _, err := list.issue(ticket{}, now.Add(2*ticketTime)); err != nil {
		t.Errorf("old tickets take places: %v", err)
	}
	a, b := &route.Account{Session: "1"}, &route.Account{Session: "2"}
	if same(route.Who{Subject: "x", Account: a}, route.Who{Subject: "x", Account: b}) ||
		same(route.Who{Subject: "x"}, route.Who{Subject: "x", Account: a}) ||
		!same(route.Who{Subject: "x", Account: a}, route.Who{Subject: "x", Account: a}) ||
		same(route.Who{Subject: "x"}, route.Who{Subject: "y"}) {
		t.Error("a ticket is bound to its session")
	}
}
