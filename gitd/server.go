package gitd

import (
	"context"
	"crypto/ed25519"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/gitd/clone"
	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/grant"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Server serves the bare repositories below Root. Its exported fields are its
// options; they may be changed until [Server.Open] is called. All methods are
// safe for concurrent use.
type Server struct {
	// Root is the folder of bare repositories; NAME.git below it is served as
	// /NAME.git. Required. Names may have one or more folders in front.
	Root string
	// KeyFile holds the Ed25519 key that signs grants (PKCS#8 PEM, mode 0600);
	// made at first start. Empty means a key in memory only, gone with the process.
	KeyFile string
	// BaseKeyFile holds the Ed25519 key that signs the manifests of bases, in the
	// same form. It is a key of its own: taking back all grants must not make
	// every manifest worthless. Empty means a key in memory only.
	BaseKeyFile string
	// AuthorizedKeys is an authorized_keys file for SSH, read at each login.
	// Empty means nobody may log in by SSH.
	AuthorizedKeys string
	// HostKeyFile holds the SSH host key; made at first start. Empty: in memory.
	HostKeyFile string
	// Anonymous lets everybody read and write without a token (`ramus gitd
	// --anonymous`). A single repository opts in to anonymous reading with
	// ramus.anonymous=true in its own configuration.
	Anonymous bool
	// OwnConfig makes git obey the repository's own config file as it stands
	// (`ramus gitd`: repositories as they are on disk).
	OwnConfig bool
	// Limits bound what a client can cost; zero fields take defaults.
	Limits Limits
	// Secrets are what no push may bring into a repository; nil: there are none.
	// Unlike the other fields it may be set after Open, until the first push.
	Secrets *redact.Secrets
	// Signer signs the commits that the server makes: merges, squashes, what a rebase
	// replays, and those of [Repo.WriteCommit]. nil: they are not signed.
	Signer *CommitSigner
	// ReplyCache bounds, in bytes, the answers to fetches that are kept in files below
	// Root for whoever asks the same; 0 means 2 GiB, less than 0 none.
	ReplyCache int64
	// Log receives what is worth knowing; nil discards it.
	Log *slog.Logger
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	git     gitcmd.Runner // starts git
	library library       // the repositories in use; see root.go
	hook    secretHook    // looks for Secrets; see leak.go
	clones  clone.Cache   // answers fetches that resemble others
	upkeep  upkeep        // maintains repositories; see upkeep.go

	// Set by Open, read only after.
	limits  Limits
	key     ed25519.PrivateKey
	signer  *grant.Signer
	baseKey ed25519.PrivateKey
	slots   *slots
	memory  shares // of the git children of pushes

	requests gitcmd.Group // what is being answered; see http.go and ssh.go

	lists  atomic.Uint64 // lists of refs answered without git
	native bool          // protocol v2 goes to git, too; for tests

	advertMu   sync.Mutex // guards the two below
	advert     []byte     // git's capabilities in protocol v2
	pushAdvert string     // and for a push
}

// Limits bound what one client can cost. A zero field means its default.
type Limits struct {
	PackBytes   int64         // largest pack of a push; default 2 GiB
	Objects     int64         // most objects in one push; default 5,000,000
	ObjectBytes int64         // largest declared size of one object; default 512 MiB
	Time        time.Duration // longest life of one git child; default 1 h
	CPU         time.Duration // CPU time of one git child; default 10 min
	Memory      int64         // address space of one git child; default 4 GiB
	Processes   int           // git children at once; default 4 × cores
	Idle        time.Duration // longest wait for a client's next byte; default 2 min
}

// Open makes Root and the keys where they are missing. It must be called before any other method.
func (s *Server) Open(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	key, err := grant.LoadKey(s.KeyFile)
	if err != nil {
		return err
	}
	s.key, s.signer = key, grant.NewSigner(key, s.now)
	if s.baseKey, err = grant.LoadKey(s.BaseKeyFile); err != nil {
		return err
	}
	s.limits = s.Limits.withDefaults()
	s.slots = newSlots(s.limits.Processes)
	s.memory.all = 2*s.limits.ObjectBytes + 256<<20 // the largest push, and small ones at the same time
	if err := s.openRoot(ctx); err != nil {
		return err
	}
	c := &s.clones
	c.Root, c.MaxBytes, c.Git, c.Requests, c.Log, c.Now = s.Root, s.ReplyCache, &s.git, &s.requests, s.log(), s.now
	s.startUpkeep()
	return nil
}

// Close ends what is being answered, stops kept git processes and waits for
// both. The listeners that Handler and ServeSSH answer on are their owners' to
// close.
func (s *Server) Close() error {
	s.requests.Close()
	s.stopUpkeep()
	return s.closeRoot()
}

func (s *Server) log() *slog.Logger {
	if s.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.Log
}

func (s *Server) now() time.Time {
	if s.Now == nil {
		return time.Now()
	}
	return s.Now()
}

// Sign returns the token of a grant. The grant must have an expiry, which a token keeps to the second.
func (s *Server) Sign(g Grant) (string, error) { return s.signer.Sign(g) }

// Verify returns the grant of a token. The error is [ErrDenied] and says why the token is refused.
func (s *Server) Verify(token string) (Grant, error) { return s.signer.Verify(token) }

// JWKS returns the public half of the signing key as a JSON Web Key Set (RFC 7517, RFC 8037).
func (s *Server) JWKS() []byte { return s.signer.JWKS() }
