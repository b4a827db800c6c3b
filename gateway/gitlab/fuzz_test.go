package gitlab

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
		func(event, _ string) http.Header {
			return http.Header{"Content-Type": {"application/json"}, "X-Gitlab-Event": {event},
				"X-Gitlab-Token": {forgetest.FuzzSecret}}
		}, false,
		[]string{eventMergeRequest, eventNote, eventPush, eventPipeline, "Job Hook"},
		[]string{
			`{"project":{"path_with_namespace":"acme/tools/app"},"ref":"refs/heads/main","after":"0000"}`,
			`{"project":{"path_with_namespace":"acme/app"},"object_attributes":{"iid":7,"action":"merge","status":"failed","sha":"a"},"merge_request":{"iid":7}}`,
			`{"project":null,"object_attributes":null,"merge_request":null}`,
			`{"project":{"path_with_namespace":"../x"}}`, `[]`, ``,
		})
}
