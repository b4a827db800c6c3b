package clone

import (
	"bufio"
	"context"
	"crypto/sha1"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/gitd/protocol"
)

// Kind is a kind of clone. Each kind needs base packs of its own.
type Kind int

const (
	Full     Kind = iota
	Blobless      // --filter=blob:none
	Shallow       // --depth=1, the tree of the base without its commit
)

const (
	// checksumsMax bounds the checksums that are kept of a base pack.
	checksumsMax = 256
	// envelopeMax and envelopesMax bound the bytes of one kept envelope and of all that are kept of a base
	// pack. They serve clients that clone the same branch again.
	envelopeMax  = 128 << 10
	envelopesMax = 1 << 20
)

// baseKey names a base pack.
type baseKey struct {
	repo Repo
	base object.Hash
	kind Kind
}

// basePack is the pack of all objects that a base reaches, without header and checksum, in the packets of a side band.
// Its files have no names, so they are gone when the process is.
type basePack struct {
	baseKey
	objects uint32
	frames  *os.File
	size    int64 // of frames
	index   *pack.File

	// Guarded by the lock of basePacks.
	users int
	kept  bool
	idle  *time.Timer

	mu        sync.Mutex // guards the fields below
	checksums map[uint32]*checksum
	envelopes map[string]*envelope // by the request
	held      int64                // bytes of envelopes
}

// envelope is the bytes before and after a base pack in a reply.
type envelope struct {
	head, tail []byte
	objects    int   // of the section
	bytes      int64 // of the section, before compression
}

func (e *envelope) size() int64 { return int64(len(e.head) + len(e.tail)) }

// checksum is the state of SHA-1 after the header of a pack of some number of objects and the base pack.
type checksum struct {
	once  sync.Once
	state hash.Cloner
	err   error
}

// Prepare makes a base pack and keeps it. Base packs are made one after another, because they take time
// from clients that wait.
func (c *Cache) Prepare(ctx context.Context, repo Repo, base object.Hash, kind Kind) error {
	c.bases.making.Lock()
	defer c.bases.making.Unlock()
	p, err := makeBasePack(ctx, baseKey{repo, base, kind})
	if err != nil {
		return err
	}
	c.bases.put(p)
	return nil
}

func makeBasePack(ctx context.Context, key baseKey) (*basePack, error) {
	repo := key.repo
	scratch, err := repo.Scratch()
	if err != nil {
		return nil, err
	}
	input := gitcmd.Command{Args: []string{"--revs"}, In: strings.NewReader(string(key.base) + "\n")}
	switch key.kind {
	case Blobless:
		// pack-objects itself applies a filter only to a pack that it writes to its output.
		list, err := listBlobless(ctx, repo, scratch, key.base)
		if err != nil {
			return nil, err
		}
		defer list.Close()
		input = gitcmd.Command{In: struct{ io.Reader }{list}} // a pipe, so that git has its limits before it begins
	case Shallow:
		tree, err := repo.Objects().TreeOf(ctx, key.base)
		if err != nil {
			return nil, err
		}
		input.In = strings.NewReader(string(tree) + "\n")
	}

	dir, err := pack.NativePacker{Scratch: scratch, Run: repo.Run}.Pack(ctx, input)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	whole, err := pack.OpenNative(dir)
	if err != nil {
		return nil, err
	}
	defer whole.Close()
	p := &basePack{baseKey: key, objects: uint32(whole.Objects)}
	if p.index, err = pack.OpenFile(dir, pack.NativePrefix+whole.Name); err != nil {
		return nil, err
	}
	if err := p.writeFrames(whole.Pack, dir); err != nil {
		p.index.Close()
		return nil, err
	}
	return p, nil
}

// listBlobless lists the commits and folders that a base reaches in a file without a name.
func listBlobless(ctx context.Context, repo Repo, scratch string, base object.Hash) (_ *os.File, err error) {
	list, err := pack.UnnamedFile(scratch)
	if err != nil {
		return nil, err
	}
	err = repo.Run(ctx, gitcmd.Command{Args: []string{"rev-list", "--objects", "--filter=blob:none", "--end-of-options",
		string(base)}, Out: list})
	if err == nil {
		_, err = list.Seek(0, io.SeekStart)
	}
	if err != nil {
		list.Close()
		return nil, err
	}
	return list, nil
}

