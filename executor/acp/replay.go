package acp

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"

	sdk "github.com/coder/acp-go-sdk"
)

// Replay reads the output of an agent in one turn, from the beginning of a message on, after the agent has ended. It calls update
// for each update, and asked for each request for permission, in the order of the messages. All other requests are ignored. Replay
// stops at the answer to the prompt and returns its stop reason, as [Conn.Prompt] does. stop is empty if the output ends before. A
// message that is cut off at the end is ignored.
func Replay(output io.Reader, update func(Update), asked func()) (stop string, err error) {
	l := &lines{from: bufio.NewReaderSize(output, 64<<10)}
	for {
		line, err := l.line()
		if errors.Is(err, io.EOF) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		var e envelope
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		switch {
		case e.Method == "" && e.ID != nil:
			var answer struct {
				StopReason string `json:"stopReason"`
			}
			if json.Unmarshal(e.Result, &answer) == nil && answer.StopReason != "" {
				return stopReason(answer.StopReason), nil
			}
		case e.Method == sdk.ClientMethodSessionUpdate && e.ID == nil:
			if _, u, err := ParseUpdate(e.Params); err == nil {
				update(u)
			}
		case e.Method == sdk.ClientMethodSessionRequestPermission && e.ID != nil:
			asked()
		}
	}
}
