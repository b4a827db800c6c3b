package linear

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/forge/forgetest"
	"github.com/ramus-dev/ramus/gateway/ticket"
)

func FuzzParse(f *testing.F) {
	c := &Client{Now: func() time.Time { return time.UnixMilli(1000) }}
	forgetest.FuzzDelivery(f, func(h http.Header, body []byte) (ticket.Event, error) {
		e, err := c.Parse(h, body, forgetest.FuzzSecret, ticket.Names{Label: "ramus"})
		if err != nil && strings.HasSuffix(err.Error(), "at another time") && h.Get("Linear-Signature") == forgetest.Sign(string(body)) {
			err = forge.ErrDelivery // the signature itself is right
		}
		return e, err
	}, func(_, body string) http.Header {
		return http.Header{"Content-Type": {"application/json"}, "Linear-Signature": {forgetest.Sign(body)}}
	}, true, []string{""}, []string{
		`{"action":"create","type":"Issue","webhookTimestamp":1000,"data":{"identifier":"APP-7","title":"a","description":"b","labels":[{"name":"ramus"}]}}`,
		`{"action":"create","type":"Issue","webhookTimestamp":1000,"data":{"identifier":"../APP","assignee":null}}`,
		`{"action":"create","type":"Comment","webhookTimestamp":1000,"data":[]}`, `{"webhookTimestamp":-1}`, `[]`, ``,
	})
}
