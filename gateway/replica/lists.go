package replica

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/ownership"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/gather"
	"github.com/ramus-dev/ramus/gateway/route"
)

// A list that names no repository has the items of all replicas. Each replica, this one too, answers the request for itself,
// with the rights of the caller, and the answers become one.

// listWait bounds the wait for the lists and the answers of other replicas.
const listWait = 10 * time.Second

// item is one of a list, with the keys that order it.
type item struct {
	raw     json.RawMessage
	replica string
	time    time.Time // the newest first
	name    string
}

// list describes a list that is gathered.
type list struct {
	// key returns the order of an item.
	key func(raw json.RawMessage) (time.Time, string, error)
	// ascending orders items by name alone, and drops repetitions.
	ascending bool
	// size is the number of items of an answer by default, and most the largest. Zero means all.
	size, most int
	// paged means that the answer is a page of workspaces.
	paged bool
}

// Keys of items.
type (
	callerItem struct {
		Last record.Run `json:"last"`
	}
	repoItem struct {
		Name string `json:"name"`
	}
	tournamentItem struct {
		Name string    `json:"name"`
		Time time.Time `json:"time"`
	}
	linkItem struct {
		ID   string    `json:"id"`
		Made time.Time `json:"made"`
	}
	workspaceItem struct {
		ID      string     `json:"id"`
		LastRun record.Run `json:"last_run"`
	}
)

var lists = map[string]list{
	"/api/runs": {size: 100, most: 1000, key: func(raw json.RawMessage) (time.Time, string, error) {
		var r record.Run
		err := json.Unmarshal(raw, &r)
		return r.CreatedAt, r.Name(), err
	}},
	"/api/callers": {size: 100, most: 1000, key: func(raw json.RawMessage) (time.Time, string, error) {
		var c callerItem
		err := json.Unmarshal(raw, &c)
		return c.Last.CreatedAt, c.Last.Name(), err
	}},
	"/api/tasks": {size: 100, most: 1000, key: func(raw json.RawMessage) (time.Time, string, error) {
		var t record.Task
		err := json.Unmarshal(raw, &t)
		return t.CreatedAt, t.ID, err
	}},
	"/api/tournaments": {size: 200, most: 200, key: func(raw json.RawMessage) (time.Time, string, error) {
		var t tournamentItem
		err := json.Unmarshal(raw, &t)
		return t.Time, t.Name, err
	}},
	"/api/shares": {size: 500, most: 500, key: func(raw json.RawMessage) (time.Time, string, error) {
		var l linkItem
		err := json.Unmarshal(raw, &l)
		return l.Made, l.ID, err
	}},
	"/api/repos": {ascending: true, key: func(raw json.RawMessage) (time.Time, string, error) {
		var r repoItem
		err := json.Unmarshal(raw, &r)
		return time.Time{}, r.Name, err
	}},
	"/api/workspaces": {size: 50, most: 200, paged: true, key: func(raw json.RawMessage) (time.Time, string, error) {
		var w workspaceItem
		err := json.Unmarshal(raw, &w)
		return w.LastRun.CreatedAt, w.ID, err
	}},
}

// gathered returns the handler of a list of all replicas, or nil if the route is none.
func (f *Front) gathered(r route.Route, local bool) http.Handler {
	l, ok := lists[r.Pattern]
	if !ok || r.Method != http.MethodGet || len(f.Group.Replicas()) < 2 {
		return nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case f.slots <- struct{}{}:
			defer func() { <-f.slots }()
		default:
			f.answerError(w, r, errCrowded)
			return
		}
		f.gather(w, r, l, local)
	})
}

// part is the answer of one replica.
type part struct {
	of     string
	status int
	header http.Header
	body   []byte
	err    error
}

