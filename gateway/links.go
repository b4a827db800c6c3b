package gateway

import (
	"net/http"
	"time"

	"github.com/ramus-dev/ramus/executor"
)

// Links makes and checks links that open without a token: method, path and
// expiry are signed (HMAC-SHA256 over length-prefixed fields), nothing is stored.
type Links struct {
	Key []byte           // 32 bytes
	URL string           // where people reach the server
	TTL time.Duration    // default 7 days
	Now func() time.Time // nil: time.Now
}

// Sign returns the URL of a path ("/evidence/…") with expiry and signature.
func (l *Links) Sign(path string) string { panic("not built") }

// Check tells whether a request carries a signature for its method and path that has not expired.
func (l *Links) Check(r *http.Request) error { panic("not built") }

// Run is a link to the page of a run's evidence, File to one file of it by its name in the manifest.
func (l *Links) Run(r executor.Run) string               { panic("not built") }
func (l *Links) File(r executor.Run, name string) string { panic("not built") }
