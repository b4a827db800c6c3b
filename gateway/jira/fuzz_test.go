package jira

import (
	"net/http"
	"testing"

	"github.com/ramus-dev/ramus/gateway/forge/forgetest"
	"github.com/ramus-dev/ramus/gateway/ticket"
)

func FuzzParse(f *testing.F) {
	c := &Client{URL: "https://acme.example.org"}
	forgetest.FuzzDelivery(f, func(h http.Header, body []byte) (ticket.Event, error) {
		return c.Parse(h, body, forgetest.FuzzSecret, ticket.Names{Label: "ramus"})
	}, func(_, body string) http.Header {
		return http.Header{"Content-Type": {"application/json"}, "X-Hub-Signature": {"sha256=" + forgetest.Sign(body)}}
	}, true, []string{""}, []string{
		`{"webhookEvent":"jira:issue_created","issue":{"key":"APP-7","fields":{"summary":"a","description":"b","labels":["ramus"],"assignee":{"accountId":"1"}}}}`,
		`{"issue":{"key":"APP-7","fields":{"description":{"type":"doc"},"labels":null,"assignee":null}}}`,
		`{"issue":{"key":"../APP"}}`, `{"issue":null}`, `[]`, ``,
	})
}
