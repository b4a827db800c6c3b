package model

import (
	"encoding/json"
	"net/http"
)

// kind of a refusal: how each provider would call it.
type kind struct {
	code                      int
	anthropic, openai, gemini string
}

var (
	kindBadRequest = &kind{400, "invalid_request_error", "invalid_request_error", "INVALID_ARGUMENT"}
	kindRefused    = &kind{403, "permission_error", "permission_denied", "PERMISSION_DENIED"}
	kindNotFound   = &kind{404, "not_found_error", "not_found", "NOT_FOUND"}
	kindMethod     = &kind{405, "invalid_request_error", "method_not_allowed", "UNIMPLEMENTED"}
	kindTooLarge   = &kind{413, "request_too_large", "request_too_large", "INVALID_ARGUMENT"}
	// A budget is not a rate: clients try again after 429, and a few after 402 too, so
	// each provider's way to say "there is nothing left" is taken.
	kindBudget  = &kind{402, "billing_error", "insufficient_quota", "RESOURCE_EXHAUSTED"}
	kindBusy    = &kind{429, "rate_limit_error", "rate_limit_exceeded", "RESOURCE_EXHAUSTED"}
	kindGateway = &kind{502, "api_error", "server_error", "UNAVAILABLE"}
	kindTime    = &kind{504, "timeout_error", "timeout", "DEADLINE_EXCEEDED"}
)

// refusal is an answer of ramus's own.
type refusal struct {
	kind *kind
	text string
	code int // the provider's own status; 0: the kind's
}

// status of the answer. Of the three providers only Anthropic knows 402.
func (r refusal) status(provider string) int {
	if r.code != 0 {
		return r.code
	}
	if r.kind == kindBudget && provider != "anthropic" {
		return http.StatusTooManyRequests
	}
	return r.kind.code
}

// write answers in the provider's format.
func (r refusal) write(w http.ResponseWriter, v *provider) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	switch r.kind {
	case kindBusy:
		h.Set("Retry-After", "1")
	case kindGateway, kindTime:
	default:
		h.Set("X-Should-Retry", "false") // the official clients heed it
	}
	w.WriteHeader(r.status(v.name))
	_, _ = w.Write(append(marshal(v.format(r)), '\n')) // a client that has gone needs no answer
}

// event is the refusal as the last event of a stream; path tells which of a
// provider's protocols is spoken.
func (r refusal) event(v *provider, path string) []byte {
	name, data := "", marshal(v.format(r))
	switch {
	case v.name == "anthropic":
		name = "error"
	case v.name == "openai" && path == "/responses":
		name = "response.failed"
		data = marshal(object{"type": name, "response": object{"object": "response", "status": "failed", "output": []any{},
			"error": object{"code": r.kind.openai, "message": r.text}}})
	}
	if name != "" {
		name = "event: " + name + "\n"
	}
	return []byte(name + "data: " + string(data) + "\n\n")
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("cannot marshal: " + err.Error()) // strings and numbers of ours
	}
	return b
}
