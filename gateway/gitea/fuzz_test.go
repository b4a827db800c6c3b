package gitea

import (
	"net/http"
	"testing"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/forge/forgetest"
)

func FuzzParseDelivery(f *testing.F) {
	forgetest.FuzzDelivery(f, func(h http.Header, body []byte) (forge.Delivery, error) {
		return ParseDelivery(h, body, forgetest.FuzzSecret)
	},
		func(event, body string) http.Header {
			return http.Header{"Content-Type": {"application/json"}, "X-Gitea-Delivery": {"1"},
				"X-Gitea-Event": {event}, "X-Gitea-Signature": {forgetest.Sign(body)}}
		}, true,
		[]string{"push", "status", "issue_comment", "pull_request", "pull_request_approved"},
		[]string{
			`{"repository":{"full_name":"acme/app"},"ref":"refs/heads/main","after":"0000"}`,
			`{"repository":{"full_name":"acme/app"},"action":"closed","pull_request":{"number":7},"issue":{"number":7}}`,
			`{"repository":null,"pull_request":null,"issue":null}`, `{"repository":{"full_name":"../x"}}`, `[]`, ``,
		})
}
