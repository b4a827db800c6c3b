package evidence

import (
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
)

// Describe returns a run as its page shows it, for a page of another package. The caller of Describe has checked that the person of c may see
// the run. The links in it are signed until the given time, so that they open without a cookie.
func (api *API) Describe(c *route.Call, r record.Run, until time.Time) (*RunPage, error) {
	call := *c
	if api.Links != nil {
		call.Until = until
	}
	m, err := api.manifestOf(&call, r)
	if err != nil {
		return nil, err
	}
	return api.runPage(&call, r, m)
}