func (f *Front) gather(w http.ResponseWriter, r *http.Request, l list, local bool) {
	q := r.URL.Query()
	cursors, err := gather.ParseCursors(q.Get("after"))
	if err != nil {
		p := route.AsProblem(route.NewProblem(route.KindInvalid, "%v", err), route.Who{})
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(p.Status)
		_ = json.NewEncoder(w).Encode(p) // the client may be gone
		return
	}
	parts := f.askLists(r, q, cursors, l, local)
	var missing []string
	var items []item
	more, told := false, http.Header(nil)
	for _, p := range parts {
		if p.err != nil {
			f.Log.Info("a list lacks the items of a replica", "replica", p.of, "err", p.err)
			missing = append(missing, p.of)
			continue
		}
		if p.status != http.StatusOK { // it is refused, by all alike
			maps.Copy(w.Header(), p.header)
			w.WriteHeader(p.status)
			_, _ = w.Write(p.body)
			return
		}
		list, next, err := l.read(p)
		if err != nil {
			f.answerError(w, r, fmt.Errorf("the replica %s answers with no list: %w", p.of, err))
			return
		}
		items, more, told = append(items, list...), more || next, p.header
	}
	if told == nil {
		f.answerError(w, r, errNoOwner)
		return
	}
	items = l.sort(items)
	if most := l.max(q); most > 0 && len(items) > most {
		items, more = items[:most], true
	}
	h := w.Header()
	h.Set("Content-Type", told.Get("Content-Type"))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	gather.SetMissing(h, missing)
	raws := make([]json.RawMessage, len(items))
	for i, it := range items {
		raws[i] = it.raw
		cursors[it.replica] = it.name
	}
	if !l.paged {
		_ = json.NewEncoder(w).Encode(raws) // the client may be gone
		return
	}
	page := struct {
		Workspaces []json.RawMessage `json:"workspaces"`
		Next       string            `json:"next,omitempty"`
	}{Workspaces: raws}
	if more {
		page.Next = cursors.String()
	}
	_ = json.NewEncoder(w).Encode(page)
}

// askLists asks all replicas at once, sorted by name.
func (f *Front) askLists(r *http.Request, q url.Values, cursors gather.Cursors, l list, local bool) []part {
	ctx, cancel := context.WithTimeout(r.Context(), listWait)
	defer cancel()
	replicas := f.Group.Replicas()
	parts := make([]part, len(replicas))
	var asking sync.WaitGroup
	for i, to := range replicas {
		parts[i].of = to.Name
		if to.URL == "" {
			parts[i].err = errNoOwner
			continue
		}
		own := maps.Clone(q)
		if l.paged {
			own.Del("after")
			if c := cursors[to.Name]; c != "" {
				own.Set("after", c)
			}
		}
		asking.Go(func() { f.askList(ctx, r, to, own, local, &parts[i]) })
	}
	asking.Wait()
	return parts
}

// askList sends the request of a client to one replica, which answers for itself.
func (f *Front) askList(ctx context.Context, r *http.Request, to ownership.Replica, q url.Values, local bool, p *part) {
	out, err := http.NewRequestWithContext(ctx, http.MethodGet, to.URL+r.URL.EscapedPath()+"?"+q.Encode(), nil)
	if err != nil {
		p.err = err
		return
	}
	out.Host, out.Header = r.Host, r.Header.Clone()
	for _, name := range append(slices.Clone(headers), "Connection", "Accept-Encoding") {
		out.Header.Del(name)
	}
	out.Header.Set(headerFrom, f.Group.Name)
	out.Header.Set(headerTo, to.Name)
	out.Header.Set(headerClient, r.RemoteAddr)
	if local {
		out.Header.Set(headerLocal, "1")
	}
	if r.TLS != nil {
		out.Header.Set(headerSecure, "1")
	}
	resp, err := f.base.RoundTrip(out)
	if err != nil {
		p.err = err
		return
	}
	defer resp.Body.Close()
	p.status, p.header = resp.StatusCode, resp.Header
	if p.body, p.err = io.ReadAll(io.LimitReader(resp.Body, answerMax)); p.err == nil && p.status >= http.StatusInternalServerError ||
		p.status == http.StatusMisdirectedRequest {
		p.err = fmt.Errorf("it answers %d: %.300s", p.status, p.body)
	}
}

// read returns the items of an answer, and reports whether there are more.
func (l list) read(p part) (items []item, more bool, err error) {
	var raws []json.RawMessage
	if l.paged {
		var page struct {
			Workspaces []json.RawMessage `json:"workspaces"`
			Next       string            `json:"next"`
		}
		err = json.Unmarshal(p.body, &page)
		raws, more = page.Workspaces, page.Next != ""
	} else {
		err = json.Unmarshal(p.body, &raws)
	}
	for _, raw := range raws {
		it := item{raw: raw, replica: p.of}
		if err == nil {
			it.time, it.name, err = l.key(raw)
		}
		items = append(items, it)
	}
	return items, more, err
}

// sort orders items.
func (l list) sort(items []item) []item {
	slices.SortStableFunc(items, func(a, b item) int {
		if l.ascending {
			return strings.Compare(a.name, b.name)
		}
		if c := b.time.Compare(a.time); c != 0 {
			return c
		}
		return strings.Compare(b.name, a.name)
	})
	if l.ascending {
		items = slices.CompactFunc(items, func(a, b item) bool { return a.name == b.name })
	}
	return items
}

// max returns the number of items that a request asks for.
func (l list) max(q url.Values) int {
	if n, err := strconv.Atoi(q.Get("max")); err == nil && n > 0 {
		return min(n, l.most)
	}
	return l.size
}
