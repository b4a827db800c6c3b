package web

import (
	"context"

	"github.com/ramus-dev/ramus/executor/record"
)

// Prose is prose.
var Prose = prose

// EndVisit lets tests end a visit without waiting for its time.
func (api *API) EndVisit(ctx context.Context, c record.Caller) (bool, error) {
	return api.parts().visits.endVisit(ctx, c)
}
