package route

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"syscall"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/quota"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Kind is the kind of a problem, for programs. A kind never changes its meaning.
type Kind string

// The kinds of problems, each with one HTTP status.
const (
	KindInvalid      Kind = "invalid"       // 400: the request cannot be carried out as it is
	KindUnauthorized Kind = "unauthorized"  // 401: no token, or a token that is refused
	KindDenied       Kind = "denied"        // 403: the token does not allow it
	KindStale        Kind = "stale"         // 403: the last authentication of the session is too long ago
	KindNotFound     Kind = "not_found"     // 404
	KindMethod       Kind = "method"        // 405: the path exists, with other methods
	KindConflict     Kind = "conflict"      // 409: in the wrong state, or changed at the same time
	KindExists       Kind = "exists"        // 409
	KindAmbiguous    Kind = "ambiguous"     // 409: a partial name has several matches
	KindTooLarge     Kind = "too_large"     // 413: a limit on size, count or time
	KindProblems     Kind = "problems"      // 422: a file with mistakes, see Problem.Problems
	KindStreams      Kind = "streams"       // 429: the caller follows too many streams
	KindLimited      Kind = "limited"       // 429: a person or a repository has as much work as it may have
	KindFailed       Kind = "failed"        // 500: the run ended before its command did
	KindDamaged      Kind = "damaged"       // 500: a file of a run's evidence is gone, or does not have its hash
	KindInternal     Kind = "internal"      // 500: a fault of ramus; the log has the details
	KindUnavailable  Kind = "unavailable"   // 503: container engine away, queue full, shutting down
	KindTimeout      Kind = "timeout"       // 504
	KindDiskFull     Kind = "disk_full"     // 507: nothing was changed
	KindGone         Kind = "client_closed" // 499: the caller is gone; only the log has this kind
)

// statuses are the HTTP statuses of the kinds.
var statuses = map[Kind]int{
	KindInvalid: 400, KindUnauthorized: 401, KindDenied: 403, KindStale: 403, KindNotFound: 404, KindMethod: 405,
	KindConflict: 409, KindExists: 409, KindAmbiguous: 409, KindTooLarge: 413, KindProblems: 422,
	KindStreams: 429, KindLimited: 429, KindFailed: 500, KindDamaged: 500, KindInternal: 500, KindUnavailable: 503,
	KindTimeout:  504,
	KindDiskFull: 507, KindGone: 499,
}

// Problem is an answer that is not a success, as application/problem+json (RFC 9457). It is an error, so that the
// client returns it as it came.
type Problem struct {
	Type   string `json:"type"` // always about:blank; Kind is more precise
	Title  string `json:"title"`
	Status int    `json:"status"`
	Kind   Kind   `json:"kind"`
	Detail string `json:"detail,omitempty"`
	Hint   string `json:"hint,omitempty"` // what to do
	// Problems are the mistakes of a file, all of them.
	Problems executor.Problems `json:"problems,omitempty"`
	// RetryAfter is the number of seconds after which the same may succeed. It is the header Retry-After, too.
	RetryAfter int `json:"retry_after,omitempty"`
	// Request names the request in the server's log.
	Request string `json:"request,omitempty"`

	// Cause is the error that the problem was made from, on the server. The log has it, the answer does not.
	Cause error `json:"-"`
}

// Error returns the mistakes of a file if there are any, and the detail otherwise.
func (p *Problem) Error() string {
	switch {
	case len(p.Problems) > 0:
		return p.Problems.Error()
	case p.Detail != "":
		return p.Detail
	}
	return p.Title
}

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.Cause }

// NewProblem returns a problem of a kind, with its detail.
func NewProblem(kind Kind, format string, args ...any) *Problem {
	return &Problem{Kind: kind, Detail: fmt.Sprintf(format, args...)}
}

// WithHint sets what the reader can do, and returns p.
func (p *Problem) WithHint(hint string) *Problem { p.Hint = hint; return p }

// NotFound returns the problem of a name that nothing has. what is the kind of thing that was named.
func NotFound(what, name string) *Problem {
	return NewProblem(KindNotFound, "there is no %s %q", what, name)
}

const roomHint = "make room on the disk of the data folder; `ramus stop CALLER` removes a container with what it has not committed"

