package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"syscall"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Kind says in one word what went wrong, for programs; it never changes its meaning.
type Kind string

// The kinds of problems, each with one HTTP status.
const (
	KindInvalid      Kind = "invalid"       // 400: the request cannot be carried out as it stands
	KindUnauthorized Kind = "unauthorized"  // 401: no token, or one that is refused
	KindDenied       Kind = "denied"        // 403: the token does not allow it
	KindNotFound     Kind = "not_found"     // 404
	KindMethod       Kind = "method"        // 405: the path exists, with other methods
	KindConflict     Kind = "conflict"      // 409: in the wrong state, or changed meanwhile
	KindExists       Kind = "exists"        // 409
	KindAmbiguous    Kind = "ambiguous"     // 409: a partial name fits several
	KindTooLarge     Kind = "too_large"     // 413: a limit on size, count or time
	KindProblems     Kind = "problems"      // 422: a file with mistakes, see Problem.Problems
	KindStreams      Kind = "streams"       // 429: the caller follows too many streams
	KindFailed       Kind = "failed"        // 500: the run ended before its command did
	KindDamaged      Kind = "damaged"       // 500: a file of a run's evidence is gone, or not what its hash says
	KindInternal     Kind = "internal"      // 500: a fault of ramus; the log has the rest
	KindUnavailable  Kind = "unavailable"   // 503: container engine away, queue full, shutting down
	KindTimeout      Kind = "timeout"       // 504
	KindDiskFull     Kind = "disk_full"     // 507: nothing was changed
	kindGone         Kind = "client_closed" // 499: nobody is there to read it; only the log sees this
)

var statuses = map[Kind]int{
	KindInvalid: 400, KindUnauthorized: 401, KindDenied: 403, KindNotFound: 404, KindMethod: 405,
	KindConflict: 409, KindExists: 409, KindAmbiguous: 409, KindTooLarge: 413, KindProblems: 422,
	KindStreams: 429, KindFailed: 500, KindDamaged: 500, KindInternal: 500, KindUnavailable: 503, KindTimeout: 504, KindDiskFull: 507, kindGone: 499,
}

// Problem is an answer that is not a success, as application/problem+json (RFC
// 9457). It is an error, so that the client returns it as it came.
type Problem struct {
	Type   string `json:"type"` // always about:blank: Kind tells more
	Title  string `json:"title"`
	Status int    `json:"status"`
	Kind   Kind   `json:"kind"`
	Detail string `json:"detail,omitempty"`
	Hint   string `json:"hint,omitempty"` // what to do
	// Problems are the mistakes of a file, all of them.
	Problems executor.Problems `json:"problems,omitempty"`
	// Request names the request in the server's log.
	Request string `json:"request,omitempty"`

	cause error
}

// Error is the detail, with the mistakes of a file when there are some.
func (p *Problem) Error() string {
	switch {
	case len(p.Problems) > 0:
		return p.Problems.Error()
	case p.Detail != "":
		return p.Detail
	}
	return p.Title
}

// Unwrap is what the problem was made from, on the side where it arose.
func (p *Problem) Unwrap() error { return p.cause }

func problem(kind Kind, format string, args ...any) *Problem {
	return &Problem{Kind: kind, Detail: fmt.Sprintf(format, args...)}
}

func (p *Problem) withHint(hint string) *Problem { p.Hint = hint; return p }

const roomHint = "make room on the disk of the data folder; `ramus stop CALLER` removes a container with what it has not committed"

