package gitd

import "time"

// Grant says what its bearer may do. It travels as an EdDSA JWT (RFC 8037)
// and is never stored.
type Grant struct {
	// Subject names the bearer for logs, commits and `whoami`: "run:fancy-mallard", "admin".
	Subject string `json:"sub"`
	// Repo is the repository's name; "*" means every repository.
	Repo string `json:"repo"`
	// Read lists the refs that may be seen and fetched: full names, or a
	// prefix ending in "/*". Empty means all refs.
	Read []string `json:"read,omitempty"`
	// Write lists the refs that may be updated, in the same form. Empty means none.
	Write []string `json:"write,omitempty"`
	// Force allows updates that are no fast-forward; Delete allows deletions.
	Force  bool `json:"force,omitempty"`
	Delete bool `json:"delete,omitempty"`
	// Scopes are carried for other rooms ("admin", "read", "write", "metrics"); gitd ignores them.
	Scopes []string `json:"scopes,omitempty"`
	// Expires is when the grant ends.
	Expires time.Time `json:"exp"`
}