const (
	// frameData is the part of a pack that a packet holds, after frameHead bytes of its own.
	frameData = protocol.MaxLine - frameHead
	frameHead = 5
)

// writeFrames copies the objects of a pack into packets. All but the last have the full length.
func (p *basePack) writeFrames(whole *os.File, dir string) (err error) {
	info, err := whole.Stat()
	if err != nil {
		return err
	}
	if p.frames, err = pack.UnnamedFile(dir); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			p.frames.Close()
		}
	}()

	in := io.NewSectionReader(whole, pack.HeaderLength, info.Size()-pack.HeaderLength-sha1.Size)
	out := bufio.NewWriterSize(p.frames, 1<<20)
	data := make([]byte, frameData)
	var packet []byte
	for {
		n, err := io.ReadFull(in, data)
		if err == io.EOF {
			break
		} else if err != nil && err != io.ErrUnexpectedEOF {
			return err
		}
		packet = protocol.AppendBand(packet[:0], protocol.BandData, data[:n], protocol.MaxLine)
		if _, err := out.Write(packet); err != nil {
			return err
		}
		p.size += int64(len(packet))
	}
	return out.Flush()
}

// hasObject reports whether an object is in the base pack.
func (p *basePack) hasObject(name pack.ObjectName) (bool, error) {
	_, ok, err := p.index.Find(name[:])
	return ok, err
}

// checksumOf returns the state of SHA-1 after a pack of n objects up to the end of the base pack. The number
// is in the header, so each state serves packs of one number only. Branches of a base have few objects
// of their own, and often the same number.
func (p *basePack) checksumOf(n uint32) (hash.Hash, error) {
	p.mu.Lock()
	s := p.checksums[n]
	if s == nil {
		if p.checksums == nil || len(p.checksums) == checksumsMax {
			p.checksums = map[uint32]*checksum{}
		}
		s = &checksum{}
		p.checksums[n] = s
	}
	p.mu.Unlock()

	s.once.Do(func() {
		state := sha1.New()
		state.Write(pack.Header(n))
		if s.err = p.hashObjects(state); s.err == nil {
			s.state = state.(hash.Cloner)
		}
	})
	if s.err != nil {
		return nil, s.err
	}
	return s.state.Clone()
}

// hashObjects writes the base pack without its packets to a hash.
func (p *basePack) hashObjects(to io.Writer) error {
	buf := make([]byte, 4*protocol.MaxLine)
	for at := int64(0); at < p.size; {
		n, err := p.frames.ReadAt(buf[:min(int64(len(buf)), p.size-at)], at)
		if err != nil && (err != io.EOF || n == 0) {
			return fmt.Errorf("cannot read the pack of a base: %w", err)
		}
		for packet := buf[:n]; len(packet) > frameHead; packet = packet[min(len(packet), protocol.MaxLine):] {
			to.Write(packet[frameHead:min(len(packet), protocol.MaxLine)])
		}
		at += int64(n)
	}
	return nil
}

// envelopeOf returns the kept envelope for a request, or nil.
func (p *basePack) envelopeOf(key string) *envelope {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.envelopes[key]
}

// keepEnvelope keeps an envelope unless it is large. All are forgotten when they are too many.
func (p *basePack) keepEnvelope(key string, e *envelope) {
	n := e.size() + int64(len(key))
	if n > envelopeMax {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.envelopes[key] != nil {
		return
	}
	if p.held += n; p.envelopes == nil || p.held > envelopesMax {
		p.envelopes, p.held = map[string]*envelope{}, n
	}
	p.envelopes[key] = e
}

// wrap returns the reply that consists of the base pack in an envelope.
func (p *basePack) wrap(e *envelope) (*reply, error) {
	// Opened again, for a position of its own. The file has no name any more.
	frames, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", p.frames.Fd()))
	if err != nil {
		return nil, fmt.Errorf("cannot open the pack of a base: %w", err)
	}
	return &reply{
		pieces: []replyPiece{{data: e.head}, {file: frames, n: p.size}, {data: e.tail}},
		close:  func() { frames.Close() },
	}, nil
}
