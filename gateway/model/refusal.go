package model

import (
	"encoding/json"
	"net/http"
)

// kind is a kind of refusal, with its name at each provider.
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
	// Clients retry after 429, and some after 402. An exhausted budget is not a rate limit, so the answer is each
	// provider's own error for it.
	kindBudget  = &kind{402, "billing_error", "insufficient_quota", "RESOURCE_EXHAUSTED"}
	kindBusy    = &kind{429, "rate_limit_error", "rate_limit_exceeded", "RESOURCE_EXHAUSTED"}
	kindGateway = &kind{502, "api_error", "server_error", "UNAVAILABLE"}
	kindTime    = &kind{504, "timeout_error", "timeout", "DEADLINE_EXCEEDED"}
)

// refusal is an answer of ramus itself.
type refusal struct {
	kind *kind
	text string
	code int // the provider's own status; 0 means that of kind
}

// status returns the status of the answer. Of the three providers only Anthropic uses 402.
func (r refusal) status(provider string) int {
	if r.code != 0 {
		return r.code
	}
	if r.kind == kindBudget && provider != "anthropic" {
		return http.StatusTooManyRequests
	}
	return r.kind.code
}

// write sends the refusal in the provider's format.
func (r refusal) write(w http.ResponseWriter, v *served) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	switch r.kind {
	case kindBusy:
		h.Set("Retry-After", "1")
	case kindGateway, kindTime:
	default:
		h.Set("X-Should-Retry", "false") // the official clients obey it
	}
	w.WriteHeader(r.status(v.name))
	_, _ = w.Write(append(marshal(v.format(r)), '\n')) // an error means that the client is gone
}

// event returns the refusal as the last event of a stream. path determines the provider's protocol.
func (r refusal) event(v *served, path string) []byte {
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
		panic("cannot marshal: " + err.Error()) // the value has only strings and numbers
	}
	return b
}
