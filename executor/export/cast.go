package export

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
)

// Bounds of a recording, in bytes.
const (
	maxCastOutput = 1 << 20  // of one stream of a command
	maxCast       = 64 << 20 // of all output
	maxCastFile   = 96 << 20 // of the file, in which some bytes of an output are six
)

// castHeader is the first line of a recording.
type castHeader struct {
	Version   int    `json:"version"`
	Width     int    `json:"width"`
	Height    int    `json:"height"`
	Timestamp int64  `json:"timestamp"`
	Title     string `json:"title"`
}

// Cast writes the commands of a run and their outputs as a recording in the format asciicast v2, which players of
// terminals show. Each command appears when it began, and its output when it ended, because the times inside are not
// recorded. Outputs over 1 MiB are cut, and so is a recording over 96 MiB. Returns the number of commands.
func Cast(ctx context.Context, runs Runs, r record.Run, w io.Writer) (commands int, err error) {
	c := &cast{runs: runs, run: r, out: bufio.NewWriter(w), begin: r.CreatedAt, left: maxCast}
	if commands, err = c.write(ctx); err == nil {
		err = c.out.Flush()
	}
	if err != nil {
		return commands, fmt.Errorf("cannot record %s: %w", r.Name(), err)
	}
	return commands, nil
}

// cast is a recording that is being made.
type cast struct {
	runs  Runs
	run   record.Run
	out   *bufio.Writer
	begin time.Time
	last  float64 // the time of the last line, in seconds
	left  int64   // bytes of output
	bytes int64   // of the lines
	full  bool    // a line was left out
}

func (c *cast) write(ctx context.Context) (commands int, err error) {
	size := record.TerminalCall{}
	if c.run.Terminal != nil {
		size = *c.run.Terminal
	}
	head := castHeader{Version: 2, Width: cmp.Or(size.Cols, 80), Height: cmp.Or(size.Rows, 24), Timestamp: c.begin.Unix(),
		Title: c.run.Name() + " " + c.run.Title()}
	if err := c.line(head); err != nil {
		return 0, err
	}
	began := make(map[string]bool)
	for e, err := range c.runs.Events(ctx, c.run.Name(), 0, false) {
		if err != nil {
			return commands, err
		}
		switch {
		case e.Type == record.EventStepStarted && e.Command != "":
			began[e.Step] = true
			commands++
			err = c.print(e.Time, "$ "+strings.ReplaceAll(e.Command, "\n", "\n> ")+"\n")
		case e.Type == record.EventStepFinished && began[e.Step]:
			began[e.Step] = false
			err = c.finish(ctx, e)
		}
		if err != nil {
			return commands, err
		}
	}
	return commands, nil
}

// finish prints the outputs of a command and, if it failed, its exit status.
func (c *cast) finish(ctx context.Context, e record.Event) error {
	for _, stream := range []string{"stdout", "stderr"} {
		of := e.Stdout
		if stream == "stderr" {
			of = e.Stderr
		}
		if of == nil || of.Bytes == 0 {
			continue
		}
		if err := c.copy(ctx, e, stream); err != nil {
			return err
		}
	}
	if e.Exit != nil && *e.Exit != 0 {
		return c.print(e.Time, fmt.Sprintf("[exit %d]\n", *e.Exit))
	}
	return nil
}

// copy prints one output of a command.
func (c *cast) copy(ctx context.Context, e record.Event, stream string) error {
	in, err := c.runs.Output(ctx, c.run.Name(), e.Step, stream)
	if err != nil {
		return err
	}
	most := min(maxCastOutput, c.left)
	content, err := io.ReadAll(io.LimitReader(in, most+1))
	if err = errors.Join(err, in.Close()); err != nil {
		return err
	}
	cut := int64(len(content)) > most
	if cut {
		content = content[:most]
	}
	c.left -= int64(len(content))
	err = c.print(e.Time, string(content))
	if err == nil && cut {
		err = c.print(e.Time, "\n[the output is cut]\n")
	}
	return err
}

// print adds text at a time. A newline also returns to the beginning of the line, as a terminal does it.
func (c *cast) print(at time.Time, content string) error {
	content = strings.ToValidUTF8(content, "\uFFFD")
	content = strings.ReplaceAll(strings.ReplaceAll(content, "\r\n", "\n"), "\n", "\r\n")
	c.last = max(c.last, float64(at.Sub(c.begin).Milliseconds())/1000)
	return c.line([]any{c.last, "o", content})
}

// line writes a line. The first one that has no room, and all after it, are left out.
func (c *cast) line(v any) error {
	if c.full {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if c.bytes += int64(len(b)) + 1; c.bytes > maxCastFile {
		c.full = true
		b, err = json.Marshal([]any{c.last, "o", "\r\n[the recording is cut]\r\n"})
		if err != nil {
			return err
		}
	}
	_, err = c.out.Write(append(b, '\n'))
	return err
}
