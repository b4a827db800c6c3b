package bitbucket

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
			return http.Header{"Content-Type": {"application/json"}, "X-Request-Uuid": {"1"}, "X-Event-Key": {event},
				"X-Hub-Signature": {"sha256=" + forgetest.Sign(body)}}
		}, true,
		[]string{"repo:push", "pullrequest:fulfilled", "pullrequest:comment_created", "repo:commit_status_updated"},
		[]string{
			`{"repository":{"full_name":"acme/app"},"push":{"changes":[{"new":null,"old":{"type":"branch","name":"main"}},{}]}}`,
			`{"repository":{"full_name":"acme/app"},"pullrequest":{"id":7},"commit_status":{"state":"FAILED","commit":{"hash":"a"}}}`,
			`{"repository":null,"push":null,"pullrequest":null,"commit_status":null}`,
			`{"repository":{"full_name":"../x"}}`, `[]`, ``,
		})
}
