package slack

import (
	"errors"
	"net/http"
	"testing"
	"time"
)

// TestRefusedError checks the texts of refusals, and which of them are about the app.
func TestRefusedError(t *testing.T) {
	for _, tt := range []struct {
		err   RefusedError
		text  string
		ofApp bool
	}{
		{RefusedError{Method: "chat.postMessage", Code: "channel_not_found"}, "chat.postMessage: channel_not_found", false},
		{RefusedError{Method: "chat.postMessage", Code: "invalid_blocks", Detail: "too long"},
			"chat.postMessage: invalid_blocks (too long)", false},
		{RefusedError{Method: "users.info", Code: "missing_scope", Needed: "users:read"},
			"users.info: missing_scope: the app lacks the scope users:read", true},
		{RefusedError{Method: "users.info", Code: "another", Needed: "users:read"},
			"users.info: another: the app lacks the scope users:read", true},
		{RefusedError{Method: "auth.test", Code: "token_revoked"}, "auth.test: token_revoked", true},
	} {
		if tt.err.Error() != ErrRefused.Error()+": "+tt.text || tt.err.OfApp() != tt.ofApp || !errors.Is(&tt.err, ErrRefused) {
			t.Errorf("%q, of the app %v", tt.err.Error(), tt.err.OfApp())
		}
	}
	for _, code := range []string{"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "no_permission",
		"missing_scope", "not_allowed_token_type", "access_denied", "ekm_access_denied", "two_factor_setup_required", "accesslimited",
		"team_access_not_granted"} {
		if e := (&RefusedError{Code: code}); !e.OfApp() {
			t.Errorf("%s is not of the app", code)
		}
	}
}

// TestTemporaryCodes checks after which failures a message may have been posted, so that ramus looks for it.
func TestTemporaryCodes(t *testing.T) {
	for code, may := range map[string]bool{
		"ratelimited": false, "rate_limited": false, "service_unavailable": false, "request_timeout": false,
		"team_added_to_org": false, "org_login_required": false,
		"external_channel_migrating": false, "internal_error": true, "fatal_error": true, "update_failed": true,
		"file_update_failed": true,
	} {
		if got, ok := temporaryCodes[code]; !ok || got != may {
			t.Errorf("%s: known %v, may be posted %v", code, ok, got)
		}
	}
	if _, ok := temporaryCodes["channel_not_found"]; ok {
		t.Error("a refusal is tried again")
	}
}

// TestRetryAfter checks the pauses that Slack asks for.
func TestRetryAfter(t *testing.T) {
	for value, want := range map[string]time.Duration{"": 0, "0": 0, "-5": 0, "x": 0, "1.5": 0, "1": time.Second,
		"30": 30 * time.Second, "99999999": maxRetryAfter} {
		if got := retryAfter(http.Header{"Retry-After": {value}}); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}
