package route

// Route is one row of a table.
type Route struct {
	Method  string // empty means every method
	Pattern string // of http.ServeMux
	Access  Access
	Summary string
	// Query, Request and Response are zero values of the types of the query parameters, the JSON body and the JSON
	// answer. Nil means that there is none.
	Query, Request, Response any
	// Form is a zero value of the type of the fields of a form with files, if the body is one in place of JSON. Fields
	// of the type []byte are files, and may be repeated.
	Form any
	// Media is the media type of the answer. Empty means application/json. For streams Response is the type of one
	// event or line.
	Media string
	// Unlogged keeps requests out of the log of actions, which is a change of its own.
	Unlogged bool
	// SecretPath means that the path holds a token. Logs have the pattern in its place.
	SecretPath bool
	// Strangers lets reading requests without a session in to the repository of the path, on a route of [AccessPage], if
	// [Mux.IsPublic] permits it. The handler shows them only branches and tags, see [Who.Stranger].
	Strangers bool
	// Body limits the body of a request, in bytes. 0 means 1 MiB; below 0 the handler sets the limit.
	Body int64
	// Handle answers a call. An error before the first byte of the answer becomes a [Problem].
	Handle func(c *Call) error
}

// Access is the class of callers that a route lets in. The zero value is not a class: a Mux panics on a route that
// has none.
type Access string

// The classes of access.
const (
	AccessPublic  Access = "public"  // everybody
	AccessMetrics Access = "metrics" // the scope "metrics", or "admin"
	AccessRead    Access = "read"    // the scope "read", "write" or "admin"
	AccessWrite   Access = "write"   // the scope "write" or "admin"
	AccessAdmin   Access = "admin"   // the scope "admin" for every repository, or the unix socket
	// AccessSigned lets in a link that was signed for the path, see [links.Signer], and the scope of AccessRead for
	// the repository.
	AccessSigned Access = "signed"
	// AccessPreview leaves the check to the handler, which looks for what a signed link led to: a cookie of a host
	// that belongs to the application alone, or a part of the path. A token lets nobody in.
	AccessPreview Access = "preview"
	// AccessGit leaves the check of the grant to the Git server, ref by ref.
	AccessGit Access = "git"
	// AccessHook leaves the check to the handler, which verifies the sender's signature over the raw body before it
	// reads anything in it.
	AccessHook Access = "hook"
	// AccessPage lets in the session of an account, which its cookie names. Pages and their forms have it. Nobody who
	// asks for a page is sent to [SignInPath]. A token lets nobody in. Handlers check the roles in repositories.
	AccessPage Access = "page"
	// AccessSocket lets in the session of an account, for a request with this server's own Origin that becomes a
	// WebSocket. The context of the request ends within a second after its session has ended. The handler closes the
	// connection then.
	AccessSocket Access = "socket"
)

// accesses are all classes of access.
var accesses = []Access{AccessPublic, AccessMetrics, AccessRead, AccessWrite, AccessAdmin, AccessSigned, AccessPreview,
	AccessGit, AccessHook,
	AccessPage, AccessSocket}

// Media types of streams and of answers that are not JSON.
const (
	MediaSSE   = "text/event-stream"
	MediaLines = "application/x-ndjson"
	MediaHTML  = "text/html; charset=utf-8"
	MediaText  = "text/plain; charset=utf-8"
	MediaBytes = "application/octet-stream"
)