// kinds maps errors of other rooms to kinds. The first match counts.
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
	{record.ErrDamaged, KindDamaged,
		"the artifact store or the repository was changed by another program, or its disk is failing: look at a backup"},
	{record.ErrStoreAway, KindUnavailable, "the artifact store does not answer; try again in a moment"},
	{ErrSessionEnded, KindUnauthorized, "sign in again"},
	{ErrHidden, KindNotFound, ""},
	{ErrTokenEnded, KindUnauthorized, "`ramus token create` makes a new token"},
	{record.ErrClosed, KindUnavailable, "the server is shutting down; try again in a moment"},
	{gitd.ErrNotFound, KindNotFound, ""},
	{gitd.ErrExists, KindExists, ""},
	{gitd.ErrInvalid, KindInvalid, ""},
	{gitd.ErrDiverged, KindConflict,
		"`ramus repo refresh NAME --rebase` replays the base's own commits on upstream's, `--reset` leaves them out; both keep them at a ref"},
	{gitd.ErrConflict, KindConflict, "somebody else changed it at the same time; look and try again"},
	{gitd.ErrDenied, KindDenied, ""},
	{gitd.ErrFenced, KindUnavailable, "give the address of the server that took its place, alone or first in RAMUS_URL"},
	{gitd.ErrElsewhere, KindUnavailable, "try again in a moment; `ramus replica list` shows the replicas"},
	{gitd.ErrUnconfirmed, KindUnavailable, "`ramus standby --status` shows the stand-bys; standby.alone goes on without one"},
	{gitd.ErrTooLarge, KindTooLarge, ""},
	{gitd.ErrUpstream, KindUnavailable,
		"the last base serves; try again later, and look at the repository's upstream and credential in `repos`"},
	{gitd.ErrUpstreamRefused, KindDenied,
		"a protected branch or a hook of upstream says no: its rules have to change, or the branch's name"},
	{executor.ErrBusy, KindUnavailable, "too many callers wait for a container; try again later or raise `queue`"},
	{executor.ErrUnavailable, KindUnavailable, "`ramus doctor` tells what the container engine lacks"},
	{executor.ErrNoPort, KindNotFound, "`ramus preview CALLER` lists the ports that something listens at"},
	{executor.ErrGone, KindUnavailable, "the container was lost; the next command gets a new one from the branch"},
	{executor.ErrUnknownProcess, KindNotFound, ""},
	{context.DeadlineExceeded, KindTimeout, ""},
	{os.ErrDeadlineExceeded, KindTimeout, ""},
}

// reasons maps reasons why a run ended before its command did to kinds other than KindFailed.
var reasons = map[record.Reason]Kind{
	record.ReasonUnavailable: KindUnavailable,
	record.ReasonTimedOut:    KindTimeout,
	record.ReasonCancelled:   KindConflict,
	record.ReasonBadInput:    KindInvalid,
}

// AsProblem returns the problem of an error. An error that it does not know is internal: its text goes to the log, and
// only administrators see it.
func AsProblem(err error, who Who) *Problem {
	p := &Problem{Cause: err}
	var (
		known   *Problem
		files   executor.Problems
		ended   *executor.RunError
		limited *quota.Error
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
	case errors.As(err, &limited):
		p.Kind, p.Detail, p.RetryAfter = KindLimited, err.Error(), max(1, int(limited.After.Seconds()))
		p.Hint = "`ramus ps --limits` shows what is used; `quotas` in the configuration sets the limits"
	case errors.As(err, &ended):
		p.Kind, p.Detail, p.Hint = KindFailed, ended.Error(), ended.Run.Hint
		if kind, ok := reasons[ended.Run.Reason]; ok {
			p.Kind = kind
		}
	case errors.Is(err, context.Canceled), errors.Is(err, errReaderGone):
		p.Kind = KindGone
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

	p.Type, p.Status = "about:blank", p.Kind.Status()
	if p.Title = http.StatusText(p.Status); p.Title == "" {
		p.Title = "Client Closed Request"
	}
	return p
}

// Status returns the HTTP status of a kind.
func (k Kind) Status() int { return statuses[k] }

// IsLasting reports whether an error stays when the same is tried again.
func IsLasting(err error) bool {
	p := AsProblem(err, Local)
	return p.Status < 500 && p.Kind != KindConflict && p.Kind != KindGone
}
