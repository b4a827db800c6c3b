package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ramus-dev/ramus/containers/kubernetes/way"
	"github.com/ramus-dev/ramus/containers/layer"
)

// usageWait bounds a measurement, as way does.
const usageWait = time.Minute

// exitError is the end of a command that ran and did not end with 0.
type exitError struct {
	code int
	said string // on stderr
}

func (e *exitError) Error() string { return "exit status " + strconv.Itoa(e.code) + ": " + e.said }

// perform performs a command in a container of the pod, reports its end, and closes the streams.
func (p *pod) perform(s *stream, in string, args []string) {
	p.mu.Lock()
	if !p.running[in] {
		p.mu.Unlock()
		s.Close()
		return
	}
	p.streams[s] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.streams, s)
		p.mu.Unlock()
		s.Close()
	}()
	err := p.performIn(s, in, args)
	var exit *exitError
	if errors.As(err, &exit) && s.errs != nil {
		fmt.Fprintln(s.errs, exit.said)
	}
	_, _ = s.status.Write(endOf(err))
	_ = s.status.Close()
}

// performIn performs the commands of the first container. No others are simulated.
func (p *pod) performIn(s *stream, in string, args []string) error {
	if in != wayName || len(args) < 3 || args[0] != way.Program || args[1] != "way" {
		return fmt.Errorf("cannot perform %q in container %s: it is not simulated", args, in)
	}
	switch {
	case args[2] == "connect" && len(args) == 4:
		if err := p.sessions.Connect(args[3], carrier{s}); err != nil {
			return &exitError{way.Failed, err.Error()}
		}
		return nil
	case args[2] == "usage" && len(args) >= 5:
		return p.usage(s, args[3], args[4:])
	}
	return &exitError{way.Failed, fmt.Sprintf("cannot perform %q: it is not simulated", args[2:])}
}

// usage prints the space that folders of the pod take.
func (p *pod) usage(s *stream, most string, paths []string) error {
	n, err := strconv.ParseInt(most, 10, 64)
	if err != nil || n <= 0 {
		return &exitError{way.Failed, "cannot count up to " + most}
	}
	var outside []string
	for _, path := range paths {
		at, ok := inside(p.folder, path)
		if !ok {
			return &exitError{way.Failed, path + " is in no volume"}
		}
		outside = append(outside, at)
	}
	ctx, cancel := context.WithTimeout(context.Background(), usageWait)
	defer cancel()
	sum, err := layer.Count(ctx, n, outside...)
	if err != nil && !errors.Is(err, layer.ErrTooMany) {
		return &exitError{way.Failed, err.Error()}
	}
	return json.NewEncoder(s).Encode(sum)
}

// carrier carries a session on the streams of a command. The end of the session ends stdin alone, because the status of the command
// comes after it.
type carrier struct{ *stream }

func (c carrier) Close() error {
	if c.in == nil {
		return nil
	}
	return c.in.Reset()
}

// endOf returns the Status with which a command ends.
func endOf(err error) []byte {
	status := map[string]any{"metadata": map[string]any{}, "status": "Success"}
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		status = map[string]any{"metadata": map[string]any{}, "status": "Failure", "reason": "NonZeroExitCode",
			"message": fmt.Sprintf("command terminated with non-zero exit code: exit status %d", exit.code),
			"details": map[string]any{"causes": []map[string]string{{"reason": "ExitCode", "message": strconv.Itoa(exit.code)}}}}
	case err != nil:
		status = map[string]any{"metadata": map[string]any{}, "status": "Failure", "reason": "InternalError", "code": 500,
			"message": "Internal error occurred: " + err.Error()}
	}
	b, merr := json.Marshal(status)
	if merr != nil {
		return []byte(`{"status":"Failure"}`)
	}
	return b
}