// kinds maps the errors of the rooms below; the first that fits is taken.
var kinds = []struct {
	is   error
	kind Kind
	hint string
}{
	{syscall.ENOSPC, KindDiskFull, roomHint},
	{syscall.EDQUOT, KindDiskFull, roomHint},
	{record.ErrAmbiguous, KindAmbiguous, "give more of the name"},
	{gitd.ErrNoRepository, KindNotFound, "`ramus repo list` shows the repositories"},
	{record.ErrNotFound, KindNotFound, ""},
	{record.ErrInvalid, KindInvalid, ""},
	{record.ErrConflict, KindConflict, ""},
	{record.ErrDamaged, KindDamaged, "the artifact store or the repository was changed by another program, or its disk is failing: look at a backup"},
	{record.ErrStoreAway, KindUnavailable, "the artifact store does not answer; try again in a moment"},
	{record.ErrClosed, KindUnavailable, "the server is shutting down; try again in a moment"},
	{gitd.ErrNotFound, KindNotFound, ""},
	{gitd.ErrExists, KindExists, ""},
	{gitd.ErrInvalid, KindInvalid, ""},
	{gitd.ErrConflict, KindConflict, "somebody else changed it at the same time; look and try again"},
	{gitd.ErrDenied, KindDenied, ""},
	{gitd.ErrTooLarge, KindTooLarge, ""},
	{gitd.ErrUpstream, KindUnavailable, "the last base serves; try again later, and look at the repository's upstream and credential in `repos`"},
	{gitd.ErrUpstreamRefused, KindDenied, "a protected branch or a hook of upstream says no: its rules have to change, or the branch's name"},
	{executor.ErrBusy, KindUnavailable, "too many callers wait for a container; try again later or raise `queue`"},
	{executor.ErrUnavailable, KindUnavailable, "`ramus doctor` tells what the container engine lacks"},
	{executor.ErrNoPort, KindNotFound, "`ramus preview CALLER` lists the ports that something listens at"},
	{executor.ErrGone, KindUnavailable, "the container was lost; the next command gets a new one from the branch"},
	{executor.ErrUnknownProcess, KindNotFound, ""},
	{context.DeadlineExceeded, KindTimeout, ""},
	{os.ErrDeadlineExceeded, KindTimeout, ""},
}

// reasons maps why a run ended before its command did, where that has a kind of its own.
var reasons = map[record.Reason]Kind{
	record.ReasonUnavailable: KindUnavailable,
	record.ReasonTimedOut:    KindTimeout,
	record.ReasonCancelled:   KindConflict,
	record.ReasonBadInput:    KindInvalid,
}

// asProblem is the one place where errors become answers. What it does not
// know is internal: its text goes to the log, and only administrators see it.
func asProblem(err error, who Who) *Problem {
	p := &Problem{cause: err}
	var (
		known   *Problem
		files   executor.Problems
		ended   *executor.RunError
		tooBig  *http.MaxBytesError
		syntax  *json.SyntaxError
		badType *json.UnmarshalTypeError
	)
	switch {
	case errors.As(err, &known):
		c := *known
		p = &c
	case errors.As(err, &files):
		p.Kind, p.Problems = KindProblems, files
		p.Detail = fmt.Sprintf("the workflow has %d mistake(s)", len(files))
	case errors.As(err, &tooBig):
		p.Kind, p.Detail = KindTooLarge, fmt.Sprintf("the request's body is larger than %d bytes", tooBig.Limit)
	case errors.As(err, &syntax), errors.As(err, &badType):
		p.Kind, p.Detail = KindInvalid, err.Error()
	case errors.As(err, &ended):
		p.Kind, p.Detail, p.Hint = KindFailed, ended.Error(), ended.Run.Hint
		if kind, ok := reasons[ended.Run.Reason]; ok {
			p.Kind = kind
		}
	case errors.Is(err, context.Canceled), errors.Is(err, errReaderGone):
		p.Kind = kindGone
	default:
		p.Kind = KindInternal
		for _, k := range kinds {
			if errors.Is(err, k.is) {
				p.Kind, p.Hint, p.Detail = k.kind, k.hint, err.Error()
				break
			}
		}
		if p.Kind == KindInternal {
			p.Detail = "something went wrong inside ramus"
			if who.Admin() {
				p.Detail = err.Error()
			}
			p.Hint = "the server's log has the details under the request's id"
		}
	}
	p.Type, p.Status = "about:blank", statuses[p.Kind]
	if p.Title = http.StatusText(p.Status); p.Title == "" {
		p.Title = "Client Closed Request"
	}
	return p
}
