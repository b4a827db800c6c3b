package gitd

import (
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/gitd/clone"
	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/grant"
	"github.com/ramus-dev/ramus/gitd/sshd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Server serves the bare repositories below Root. Its exported fields are its options. They may be changed until
// [Server.Open] is called. All methods are safe for concurrent use.
type Server struct {
	// Root is the folder of bare repositories. NAME.git below it is served as /NAME.git. Names may have one or
	// more folders in front. Required.
	Root string
	// KeyFile holds the Ed25519 key that signs grants (PKCS#8 PEM, mode 0600). It is made at the first start.
	// Empty means a key in memory only, which ends with the process.
	KeyFile string
	// BaseKeyFile holds the Ed25519 key that signs the manifests of bases, in the same form. The two keys differ,
	// because revoking all grants must not invalidate every manifest. Empty means a key in memory only.
	BaseKeyFile string
	// Workspaces serves people who log in over SSH by the name of a workspace. Nil means that there are none.
	Workspaces sshd.Workspaces
	// AuthorizedKeys is an authorized_keys file for SSH, read at each login.
	// Empty means nobody may log in by SSH.
	AuthorizedKeys string
	// HostKeyFile holds the SSH host key. It is made at the first start. Empty means a key in memory only.
	HostKeyFile string
	// Anonymous lets everybody read and write without a token (`ramus gitd --anonymous`). A single repository
	// permits anonymous reading with ramus.anonymous=true in its own configuration.
	Anonymous bool
	// OwnConfig makes git obey the config file of each repository. It is for repositories as they are on disk
	// (`ramus gitd`).
	OwnConfig bool
	// TokenFile keeps the list of tokens that were made by Issue, and of those that were revoked. Empty keeps it in memory.
	TokenFile string
	// Limits bound the cost of a client. Zero fields mean their defaults.
	Limits Limits
	// Secrets are the values that no push may bring into a repository. Nil means none. Unlike the other fields it
	// may be set after Open, until the first push.
	Secrets *redact.Secrets
	// LFS keeps Git LFS objects. Nil means that Git LFS is not served. Unlike the other fields it may be set after Open,
	// until the first request.
	LFS LargeFiles
	// URL is the URL at which clients reach Handler ("https://ramus.example.org"), for the addresses of Git LFS objects.
	// Empty means the address of the request. Without it there is no Git LFS over SSH. It may be set like LFS.
	URL string
	// Changed is called after branches or tags of a repository have changed, and must return at once. Nil means that nobody
	// is told. It may be set like LFS.
	Changed func(repo string)
	// Duty is called before refs of a repository are changed by a push or by this server. An error refuses the change. Nil
	// allows all. It may be set like LFS, until refs change.
	Duty func(ctx context.Context, repo string) error
	// Settle is called when a change of refs is on disk, and before anybody learns of it. It returns when the change may be
	// acknowledged. After an error it is not, but it stays. Nil means at once. It may be set like Duty.
	Settle func(ctx context.Context, repo string) error
	// Claim is called before a repository gets a name, by its creation or a renaming. An error refuses it. Dropped is called
	// when no repository has the name any more. Nil allows all, and tells nobody. Both may be set like Duty.
	Claim   func(ctx context.Context, repo string) error
	Dropped func(ctx context.Context, repo string) error
	// PassSSH is called before a session of SSH is served. It returns a connection to [Server.ServePassedSSH] of the server that
	// has its repository, or nil if this one has it. A push counts until ctx ends. Nil means that this server serves all. It is
	// set before ServeSSH.
	PassSSH func(ctx context.Context, t sshd.Target) (net.Conn, error)
	// Expect is called for a push by a person, with or without options (git push -o), that the server is about to take, with
	// the refs that it wants to make or move. The result is called when that is done or has failed. A nil result is not
	// called, and an error refuses the push. Nil means that no push may have options. It may be set like LFS.
	Expect func(ctx context.Context, p Push) (Happened, error)
	// Veil returns the veil over a repository for the bearer of a token or a key, or nil. Nil means that refs belong to
	// nobody. It may be set like LFS.
	Veil func(g Grant, repo string) Veil
	// Bound returns the grant of a token of a person, whose id is g.Person.ID, without the rights that the person has no
	// more. Returns [ErrDenied] if nothing is left. Nil bounds nothing. It may be set like LFS.
	Bound func(g Grant) (Grant, error)
	// Known returns the grant of a token whose signature is valid, as another server knows it that has the list of tokens. Nil
	// means [Server.Listed]. It may be set like LFS.
	Known func(token string, g Grant) (Grant, error)
	// CreateOnPush lists the subjects that make a repository by a push to a free name, if their grant covers the name and
	// all branches. Administrators may, and "*" is everybody with such a grant.
	CreateOnPush []string
	// Signer signs the commits that the server makes. These are merges, squashes, the commits of a rebase, and
	// those of [Repo.WriteCommit]. Nil means that they are not signed.
	Signer *CommitSigner
	// ReplyCache bounds the bytes of answers to fetches that are kept in files below Root for clients that ask for
	// the same. Zero means 2 GiB. If it is negative, none are kept.
	ReplyCache int64
	// Log receives messages for the operator. Nil discards them.
	Log *slog.Logger
	// Now is the clock. Nil means time.Now.
	Now func() time.Time

	git     gitcmd.Runner // runs git
	library library       // the repositories in use
	hook    secretHook    // searches pushes for Secrets
	clones  clone.Cache   // answers fetches that resemble others
	upkeep  upkeep        // maintains repositories

	// Set by Open, only read afterwards.
	limits  Limits
	key     ed25519.PrivateKey
	signer  *grant.Signer
	tokens  *grant.Ledger
	baseKey ed25519.PrivateKey
	slots   *slots
	memory  shares // for the git children of pushes
	// transfers bounds the transfers of Git LFS objects.
	transfers *slots

	requests gitcmd.Group // that are being answered
	writing  sync.RWMutex // held for reading while this server changes refs itself, for writing by Freeze

	lists  atomic.Uint64 // lists of refs answered without git
	native bool          // lets git answer protocol v2 and all pushes, for tests

	advertMu   sync.Mutex // guards the fields below
	advert     []byte     // the capabilities of git in protocol v2
	pushAdvert string     // the capabilities of git for a push
}

// Limits bound the cost of one client. A zero field means its default.
type Limits struct {
	PackBytes   int64         // largest pack of a push, default 2 GiB
	Objects     int64         // most objects in one push, default 5,000,000
	ObjectBytes int64         // largest declared size of one object, default 512 MiB
	LFSBytes    int64         // largest Git LFS object, default 8 GiB
	Time        time.Duration // longest life of one git child, default 1 h
	CPU         time.Duration // CPU time of one git child, default 10 min
	Memory      int64         // address space of one git child, default 4 GiB
	Processes   int           // git children at once, default 4 × cores
	Idle        time.Duration // longest wait for a client's next byte, default 2 min
}

// Open makes Root and the keys if they are missing. It must be called before any other method.
func (s *Server) Open(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	key, err := grant.LoadKey(s.KeyFile)
	if err != nil {
		return err
	}
	s.key, s.signer = key, grant.NewSigner(key, s.now)
	s.tokens = &grant.Ledger{File: s.TokenFile, Now: s.now}
	if err := s.tokens.Open(); err != nil {
		return err
	}
	if s.baseKey, err = grant.LoadKey(s.BaseKeyFile); err != nil {
		return err
	}
	s.limits = s.Limits.withDefaults()
	s.slots = newSlots(s.limits.Processes)
	s.transfers = newSlots(transfersMax)
	s.memory.all = 2*s.limits.ObjectBytes + 256<<20 // the largest push, and small ones at the same time
	if err := s.openRoot(ctx); err != nil {
		return err
	}
	c := &s.clones
	c.Root, c.MaxBytes, c.Git, c.Requests, c.Log, c.Now = s.Root, s.ReplyCache, &s.git, &s.requests, s.log(), s.now
	s.startUpkeep()
	return nil
}

// Close ends all requests and the kept git processes, and waits for both. It does not close the listeners of
// Handler and ServeSSH.
func (s *Server) Close() error {
	s.requests.Close()
	s.stopUpkeep()
	var err error
	if s.tokens != nil {
		err = s.tokens.Close()
	}
	return errors.Join(err, s.closeRoot())
}

// veiled returns the grant of a client for a repository. Connections of the server's own containers have no veil.
func (s *Server) veiled(g Grant, repo string) Grant {
	if s.Veil == nil || g.Veil != nil {
		return g
	}
	return g.Under(s.Veil(g, repo))
}

// noVeil hides nothing. Connections of the server's own containers have it, whose grants list all that they need.
type noVeil struct{}

func (noVeil) Hides(string) bool { return false }
func (noVeil) Locks(string) bool { return false }
func (noVeil) HidesAny() bool    { return false }
func (noVeil) Hidden() []string  { return nil }

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

// Issue returns the token of a grant like Sign, and lists it, so that it can be revoked. The result has the token's id.
func (s *Server) Issue(g Grant, by string) (token string, issued Grant, err error) {
	if _, err := s.Sign(g); err != nil { // before it is listed
		return "", g, err
	}
	if issued, err = s.tokens.Made(g, by); err != nil {
		return "", g, err
	}
	token, err = s.Sign(issued)
	return token, issued, err
}

// Tokens returns the tokens of Issue that have not ended, and those that were revoked.
func (s *Server) Tokens() []Issued { return s.tokens.List() }

// RevokeToken refuses a token from now on, by its id. The error is [ErrNotFound] if no such token was made.
func (s *Server) RevokeToken(id, by string) error { return s.tokens.Revoke(id, by) }

// WatchToken returns a channel that is closed when a token ends or is revoked, by its id. stop must be called.
func (s *Server) WatchToken(id string) (ended <-chan struct{}, stop func()) {
	return s.tokens.Watch(id)
}

// Verify returns the grant of a token. Returns [ErrDenied] with the reason if the token is refused.
func (s *Server) Verify(token string) (Grant, error) {
	g, err := s.signer.Verify(token)
	switch {
	case err != nil:
		return Grant{}, err
	case s.Known != nil:
		g, err = s.Known(token, g)
	default:
		g, err = s.Listed(g)
	}
	if err != nil {
		return Grant{}, err
	}
	return g, nil
}

// Listed returns the grant of a token whose signature is valid, if it was not revoked, without the rights that its person
// has no more.
func (s *Server) Listed(g Grant) (Grant, error) {
	err := s.tokens.Use(g.ID)
	if err == nil && s.Bound != nil {
		if g.Person.ID = s.tokens.PersonOf(g.ID); g.Person.ID != "" {
			g, err = s.Bound(g)
		}
	}
	if err != nil {
		return Grant{}, err
	}
	return g, nil
}

// JWKS returns the public half of the signing key as a JSON Web Key Set (RFC 7517, RFC 8037).
func (s *Server) JWKS() []byte { return s.signer.JWKS() }
