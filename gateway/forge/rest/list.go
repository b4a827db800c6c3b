package rest

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

const (
	maxItems = 5000 // of a list
	pageSize = 50   // Gitea returns no more by default
	// maxAddress bounds the address of a page, in bytes. Those of Bitbucket have some hundred.
	maxAddress = 8 << 10
)

// List returns all items of a list whose pages are arrays and have numbers. size is the parameter for the number of
// items of a page. The addresses in the header Link are not used, because a forge behind a proxy may name another host.
func List[T any](ctx context.Context, c *Client, r Request, size string) ([]T, error) {
	var all []T
	query := maps.Clone(r.Query)
	if query == nil {
		query = url.Values{}
	}
	query.Set(size, strconv.Itoa(pageSize))
	r.Query = query
	for n := 1; ; n++ {
		query.Set("page", strconv.Itoa(n))
		var page []T
		header, err := c.Do(ctx, r, &page, nil)
		if err != nil {
			return nil, err
		}
		if all = append(all, page...); len(all) > maxItems {
			return nil, c.Refuse("there are more than %d", maxItems)
		}
		if len(page) == 0 || isLast(header, len(page), len(all)) {
			return all, nil
		}
	}
}

// isLast reports whether a page of n items is the last one. all is the number of items so far.
func isLast(header http.Header, n, all int) bool {
	if next, ok := header["X-Next-Page"]; ok { // GitLab
		return next[0] == ""
	}
	if total, err := strconv.Atoi(header.Get("X-Total-Count")); err == nil { // Gitea
		return all >= total
	}
	return n < pageSize
}

// ListValues returns all items of a list whose pages are objects with the fields "values" and "next", an address at the
// same host.
func ListValues[T any](ctx context.Context, c *Client, r Request) ([]T, error) {
	var all []T
	n := 0 // items, and pages without items
	for seen := map[string]bool{}; ; {
		var page struct {
			Values []T    `json:"values"`
			Next   string `json:"next"`
		}
		if _, err := c.Do(ctx, r, &page, nil); err != nil {
			return nil, err
		}
		if n += max(len(page.Values), 1); n > maxItems {
			return nil, c.Refuse("there are more than %d", maxItems)
		}
		all = append(all, page.Values...)
		if len(page.Next) > maxAddress {
			return nil, c.Refuse("the address of the next page has more than %d bytes", maxAddress)
		}
		if page.Next == "" || seen[page.Next] {
			return all, nil
		}
		seen[page.Next] = true
		r.absolute = page.Next
	}
}

func sortedKeys(m map[string]json.RawMessage) []string { return slices.Sorted(maps.Keys(m)) }
