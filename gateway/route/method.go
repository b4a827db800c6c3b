package route

import (
	"slices"
	"strings"
)

// CheckMethod returns the problem of a request for a path whose routes of a table have other methods. Returns nil if
// the table has no route with the path.
func (c *Call) CheckMethod(table []Route) error {
	allowed := methods(table, c.R.URL.Path)
	if len(allowed) == 0 {
		return nil
	}
	list := strings.Join(allowed, ", ")
	c.W.Header().Set("Allow", list)
	return NewProblem(KindMethod, "%s has only %s", c.R.URL.Path, list)
}

// methods returns the methods of the routes that match a path.
func methods(table []Route, path string) []string {
	var found []string
	for _, row := range table {
		if row.Access != AccessGit && row.Access != AccessPreview && matches(row.Pattern, path) &&
			!slices.Contains(found, row.Method) {
			found = append(found, row.Method)
		}
	}
	slices.Sort(found)
	return found
}

func matches(pattern, path string) bool {
	want, have := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(want) != len(have) {
		return false
	}
	for i := range want {
		if want[i] == "{$}" && have[i] != "" {
			return false
		}
		if want[i] != have[i] && want[i] != "{$}" && (!strings.HasPrefix(want[i], "{") || have[i] == "") {
			return false
		}
	}
	return true
}
