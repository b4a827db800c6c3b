package replica

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"

	"github.com/ramus-dev/ramus/executor/ownership"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Keeper keeps records of work outside of the repository of that work. They go along when the repository moves.
type Keeper interface {
	// Pack returns the records of a repository with these callers, as JSON. Returns nil if there are none.
	Pack(repo string, callers []record.Caller) (json.RawMessage, error)
	// Unpack keeps records that another replica packed, on disk. It replaces those that are here. A second call changes nothing.
	Unpack(ctx context.Context, packed json.RawMessage) error
}

// maxPacked bounds the records of a repository, in bytes.
const maxPacked = 256 << 20

// sendRecords sends the records that others keep of a repository.
func (f *Front) sendRecords(ctx context.Context, to ownership.Replica, repo string) error {
	runs, err := f.Executor.Runs(ctx, record.Filter{Repo: repo, Max: math.MaxInt})
	if err != nil {
		return err
	}
	of := map[record.Caller]bool{}
	for _, r := range runs {
		of[r.Caller] = true
	}
	callers := slices.Collect(maps.Keys(of))
	all := map[string]json.RawMessage{}
	for name, k := range f.Keepers {
		packed, err := k.Pack(repo, callers)
		if err != nil {
			return fmt.Errorf("cannot pack the %s: %w", name, err)
		}
		if packed != nil {
			all[name] = packed
		}
	}
	if len(all) == 0 {
		return nil
	}
	body, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if len(body) > maxPacked {
		return fmt.Errorf("%w: the names and links of its workspaces have %d bytes, at most %d go along; `ramus prune runs` removes those of old runs", record.ErrConflict, len(body), maxPacked)
	}
	return f.ask(ctx, to, http.MethodPost, "/replica/records?"+url.Values{"repo": {repo}}.Encode(), bytes.NewReader(body), nil)
}

// serveRecords keeps the records of a repository that moves here.
func (f *Front) serveRecords(w http.ResponseWriter, r *http.Request) {
	answerResult(w, f.unpack(r))
}

func (f *Front) unpack(r *http.Request) error {
	if err := gitd.CheckName(r.URL.Query().Get("repo")); err != nil {
		return err
	}
	all := map[string]json.RawMessage{}
	if err := json.NewDecoder(io.LimitReader(r.Body, maxPacked)).Decode(&all); err != nil {
		return fmt.Errorf("cannot read the records: %w", err)
	}
	// The records are kept as a whole, also if the sender has gone.
	ctx := context.WithoutCancel(r.Context())
	var errs []error
	for name, packed := range all {
		if k := f.Keepers[name]; k != nil {
			errs = append(errs, k.Unpack(ctx, packed))
		} else {
			errs = append(errs, fmt.Errorf("this replica keeps no %.100q; all replicas need the same version of ramus", name))
		}
	}
	return errors.Join(errs...)
}
