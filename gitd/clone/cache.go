package clone

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/gitd/protocol"
)

// Folder is the folder below [Cache.Root] that holds kept replies. No repository can have its name.
const Folder = ".ramus-replies"

// defaultBytes is the default of [Cache.MaxBytes].
const defaultBytes = 2 << 30

// Cache answers fetches from the answers to others. The exported fields must be set before the first
// use. Cache is safe for concurrent use.
type Cache struct {
	// Root is the folder of the repositories.
	Root string
	// MaxBytes bounds the bytes of kept replies. Zero means 2 GiB. If it is negative, no replies are kept.
	MaxBytes int64
	// Git counts base packs that are being made. Its end is their end.
	Git *gitcmd.Runner
	// Requests counts replies that are being made. A reply outlives the request that began it.
	Requests *gitcmd.Group
	// Log receives warnings.
	Log *slog.Logger
	// Now is the clock.
	Now func() time.Time

	replies replyCache
	bases   basePacks
	setup   sync.Once
	// composing holds a token for each reply that is being composed. A storm of clones must not hold all
	// its sections in memory at once.
	composing chan struct{}

	packs, composed, hits atomic.Uint64
}

// Repo is a repository whose fetches are answered. Values of one repository must be equal.
type Repo interface {
	Name() string
	Dir() string
	// ID returns a word that differs from that of a repository that had the folder before.
	ID() string
	Objects() *pack.Reader
	// BaseTip returns the commit of the base branch. Returns "" if there is none.
	BaseTip(ctx context.Context) (object.Hash, error)
	// TagState returns a word that changes with any tag. Returns "" if there are no tags.
	TagState(ctx context.Context) (string, error)
	// Tags returns the annotated tags.
	Tags() []Tag
	// Run runs git on the repository, within the limits of a child that a client asked for.
	Run(ctx context.Context, c gitcmd.Command) error
	// Scratch returns a folder for temporary files.
	Scratch() (string, error)
}

// Tag is an annotated tag.
type Tag struct {
	Hash   object.Hash // the object of the tag
	Peeled object.Hash // the object that it names in the end
}

// Client is the client of a fetch.
type Client interface {
	// Admit waits until the client may use one more git child. release must be called once.
	Admit(ctx context.Context) (release func(), err error)
	// UploadPack runs git upload-pack with a request of protocol v2. The answer does not depend on the
	// client. UploadPack passes it to read and calls release when the child has ended.
	UploadPack(ctx context.Context, request []byte, release func(), read func(io.Reader) error) error
}

// Request is a fetch whose wants the client may have.
type Request struct {
	Repo   Repo
	Client Client
	// Fetch is the request. Answer may clear IncludeTag.
	Fetch *protocol.FetchRequest
	// Tags is the state of all tags, and AllTags reports whether the client may have all of them.
	Tags    string
	AllTags bool
	// Shallow is a word for the way in which the repository's own history is cut.
	Shallow string
}

// ReplyWriter is the destination of a reply.
type ReplyWriter interface {
	io.Writer
	// SetLength announces the length of the reply before its first byte. A reply without one is sent as it
	// arrives.
	SetLength(n int64)
}

// Answer answers a fetch from the answers to others, and keeps answers for later ones. It reports
// false if nothing was written and git should answer.
func (c *Cache) Answer(ctx context.Context, req *Request, out ReplyWriter) (answered bool, err error) {
	c.setup.Do(c.init)
	key, ok := req.key()
	if !ok {
		return false, nil
	}
	if !c.replies.hasReply(key) {
		made, err := c.compose(ctx, req.Repo, req.Fetch)
		if err != nil {
			c.Log.Warn("git answers in place of the server", "repo", req.Repo.Name(), "err", err)
		}
		if made != nil {
			defer made.close()
			c.composed.Add(1)
			out.SetLength(made.size())
			return true, made.writeTo(out)
		}
		if _, err := gitcmd.FreeSpace(c.Root); err != nil || c.replies.max < 0 {
			return false, nil
		}
	}

	rd, err := c.replies.join(key, req.Repo, req.Fetch.Wants)
	if err != nil {
		c.Log.Warn("cannot keep answers", "err", err)
		return false, nil
	}
	defer c.replies.leave(rd)
	begun, err := c.beginReply(ctx, rd.keptReply, req)
	if err != nil {
		return true, err
	}
	if !begun {
		c.hits.Add(1)
	}
	return true, rd.send(ctx, !req.Fetch.NoProgress, out)
}

func (c *Cache) init() {
	c.composing = make(chan struct{}, 2*runtime.NumCPU())
	c.replies.root, c.replies.max = c.Root, c.MaxBytes
	if c.MaxBytes == 0 {
		c.replies.max = defaultBytes
	}
}

// key returns the key of the reply. Returns false if the reply must not be kept, because it depends on more
// than the key names.
func (req *Request) key() (replyKey, bool) {
	f := req.Fetch
	if !f.Plain() {
		return replyKey{}, false
	}
	tags := req.Tags
	if tags == "" || !req.AllTags {
		// There is nothing to include, or something that the client may not have. A client that is not
		// sent tags fetches those that it sees and wants.
		f.IncludeTag = false
	}
	if !f.IncludeTag {
		tags = ""
	}

	h := sha256.New()
	for _, part := range []string{req.Repo.Dir(), req.Repo.ID(), req.Shallow, tags} {
		h.Write(binary.AppendUvarint(nil, uint64(len(part))))
		io.WriteString(h, part)
	}
	h.Write(f.Render(false))
	return replyKey(h.Sum(nil)), true
}

// Forget drops the kept replies of a repository for wants at which deleted refs were.
func (c *Cache) Forget(repo Repo, deleted map[object.Hash]bool) { c.replies.forget(repo, deleted) }

// Release drops the base packs of a repository.
func (c *Cache) Release(repo Repo) {
	c.bases.remove(func(p *basePack) bool { return p.repo == repo })
}

// Close removes everything. Replies must no longer be read, and [Cache.Git] must be closed.
func (c *Cache) Close() error {
	c.bases.close()
	return c.replies.close()
}

// Stats counts the answers of a cache.
type Stats struct {
	Packs    uint64 // answers made by git to be kept
	Composed uint64 // composed replies
	Hits     uint64 // replies that had been made, or were being made, for another client
	Kept     int64  // bytes of kept replies
}

// Stats returns the counts since the cache was made.
func (c *Cache) Stats() Stats {
	return Stats{c.packs.Load(), c.composed.Load(), c.hits.Load(), c.replies.size()}
}
