package forge

import (
	"errors"
	"fmt"
	"net/http"
)

// Kinds of error. A rate limit that lasts longer than the caller waits, and an API that is down, are neither.
var (
	// ErrNotFound means that the object does not exist, or that the token may not see it.
	ErrNotFound = errors.New("not found")
	// ErrRefused means that the forge refuses the request for good, because it is wrong or not allowed.
	ErrRefused = errors.New("refused")
)

// Reasons for which a delivery is rejected.
var (
	// ErrSignature means that the delivery was not signed with the webhook's secret.
	ErrSignature = errors.New("not signed with the webhook's secret")
	// ErrDelivery means that a signed delivery cannot be read.
	ErrDelivery = errors.New("no delivery")
)

// RefusedError is a refusal that a retry does not change. It is [ErrNotFound] or [ErrRefused].
type RefusedError struct {
	Forge   string // title of the forge
	Status  int    // of HTTP; 0 if no request was made
	Message string // the forge's message, with its messages about fields
	Needed  string // permissions of which one would have sufficed, such as "pull_requests=write"
	Request string // the forge's id of the request, for its support
}

func (e *RefusedError) Error() string {
	text := "refused by " + e.Forge
	if e.Unwrap() == ErrNotFound {
		text = "not found at " + e.Forge
	}
	if e.Status != 0 {
		text += fmt.Sprintf(": status %d", e.Status)
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.Needed != "" && e.Status == http.StatusForbidden {
		text += " (needs the permission " + e.Needed + ")"
	}
	return text
}

// Unwrap returns the kind of the error.
func (e *RefusedError) Unwrap() error {
	if e.Status == http.StatusNotFound || e.Status == http.StatusGone {
		return ErrNotFound
	}
	return ErrRefused
}

// OfToken reports whether the forge refuses the token or its permissions, and not the request. Its administrator can
// fix that, and a retry then helps.
func (e *RefusedError) OfToken() bool {
	return e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden
}

// Final reports whether an error is the answer of a forge that a further attempt would not change.
func Final(err error) bool { return errors.Is(err, ErrRefused) || errors.Is(err, ErrNotFound) }

// HasStatus reports whether an error is a [RefusedError] with a status of HTTP.
func HasStatus(err error, code int) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && refused.Status == code
}
